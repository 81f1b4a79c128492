//! Keys: RSA and elliptic curves, to read. Encrypting with them is not implemented.

use std::ops::Range;

use serde_json::{Value, json};

use super::kind::{GET_KEY, LIST_KEYS, ObjectKind, Right};
use super::objects::{Kept, attributes, version_id};
use super::shelf::{Shelf, Version};
use super::vault::{CurvePoint, KeyContent, Vault, VaultKey};

const OPERATIONS: [&str; 6] = ["encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"];

/// Which of them a key of a curve has.
const SIGNATURES: Range<usize> = 2..4;

impl Kept for KeyContent {
    const KIND: ObjectKind = ObjectKind::Key;
    const GET: Right = GET_KEY;
    const LIST: Right = LIST_KEYS;

    fn shelf(vault: &Vault) -> &Shelf<Self> {
        &vault.keys
    }

    fn bundle(vault: &Vault, name: &str, version: &Version<Self>) -> Value {
        let kid = version_id(vault, name, version);
        let key = match &version.content.key {
            VaultKey::Rsa(key) => {
                let mut wire = json!({ "kid": kid, "kty": "RSA", "key_ops": OPERATIONS });
                if let Ok((modulus, exponent)) = key.jwk_parts() {
                    wire["n"] = json!(modulus);
                    wire["e"] = json!(exponent);
                }
                wire
            }
            VaultKey::Curve(CurvePoint { crv, x, y }) => {
                let operations = &OPERATIONS[SIGNATURES];
                json!({ "kid": kid, "kty": "EC", "key_ops": operations, "crv": crv, "x": x, "y": y })
            }
        };
        let mut bundle = json!({ "key": key, "attributes": attributes(version.attributes, vault) });
        finish(&mut bundle, version);
        bundle
    }

    fn item(id: String, vault: &Vault, version: &Version<Self>) -> Value {
        let mut item = json!({ "kid": id, "attributes": attributes(version.attributes, vault) });
        finish(&mut item, version);
        item
    }
}

fn finish(wire: &mut Value, version: &Version<KeyContent>) {
    if !version.tags.is_empty() {
        wire["tags"] = json!(version.tags);
    }
    if version.content.managed {
        wire["managed"] = json!(true);
    }
}
