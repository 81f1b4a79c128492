use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, VAULT, expected_error};

const NULL: Value = Value::Null;

#[test]
fn issuers_are_set_changed_listed_and_deleted_without_their_password() {
    let visit = KeyVaultFixture::as_administrator();
    let absent = expected_error(404, "CertificateIssuerNotFound", "");
    for method in ["GET", "PATCH", "DELETE"] {
        assert_eq!(visit.fail(method, "/certificates/issuers/ca", &json!({})), absent, "{method}");
    }
    let given = json!({
        "provider": "DigiCert",
        "credentials": { "account_id": "account", "pwd": "planted" },
        "org_details": { "admin_details": [{ "first_name": "Ada", "email": "ada@example.com" }] },
    });
    let set = visit.succeed("PUT", "/certificates/issuers/Ca", &given);
    assert_eq!(set["id"], format!("{VAULT}/certificates/issuers/Ca"));
    assert_eq!(set["credentials"], json!({ "account_id": "account" }));
    assert_eq!(set["org_details"]["admin_details"], given["org_details"]["admin_details"]);
    assert_eq!(visit.succeed("GET", "/certificates/issuers/ca", &NULL), set);
    let disabled = json!({ "attributes": { "enabled": false } });
    let changed = visit.succeed("PATCH", "/certificates/issuers/CA", &disabled);
    assert_eq!(
        (&changed["provider"], &changed["attributes"]["enabled"]),
        (&json!("DigiCert"), &json!(false))
    );
    for number in 0..3 {
        let path = format!("/certificates/issuers/other-{number}");
        visit.succeed("PUT", &path, &json!({ "provider": "Test" }));
    }
    let page = visit.succeed("GET", "/certificates/issuers?maxresults=3", &NULL);
    assert_eq!(page["value"][0], json!({ "id": set["id"], "provider": "DigiCert" }));
    let next = page["nextLink"].as_str().unwrap().strip_prefix(VAULT).unwrap();
    let rest = visit.succeed("GET", next, &NULL);
    assert_eq!((rest["value"].as_array().unwrap().len(), &rest["nextLink"]), (1, &NULL));
    let policy = json!({
        "issuer": { "name": "ca" },
        "key_props": { "kty": "EC" },
        "x509_props": { "subject": "CN=a" },
    });
    let (status, record) =
        visit.ask("POST", "/certificates/web/create", &json!({ "policy": policy }));
    assert_eq!((status, &record["status"]), (202, &json!("inProgress")));
    visit.succeed("DELETE", "/certificates/issuers/ca", &NULL);
    assert_eq!(visit.fail("GET", "/certificates/issuers/ca", &NULL), absent);
    for (path, body) in [("ca", json!({})), ("a_b", given)] {
        let found = visit.fail("PUT", &format!("/certificates/issuers/{path}"), &body);
        assert_eq!(found, expected_error(400, "BadParameter", ""), "{path}");
    }
}

#[test]
fn contacts_are_replaced_and_deleted_as_a_whole() {
    let visit = KeyVaultFixture::as_administrator();
    let absent = expected_error(404, "ContactsNotFound", "");
    assert_eq!(visit.fail("GET", "/certificates/contacts", &NULL), absent);
    assert_eq!(visit.fail("DELETE", "/certificates/contacts", &NULL), absent);
    let contacts =
        json!([{ "email": "ada@example.com", "name": "Ada" }, { "email": "b@example.com" }]);
    let set = visit.succeed("PUT", "/certificates/contacts", &json!({ "contacts": contacts }));
    let expected = json!({ "id": format!("{VAULT}/certificates/contacts"), "contacts": contacts });
    assert_eq!(set, expected);
    assert_eq!(visit.succeed("GET", "/certificates/contacts", &NULL), expected);
    let nameless = json!({ "contacts": [{ "name": "Ada" }] });
    assert_eq!(
        visit.fail("PUT", "/certificates/contacts", &nameless),
        expected_error(400, "BadParameter", "")
    );
    assert_eq!(visit.succeed("DELETE", "/certificates/contacts", &NULL), expected);
    assert_eq!(visit.fail("GET", "/certificates/contacts", &NULL), absent);
}
