//! Properties of every parser: no input makes it panic, and its output never contains a secret.

#![cfg(test)]

use std::error::Error;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use lanyard_credential::bundle::CertificateBundle;
use lanyard_credential::detected_format::DetectedFormat;
use lanyard_credential::document::CredentialDocument;
use lanyard_credential::generation::{ParseCredentialOptions, ParsedCredential};
use lanyard_credential::inspect::inspect;
use lanyard_credential::secret::SecretText;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const KEY: &[u8] = include_bytes!("fixtures/leaf.pkcs8.key");
const LEAF: &[u8] = include_bytes!("fixtures/leaf.pem");
const ARCHIVES: [&[u8]; 5] = [
    include_bytes!("fixtures/old-rc2.pfx"),
    include_bytes!("fixtures/old-3des.pfx"),
    include_bytes!("fixtures/aes-sha256.pfx"),
    include_bytes!("fixtures/password.pfx"),
    include_bytes!("fixtures/plain.pfx"),
];

/// No id and no URL contains a space, so every field rejects the marker and does not display it.
const MARKER: &str = "PLANTED marker";

fn now() -> Timestamp {
    "2027-01-15T00:00:00Z".parse().unwrap()
}

/// Runs every parser over `bytes` and collects its output.
fn collect_all_output(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let mut note_error = |error: &dyn Error| {
        let mut cause = Some(error);
        while let Some(source) = cause {
            write!(shown, "{source}\n{source:?}\n").unwrap();
            cause = source.source();
        }
    };
    match CredentialDocument::parse(bytes) {
        Ok(document) => {
            if let Err(error) = CertificateBundle::parse(document.client_secret()) {
                note_error(&error);
                shown.push_str(&error.hint().unwrap_or_default());
            }
            writeln!(shown, "{document:?}").unwrap();
        }
        Err(error) => {
            note_error(&error);
            shown.push_str(&error.hint().unwrap_or_default());
        }
    }
    match ParsedCredential::parse(bytes, &ParseCredentialOptions::default()) {
        Ok(credential) => writeln!(shown, "{credential:?}").unwrap(),
        Err(error) => writeln!(shown, "{error}\n{error:?}\n{:?}", error.hint()).unwrap(),
    }
    let inspection = inspect(bytes, now());
    writeln!(shown, "{inspection:?}\n{}", serde_json::to_string(&inspection).unwrap()).unwrap();
    write!(shown, "{}", DetectedFormat::of(bytes)).unwrap();
    shown
}

fn document() -> Value {
    json!({
        "client_id": "22222222-2222-4222-8222-222222222222",
        "tenant_id": "11111111-1111-4111-8111-111111111111",
        "client_secret": STANDARD.encode([KEY, LEAF].concat()),
        "authentication_endpoint": "https://login.microsoftonline.com/",
        "not_before": "2027-01-01T00:00:00Z",
        "not_after": "2027-04-01T00:00:00Z",
        "client_secret_url": "https://identity.example/?sig=PLANTED marker",
    })
}

/// Values that contain the marker in the forms in which a secret may occur.
fn secret_values() -> impl Strategy<Value = Value> {
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{MARKER}\n-----END PRIVATE KEY-----\n");
    prop::sample::select(vec![
        json!(MARKER),
        json!(STANDARD.encode(MARKER)),
        json!(STANDARD.encode(&pem)),
        json!(STANDARD.encode(KEY)),
        json!(pem),
        json!(format!("{MARKER}{}", STANDARD.encode([KEY, LEAF].concat()))),
        json!([MARKER]),
        json!({MARKER: MARKER}),
        json!(null),
        json!(1),
    ])
}

/// Documents in which any field may be invalid, except fields that are displayed on purpose.
fn invalid_documents() -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::sample::select(vec![
        "client_id",
        "tenant_id",
        "client_secret",
        "authentication_endpoint",
        "not_before",
        "not_after",
        "renew_after",
        "cannot_renew_after",
        "client_secret_url",
        "clientSecret",
        "added_later",
    ]);
    prop::collection::vec((fields, secret_values()), 1..6).prop_map(|changes| {
        let mut spoiled: Map<String, Value> = document().as_object().unwrap().clone();
        for (field, value) in changes {
            spoiled.insert(field.to_owned(), value);
        }
        serde_json::to_vec(&spoiled).unwrap()
    })
}

fn assert_no_secret_shown(shown: &str) -> Result<(), TestCaseError> {
    let forms = [
        MARKER.to_owned(),
        MARKER.replace(' ', "%20"),
        STANDARD.encode(MARKER).trim_end_matches('=').to_owned(),
        STANDARD.encode(KEY)[600..640].to_owned(),
        // Thirty characters from the middle of the key.
        std::str::from_utf8(&KEY[500..530]).unwrap().trim().to_owned(),
    ];
    for form in forms {
        prop_assert!(!shown.contains(&form), "{form:?} is shown in:\n{shown}");
    }
    Ok(())
}

/// Overwrites, truncates or extends the bytes.
fn damage(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)], cut: usize) -> Vec<u8> {
    for (index, byte) in changes {
        let at = index.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes.truncate(bytes.len().saturating_sub(cut));
    bytes
}

#[test]
fn valid_document_is_accepted_by_every_reader() {
    let bytes = serde_json::to_vec(&document()).unwrap();
    assert!(ParsedCredential::parse(&bytes, &ParseCredentialOptions::default()).is_ok());
    assert_no_secret_shown(&collect_all_output(&bytes)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        collect_all_output(&bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        drop(CertificateBundle::parse(&SecretText::from(text)));
        drop(CertificateBundle::parse(&SecretText::from(STANDARD.encode(&bytes))));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        collect_all_output(text.as_bytes());
        drop(CertificateBundle::parse(&SecretText::from(text)));
    }

    #[test]
    fn damaged_documents_never_leak_secrets(
        bytes in invalid_documents(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(0_usize), 1 => 0_usize..4_000],
    ) {
        assert_no_secret_shown(&collect_all_output(&damage(bytes, &changes, cut)))?;
    }

    #[test]
    fn damaged_pem_never_leaks_secrets(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(0_usize), 1 => 0_usize..3_000],
    ) {
        let bytes = damage([KEY, LEAF].concat(), &changes, cut);
        let parsed = CertificateBundle::parse(&SecretText::from(STANDARD.encode(bytes)));
        assert_no_secret_shown(&format!("{parsed:?}"))?;
    }

    #[test]
    fn damaged_archives_never_panic(
        archive in prop::sample::select(ARCHIVES.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(0_usize), 1 => 0_usize..3_000],
    ) {
        let bytes = damage(archive.to_vec(), &changes, cut);
        drop(CertificateBundle::parse(&SecretText::from(STANDARD.encode(bytes))));
    }
}
