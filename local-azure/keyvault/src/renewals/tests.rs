use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanyard_emulator::testing::start_time;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::vault_fixture::KeyVaultFixture;

const NULL: Value = Value::Null;
const DAY: u64 = 24 * 60 * 60;

fn advance_days(visit: &KeyVaultFixture, days: u64) {
    visit.probe.clock.advance(Duration::from_secs(days * DAY));
}

fn create_certificate(visit: &KeyVaultFixture, name: &str, more: &Value) {
    let mut policy = json!({
        "issuer": { "name": "Self" },
        "key_props": { "kty": "EC" },
        "x509_props": { "subject": "CN=web", "validity_months": 2 },
    });
    for (field, value) in more.as_object().unwrap() {
        policy[field] = value.clone();
    }
    visit.succeed("POST", &format!("/certificates/{name}/create"), &json!({ "policy": policy }));
}

fn version_count(visit: &KeyVaultFixture, path: &str) -> usize {
    visit.succeed("GET", &format!("{path}/versions"), &NULL)["value"].as_array().unwrap().len()
}

fn action(trigger: Value, name: &str) -> Value {
    json!({ "lifetime_actions": [{ "trigger": trigger, "action": { "action_type": name } }] })
}

#[test]
fn self_signed_certificate_is_renewed_when_its_action_is_due() {
    let visit = KeyVaultFixture::as_administrator();
    // Two months from 21 November have 61 days.
    create_certificate(&visit, "share", &action(json!({ "lifetime_percentage": 50 }), "AutoRenew"));
    create_certificate(&visit, "days", &action(json!({ "days_before_expiry": 30 }), "AutoRenew"));
    create_certificate(
        &visit,
        "mail",
        &action(json!({ "days_before_expiry": 30 }), "EmailContacts"),
    );
    let counts = || {
        ["share", "days", "mail"]
            .map(|name| version_count(&visit, &format!("/certificates/{name}")))
    };
    advance_days(&visit, 30);
    assert_eq!(counts(), [1, 1, 1]);
    advance_days(&visit, 1);
    assert_eq!(counts(), [2, 2, 1]);
    assert_eq!(
        (version_count(&visit, "/keys/days"), version_count(&visit, "/secrets/days")),
        (2, 2)
    );
    let renewed = visit.succeed("GET", "/certificates/days", &NULL);
    let due = start_time().as_second() + 31 * 86_400;
    assert_eq!(renewed["attributes"]["created"], due);
    assert_eq!(renewed["attributes"]["nbf"], due - 600);
    let der = STANDARD.decode(renewed["cer"].as_str().unwrap()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.validity().not_before.timestamp(), due - 600);
    assert_eq!(visit.succeed("GET", "/secrets/days", &NULL)["kid"], renewed["kid"]);
}

#[test]
fn only_the_newest_due_version_is_created() {
    let visit = KeyVaultFixture::as_administrator();
    create_certificate(&visit, "web", &json!({}));
    advance_days(&visit, 3 * 365);
    // Lists renew too.
    let list = visit.succeed("GET", "/secrets", &NULL)["value"].clone();
    let item =
        list.as_array().unwrap().iter().find(|it| it["id"].as_str().unwrap().ends_with("/web"));
    let created = item.unwrap()["attributes"]["created"].as_i64().unwrap();
    let now = start_time().as_second() + 3 * 365 * 86_400;
    assert!(created <= now && created > now - 50 * 86_400, "{}", now - created);
    assert_eq!(version_count(&visit, "/certificates/web"), 2);
    assert_eq!(visit.succeed("GET", "/certificates/web", &NULL)["attributes"]["created"], created);
}

#[test]
fn disabled_and_deleted_certificates_are_not_renewed() {
    let visit = KeyVaultFixture::as_administrator();
    for name in ["disabled", "deleted"] {
        create_certificate(&visit, name, &json!({}));
    }
    visit.succeed(
        "PATCH",
        "/certificates/disabled",
        &json!({ "attributes": { "enabled": false } }),
    );
    visit.succeed("DELETE", "/certificates/deleted", &NULL);
    advance_days(&visit, 59);
    assert_eq!(version_count(&visit, "/certificates/disabled"), 1);
    visit.succeed("POST", "/deletedcertificates/deleted/recover", &NULL);
    assert_eq!(version_count(&visit, "/certificates/deleted"), 2, "renewed after the recovery");
}

#[test]
fn keys_are_rotated_by_their_policy() {
    let visit = KeyVaultFixture::as_administrator();
    let rotate = |trigger: Value| json!({ "trigger": trigger, "action": { "type": "Rotate" } });
    let cases = [
        ("after-create", json!({ "timeAfterCreate": "P30D" }), json!({ "expiryTime": "P60D" })),
        ("before-expiry", json!({ "timeBeforeExpiry": "P30D" }), json!({ "expiryTime": "P60D" })),
    ];
    for (name, trigger, attributes) in cases {
        let (path, body) = (format!("/keys/{name}"), json!({ "kty": "EC", "tags": { "a": "b" } }));
        let policy = json!({ "lifetimeActions": [rotate(trigger)], "attributes": attributes });
        visit.succeed("POST", &format!("{path}/create"), &body);
        visit.succeed("PUT", &format!("{path}/rotationpolicy"), &policy);
        // The policy sets the expiry of versions that are created after it.
        visit.succeed("POST", &format!("{path}/rotate"), &NULL);
    }
    let counts =
        || ["/keys/after-create", "/keys/before-expiry"].map(|path| version_count(&visit, path));
    advance_days(&visit, 29);
    assert_eq!(counts(), [2, 2]);
    advance_days(&visit, 1);
    assert_eq!(counts(), [3, 3]);
    let key = visit.succeed("GET", "/keys/after-create", &NULL);
    let created = start_time().as_second() + 30 * 86_400;
    assert_eq!(
        (&key["attributes"]["created"], &key["tags"]),
        (&json!(created), &json!({ "a": "b" }))
    );
    assert_eq!(key["attributes"]["exp"], created + 60 * 86_400);
    advance_days(&visit, 365);
    assert_eq!(counts(), [4, 4]);
}
