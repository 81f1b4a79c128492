//! Keys: RSA, to read. Encrypting with them is not implemented.

use serde_json::{Value, json};

use super::kind::{GET_KEY, LIST_KEYS, ObjectKind, Right};
use super::objects::{Kept, attributes, version_id};
use super::shelf::{Shelf, Version};
use super::vault::{KeyContent, Vault};

const OPERATIONS: [&str; 6] = ["encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"];

impl Kept for KeyContent {
    const KIND: ObjectKind = ObjectKind::Key;
    const GET: Right = GET_KEY;
    const LIST: Right = LIST_KEYS;

    fn shelf(vault: &Vault) -> &Shelf<Self> {
        &vault.keys
    }

    fn bundle(vault: &Vault, name: &str, version: &Version<Self>) -> Value {
        let kid = version_id(vault, name, version);
        let mut key = json!({ "kid": kid, "kty": "RSA", "key_ops": OPERATIONS });
        if let Ok((modulus, exponent)) = version.content.key.jwk_parts() {
            key["n"] = json!(modulus);
            key["e"] = json!(exponent);
        }
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
