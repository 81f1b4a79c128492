use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_emulator::testing::reply_json;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_kind::KeyVaultObjectKind;
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, TEST_CLIENT_VAULT, VAULT, expected_error};
use super::open;

const NULL: Value = Value::Null;

fn visit_with_objects() -> KeyVaultFixture {
    let visit = KeyVaultFixture::as_administrator();
    visit.succeed("PUT", "/secrets/mine", &json!({ "value": "one" }));
    visit.succeed("PUT", "/secrets/mine", &json!({ "value": "two", "tags": { "a": "b" } }));
    visit.succeed("POST", "/keys/own/create", &json!({ "kty": "EC", "key_ops": ["sign"] }));
    let policy = json!({
        "issuer": { "name": "Self" },
        "key_props": { "kty": "EC" },
        "x509_props": { "subject": "CN=web" },
    });
    visit.succeed("POST", "/certificates/web/create", &json!({ "policy": policy }));
    visit
}

fn restore_elsewhere(visit: &KeyVaultFixture, kind: &str, blob: &Value) -> ServiceReply {
    let (path, body) = (format!("/{kind}/restore"), json!({ "value": blob }).to_string());
    visit.send_request_to_vault(TEST_CLIENT_VAULT, visit.test_client, "POST", &path, &body)
}

#[test]
fn objects_are_restored_with_all_versions_into_another_vault() {
    let visit = visit_with_objects();
    for path in ["/secrets/mine", "/keys/own", "/certificates/web"] {
        let blob = visit.succeed("POST", &format!("{path}/backup"), &NULL)["value"].clone();
        let kind = path.split('/').nth(1).unwrap();
        let restored = restore_elsewhere(&visit, kind, &blob);
        assert_eq!(restored.status.as_u16(), 200, "{path}: {}", reply_json(&restored));
        assert!(reply_json(&restored).get("value").is_none(), "no secret value");
        let texts = ["", "/versions"].map(|suffix| {
            let path = format!("{path}{suffix}");
            let here = visit.succeed("GET", &path, &NULL).to_string();
            let there =
                visit.send_request_to_vault(TEST_CLIENT_VAULT, visit.test_client, "GET", &path, "");
            (here.replace(VAULT, TEST_CLIENT_VAULT), reply_json(&there).to_string())
        });
        for (here, there) in texts {
            assert_eq!(here, there);
        }
        let second_restore = restore_elsewhere(&visit, kind, &blob);
        let (status, error) = (second_restore.status.as_u16(), reply_json(&second_restore));
        assert_eq!((status, &error["error"]["code"]), (409, &json!("Conflict")), "{path}");
        // Deletion makes the name no more available.
        visit.succeed("DELETE", path, &NULL);
        let body = json!({ "value": blob });
        let conflict = expected_error(409, "Conflict", "ObjectIsDeletedButRecoverable");
        assert_eq!(visit.fail("POST", &format!("/{kind}/restore"), &body), conflict);
        let name = path.rsplit('/').next().unwrap();
        visit.ask("DELETE", &format!("/deleted{kind}/{name}"), &NULL);
        visit.succeed("POST", &format!("/{kind}/restore"), &body);
        visit.succeed("GET", path, &NULL);
    }
}

#[test]
fn changed_and_foreign_backups_are_rejected() {
    let visit = visit_with_objects();
    let blob = visit.succeed("POST", "/secrets/mine/backup", &NULL)["value"].clone();
    let text = blob.as_str().unwrap();
    assert!(!text.contains("two"));
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
    assert!(!bytes.windows(3).any(|window| window == b"two"), "the backup is encrypted");
    let bad = expected_error(400, "BadParameter", "");
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let body = json!({ "value": URL_SAFE_NO_PAD.encode(changed) });
        assert_eq!(visit.fail("POST", "/secrets/restore", &body), bad, "byte {at}");
    }
    for body in [json!({}), json!({ "value": "" }), json!({ "value": "AAAA" })] {
        assert_eq!(visit.fail("POST", "/secrets/restore", &body), bad, "{body}");
    }
    let body = json!({ "value": blob });
    assert_eq!(visit.fail("POST", "/keys/restore", &body), bad, "of another kind");
    let vault = platform_vault(&visit);
    let in_region = |region: &str| EmulatedVault { location: region.to_owned(), ..vault.clone() };
    let in_subscription = |id: &str| EmulatedVault {
        resource_id: format!("/subscriptions/{id}/resourceGroups/g").parse().unwrap(),
        ..vault.clone()
    };
    let cases = [
        (in_region("westus3"), true),
        (in_region("West US"), true),
        (in_region("westeurope"), false),
        (in_region("japaneast"), false),
        (in_subscription("SUB"), true),
        (in_subscription("other"), false),
    ];
    for (vault, expected) in cases {
        let opened = open(&vault, KeyVaultObjectKind::Secret, bytes.clone());
        assert_eq!(opened.is_some(), expected, "{} {}", vault.location, vault.resource_id.as_str());
    }
}

fn platform_vault(visit: &KeyVaultFixture) -> EmulatedVault {
    let vaults = &visit.probe.engine.state().azure.vaults;
    vaults.vault_at_host("platform-kv.vault.azure.net").unwrap().clone()
}

#[test]
fn objects_of_certificates_and_missing_objects_have_no_backup() {
    let visit = visit_with_objects();
    let managed = expected_error(403, "Forbidden", "ObjectIsManaged");
    for path in ["/secrets/web/backup", "/keys/web/backup"] {
        assert_eq!(visit.fail("POST", path, &NULL), managed);
    }
    let missing = expected_error(404, "CertificateNotFound", "");
    assert_eq!(visit.fail("POST", "/certificates/absent/backup", &NULL), missing);
    let old = "/certificates/web/backup?api-version=2016-10-01";
    assert_eq!(visit.fail("POST", old, &NULL), expected_error(400, "BadParameter", ""));
}

#[test]
fn name_of_a_waiting_certificate_is_taken_for_secrets_and_keys() {
    let visit = visit_with_objects();
    let blobs = ["secrets/mine", "keys/own"].map(|path| {
        let blob = visit.succeed("POST", &format!("/{path}/backup"), &NULL)["value"].clone();
        visit.succeed("DELETE", &format!("/{path}"), &NULL);
        visit.ask("DELETE", &format!("/deleted{path}"), &NULL);
        (path, blob)
    });
    for (path, blob) in blobs {
        let (kind, name) = path.split_once('/').unwrap();
        let policy =
            json!({ "issuer": { "name": "Unknown" }, "x509_props": { "subject": "CN=web" } });
        let create = format!("/certificates/{name}/create");
        visit.succeed("POST", &create, &json!({ "policy": policy }));
        let (restore, body) = (format!("/{kind}/restore"), json!({ "value": blob }));
        assert_eq!(visit.fail("POST", &restore, &body), expected_error(409, "Conflict", ""));
        visit.succeed("DELETE", &format!("/certificates/{name}"), &NULL);
        let deleted = expected_error(409, "Conflict", "ObjectIsDeletedButRecoverable");
        assert_eq!(visit.fail("POST", &restore, &body), deleted);
        visit.ask("DELETE", &format!("/deletedcertificates/{name}"), &NULL);
        visit.succeed("POST", &restore, &body);
    }
}
