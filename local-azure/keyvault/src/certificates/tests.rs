use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, VAULT, expected_error};

const NULL: Value = Value::Null;

fn create(visit: &KeyVaultFixture, name: &str) -> Value {
    let body = json!({
        "policy": {
            "issuer": { "name": "Self" },
            "key_props": { "kty": "EC" },
            "x509_props": { "subject": "CN=web" },
        },
        "tags": { "a": "b" },
    });
    visit.succeed("POST", &format!("/certificates/{name}/create"), &body);
    visit.succeed("GET", &format!("/certificates/{name}"), &NULL)
}

#[test]
fn state_and_tags_of_a_version_include_its_key_and_secret() {
    let visit = KeyVaultFixture::as_administrator();
    let certificate = create(&visit, "web");
    let path = |field: &str| certificate[field].as_str().unwrap().strip_prefix(VAULT).unwrap();
    let change = json!({ "attributes": { "enabled": false }, "tags": { "c": "d" } });
    let updated = visit.succeed("PATCH", path("id"), &change);
    assert_eq!(updated["attributes"]["enabled"], false);
    assert_eq!(updated["attributes"]["exp"], certificate["attributes"]["exp"]);
    let key = visit.succeed("GET", path("kid"), &NULL);
    assert_eq!((&key["attributes"]["enabled"], &key["tags"]), (&json!(false), &change["tags"]));
    let disabled = expected_error(403, "Forbidden", "SecretDisabled");
    assert_eq!(visit.fail("GET", path("sid"), &NULL), disabled);
    visit.succeed("PATCH", "/certificates/web", &json!({ "attributes": { "enabled": true } }));
    let secret = visit.succeed("GET", path("sid"), &NULL);
    assert_eq!(secret["tags"], change["tags"]);
    assert_eq!(
        visit.fail("PATCH", "/certificates/absent", &json!({})),
        expected_error(404, "CertificateNotFound", "")
    );
}

#[test]
fn policy_is_complete_and_keeps_the_fields_that_a_change_omits() {
    let visit = KeyVaultFixture::as_administrator();
    create(&visit, "web");
    let policy = visit.succeed("GET", "/certificates/web/policy", &NULL);
    let expected = json!({
        "id": format!("{VAULT}/certificates/web/policy"),
        "key_props": {
            "exportable": true, "kty": "EC", "key_size": 256, "crv": "P-256", "reuse_key": false,
        },
        "secret_props": { "contentType": "application/x-pkcs12" },
        "x509_props": {
            "subject": "CN=web",
            "ekus": ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"],
            "key_usage": ["digitalSignature", "keyEncipherment"],
            "validity_months": 12,
            "basic_constraints": { "ca": false },
        },
        "lifetime_actions": [{
            "trigger": { "lifetime_percentage": 80 },
            "action": { "action_type": "AutoRenew" },
        }],
        "issuer": { "name": "Self" },
        "attributes": policy["attributes"],
    });
    assert_eq!(policy, expected);
    let change = json!({
        "key_props": { "kty": "RSA" },
        "x509_props": { "validity_months": 3 },
        "issuer": { "name": "Unknown", "cert_transparency": false },
        "lifetime_actions": [{
            "trigger": { "days_before_expiry": 10 },
            "action": { "action_type": "EmailContacts" },
        }],
    });
    let changed = visit.succeed("PATCH", "/certificates/web/policy", &change);
    assert_eq!(changed["x509_props"]["subject"], "CN=web");
    assert_eq!(changed["x509_props"]["validity_months"], 3);
    assert_eq!(
        changed["key_props"],
        json!({ "exportable": true, "kty": "RSA", "key_size": 2048, "reuse_key": false })
    );
    assert_eq!(changed["lifetime_actions"], change["lifetime_actions"]);
    assert_eq!(visit.succeed("GET", "/certificates/web/policy", &NULL), changed);
    for wrong in [
        json!({ "x509_props": { "validity_months": 0 } }),
        json!({ "issuer": { "name": "Absent" } }),
        json!({ "key_props": { "kty": "oct" } }),
        json!({ "lifetime_actions": {} }),
    ] {
        let found = visit.fail("PATCH", "/certificates/web/policy", &wrong);
        assert_eq!(found, expected_error(400, "BadParameter", ""), "{wrong}");
    }
    assert_eq!(visit.succeed("GET", "/certificates/web/policy", &NULL), changed);
    assert_eq!(
        visit.fail("GET", "/certificates/absent/policy", &NULL),
        expected_error(404, "CertificateNotFound", "")
    );
}
