//! Test fixtures: throwaway keys, and documents that contain them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::generation::{ParseCredentialOptions, ParsedCredential};
use crate::identity::EntraApplication;
use crate::secret::SecretText;

macro_rules! fixture {
    ($(#[$attribute:meta])* $name:ident, $file:literal) => {
        $(#[$attribute])*
        pub(crate) const $name: &[u8] = include_bytes!(concat!("../tests/fixtures/", $file));
    };
}

fixture!(ROOT, "root.pem");
fixture!(INTERMEDIATE, "intermediate.pem");
fixture!(LEAF, "leaf.pem");
fixture!(LEAF_RENEWED, "leaf-renewed.pem");
fixture!(LEAF_PKCS8, "leaf.pkcs8.key");
fixture!(LEAF_PKCS1, "leaf.pkcs1.key");
fixture!(LEAF_ENCRYPTED, "leaf.encrypted.key");
fixture!(LEAF_PROC_TYPE, "leaf.proc-type.key");
fixture!(OTHER, "other.pem");
fixture!(OTHER_PKCS8, "other.pkcs8.key");
fixture!(SHORT, "short.pem");
fixture!(SHORT_PKCS8, "short.pkcs8.key");
fixture!(EC, "ec.pem");
fixture!(EC_PKCS8, "ec.pkcs8.key");
fixture!(EC_SEC1, "ec.sec1.key");
fixture!(ED25519, "ed25519.pem");
fixture!(ED25519_PKCS8, "ed25519.pkcs8.key");
fixture!(
    #[cfg(feature = "pkcs12")]
    PFX_OLD_RC2,
    "old-rc2.pfx"
);
fixture!(
    #[cfg(feature = "pkcs12")]
    PFX_OLD_3DES,
    "old-3des.pfx"
);
fixture!(PFX_AES_SHA256, "aes-sha256.pfx");
fixture!(
    #[cfg(feature = "pkcs12")]
    PFX_AES_SHA1,
    "aes-sha1.pfx"
);
fixture!(
    #[cfg(feature = "pkcs12")]
    PFX_PASSWORD,
    "password.pfx"
);
fixture!(
    #[cfg(feature = "pkcs12")]
    PFX_PLAIN,
    "plain.pfx"
);

pub(crate) const TENANT: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const CLIENT: &str = "22222222-2222-4222-8222-222222222222";
pub(crate) const AUTHORITY: &str = "https://login.example/";

pub(crate) fn timestamp(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Encodes the concatenated files as a value of `client_secret`.
pub(crate) fn client_secret(files: &[&[u8]]) -> String {
    STANDARD.encode(files.concat())
}

pub(crate) fn secret(files: &[&[u8]]) -> SecretText {
    client_secret(files).into()
}

/// A valid document, which tests modify.
pub(crate) fn document(not_before: &str) -> Value {
    json!({
        "client_id": CLIENT,
        "tenant_id": TENANT,
        "client_secret": client_secret(&[LEAF_PKCS8, LEAF, INTERMEDIATE]),
        "authentication_endpoint": AUTHORITY,
        "not_before": not_before,
        "not_after": "2027-04-01T00:00:00Z",
        "renew_after": "2027-02-15T00:00:00Z",
        "cannot_renew_after": "2027-06-30T00:00:00Z",
    })
}

/// Encodes bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Serializes the document.
pub(crate) fn to_bytes(document: &Value) -> Vec<u8> {
    serde_json::to_vec(document).unwrap()
}

pub(crate) fn application() -> EntraApplication {
    let client = "client".parse().unwrap();
    EntraApplication::new("t".parse().unwrap(), client, AUTHORITY.parse().unwrap())
}

pub(crate) fn parsed_credential(document: &Value) -> ParsedCredential {
    ParsedCredential::parse(&to_bytes(document), &ParseCredentialOptions::default()).unwrap()
}
