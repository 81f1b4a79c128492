use http::StatusCode;
use lanyard_emulator::testing::seeded_state::{
    SEED_TIME, issue_access_token_for, nine_identity_plan, seed_azure,
};
use lanyard_emulator::testing::{EngineFixture, reply_json};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::identity_fault::IdentityFault;
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use super::vault_fixture::{
    AUDIENCE, KeyVaultFixture, TEST_CLIENT_VAULT, VAULT, VERSION, expected_error, secret_path,
    status_and_codes,
};
use crate::secrets::MAX_VALUE_BYTES;

#[test]
fn first_request_gets_a_parseable_bearer_challenge() {
    let visit = KeyVaultFixture::new();
    let url = format!("{VAULT}/secrets/any?{VERSION}");
    let reply = visit.probe.get(Ingress::Tunnel, &url, &[]);
    assert_eq!(status_and_codes(&reply), expected_error(401, "Unauthorized", ""));
    assert_eq!(
        reply.header("www-authenticate"),
        Some(
            "Bearer authorization=\"https://login.microsoftonline.com/11111111-1111-4111-8111-111111111111\", resource=\"https://vault.azure.net\""
        )
    );
    assert!(reply_json(&reply)["error"]["message"].as_str().unwrap().starts_with("AKV10000"));
}

#[test]
fn tokens_for_another_resource_or_tenant_are_rejected_with_401() {
    let visit = KeyVaultFixture::new();
    let url = format!("{VAULT}/secrets/any?{VERSION}");
    for audience in ["https://management.azure.com/", "https://vault.azure.net/"] {
        let bearer =
            format!("Bearer {}", issue_access_token_for(&visit.probe, visit.reader, audience));
        let reply = visit.probe.get(Ingress::Tunnel, &url, &[("authorization", &bearer)]);
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{audience}");
        let message = reply_json(&reply)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("AKV10022"), "{message}");
        assert!(reply.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
    }
    let mut two_tenants = nine_identity_plan();
    two_tenants.identities.truncate(1);
    let (azure, _) = seed_azure(&two_tenants);
    let foreign = azure.registry.holders[0].client_id;
    let visit =
        KeyVaultFixture { probe: EngineFixture::new(azure), reader: foreign, test_client: foreign };
    let reply = visit.get(foreign, "/secrets/any");
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert!(reply_json(&reply)["error"]["message"].as_str().unwrap().starts_with("AKV10032"));
}

#[test]
fn node_identity_reads_only_component_credentials() {
    let visit = KeyVaultFixture::new();
    for component in Component::ALL {
        let reply = visit.get(visit.reader, &secret_path(component));
        assert_eq!(reply.status, StatusCode::OK, "{component}");
        let bundle = reply_json(&reply);
        let id = bundle["id"].as_str().unwrap();
        let version = id.strip_prefix(&format!("{VAULT}{}/", secret_path(component))).unwrap();
        assert!(version.len() == 32 && version.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert!(bundle["attributes"]["nbf"].is_i64() && bundle["attributes"]["exp"].is_i64());
        assert!(bundle["tags"]["renew_after"].is_string());
        let versioned = format!("{}/{version}", secret_path(component));
        assert_eq!(reply_json(&visit.get(visit.reader, &versioned)), bundle);
        let slashed = format!("{}/", secret_path(component));
        assert_eq!(reply_json(&visit.get(visit.reader, &slashed)), bundle);
    }
    for (vault, path) in [
        (VAULT, "/secrets"),
        (VAULT, "/secrets/unknown"),
        (TEST_CLIENT_VAULT, "/secrets/test-secret"),
        (TEST_CLIENT_VAULT, "/keys/test-certificate"),
    ] {
        let found =
            status_and_codes(&visit.send_request_to_vault(vault, visit.reader, "GET", path, ""));
        assert_eq!(found, expected_error(403, "Forbidden", "ForbiddenByRbac"), "{path}");
    }
}

#[test]
fn components_cannot_read_any_credential_secret() {
    let visit = KeyVaultFixture::new();
    for component in Component::ALL {
        let client = visit.client(component);
        for path in [secret_path(component), secret_path(Component::Disk)] {
            let reply = visit.get(client, &path);
            assert_eq!(
                status_and_codes(&reply),
                expected_error(403, "Forbidden", "ForbiddenByRbac"),
                "{component}"
            );
            let message = reply_json(&reply)["error"]["message"].as_str().unwrap().to_owned();
            let lines: Vec<_> = message.split("\r\n").collect();
            let object = visit
                .probe
                .engine
                .state()
                .azure
                .registry
                .component_identity(component)
                .unwrap()
                .object_id;
            for expected in [
                format!(
                    "Caller: appid={client};oid={object};iss=https://sts.windows.net/11111111-1111-4111-8111-111111111111/"
                ),
                "Action: 'Microsoft.KeyVault/vaults/secrets/getSecret/action'".to_owned(),
                format!(
                    "Resource: '/subscriptions/sub/resourceGroups/platform/providers/Microsoft.KeyVault/vaults/Platform-kv{path}'"
                ),
                "Vault: Platform-kv;location=eastus".to_owned(),
            ] {
                assert!(lines.contains(&expected.as_str()), "{expected}\n{message}");
            }
            assert!(lines.iter().any(|line| line.starts_with("Assignment: (not found)")));
        }
    }
}

#[test]
fn encryption_key_is_readable_only_by_the_kms_component() {
    let visit = KeyVaultFixture::new();
    let kms = "https://demo-kms.vault.azure.net";
    for component in Component::ALL {
        let reply =
            visit.send_request_to_vault(kms, visit.client(component), "GET", "/keys/etcd", "");
        if component == Component::Kms {
            let key = reply_json(&reply)["key"].clone();
            assert_eq!(key["kty"], "RSA");
            assert!(key["kid"].as_str().unwrap().starts_with(&format!("{kms}/keys/etcd/")));
            assert_eq!(key["e"], "AQAB");
            assert_eq!(key["n"].as_str().unwrap().len(), 342);
            assert!(key.get("d").is_none());
        } else {
            assert_eq!(
                status_and_codes(&reply),
                expected_error(403, "Forbidden", "ForbiddenByRbac"),
                "{component}"
            );
        }
    }
}

#[test]
fn missing_secret_is_reported_only_to_authorized_callers() {
    let visit = KeyVaultFixture::new();
    visit.apply_fault(IdentityFault::MissingSecret, Component::Ingress);
    let path = secret_path(Component::Ingress);
    assert_eq!(
        status_and_codes(&visit.get(visit.reader, &path)),
        expected_error(404, "SecretNotFound", "")
    );
    let stranger = visit.client(Component::Disk);
    assert_eq!(visit.get(stranger, &path).status, StatusCode::FORBIDDEN);
}

#[test]
fn revoking_one_secret_permission_leaves_the_other_eight() {
    let visit = KeyVaultFixture::new();
    visit.apply_fault(IdentityFault::VaultRole, Component::Network);
    for component in Component::ALL {
        let status = visit.get(visit.reader, &secret_path(component)).status;
        let lost = component == Component::Network;
        assert_eq!(status == StatusCode::FORBIDDEN, lost, "{component}");
    }
}

#[test]
fn objects_show_empty_tags_if_a_request_sent_them() {
    let visit = KeyVaultFixture::as_administrator();
    let policy = json!({ "issuer": { "name": "Self" }, "x509_props": { "subject": "CN=web" } });
    let csr_policy =
        json!({ "issuer": { "name": "Unknown" }, "x509_props": { "subject": "CN=w" } });
    let kinds = [
        ("POST", "/keys", "/create", json!({ "kty": "EC" })),
        ("PUT", "/secrets", "", json!({ "value": "one" })),
        ("POST", "/certificates", "/create", json!({ "policy": policy })),
        ("POST", "/certificates", "/create", json!({ "policy": csr_policy })),
    ];
    let tags_of = |path: &str| visit.succeed("GET", path, &Value::Null).get("tags").cloned();
    let empty = Some(json!({}));
    for (at, (method, collection, action, body)) in kinds.into_iter().enumerate() {
        let untagged = format!("{collection}/untagged-{at}");
        visit.succeed(method, &format!("{untagged}{action}"), &body);
        assert_eq!(tags_of(&untagged), None, "{untagged}");
        visit.succeed("PATCH", &untagged, &json!({ "tags": {} }));
        assert_eq!(tags_of(&untagged), empty, "{untagged}");
        visit.succeed("PATCH", &untagged, &json!({}));
        assert_eq!(tags_of(&untagged), empty, "{untagged}");

        let tagged = format!("{collection}/tagged-{at}");
        let mut body = body;
        body["tags"] = json!({});
        visit.succeed(method, &format!("{tagged}{action}"), &body);
        assert_eq!(tags_of(&tagged), empty, "{tagged}");
        let list = visit.succeed("GET", collection, &Value::Null);
        for item in list["value"].as_array().unwrap() {
            if item.to_string().contains("tagged-") {
                assert_eq!(item["tags"], json!({}), "{item}");
            }
        }
    }
    visit.succeed("POST", "/keys/tagged-0/rotate", &Value::Null);
    assert_eq!(tags_of("/keys/tagged-0"), empty);
}

#[test]
fn secret_lifecycle_from_set_to_purge() {
    let visit = KeyVaultFixture::as_administrator();
    let ask = |method: &str, path: &str, given: &str| {
        visit.send_request(visit.test_client, method, path, given)
    };
    let first = ask(
        "PUT",
        "/secrets/Mine",
        r#"{"value":"one","contentType":"text/plain","attributes":{"nbf":1,"exp":2},"tags":{"a":"b"}}"#,
    );
    assert_eq!(first.status, StatusCode::OK);
    let first = reply_json(&first);
    assert_eq!((&first["value"], &first["contentType"]), (&json!("one"), &json!("text/plain")));
    assert_eq!(first["attributes"]["recoverableDays"], 90);
    let id = first["id"].as_str().unwrap().to_owned();
    ask("PUT", "/secrets/mine", r#"{"value":"two"}"#);
    assert_eq!(reply_json(&ask("GET", "/secrets/MINE", ""))["value"], "two");
    assert_eq!(reply_json(&ask("GET", id.strip_prefix(VAULT).unwrap(), ""))["value"], "one");
    let versions = reply_json(&ask("GET", "/secrets/mine/versions", ""));
    assert_eq!(versions["value"].as_array().unwrap().len(), 2);
    assert!(versions["value"][0].get("value").is_none(), "a list shows no value");

    let old = id.strip_prefix(VAULT).unwrap();
    let patched = reply_json(&ask("PATCH", old, r#"{"attributes":{"enabled":false},"tags":{}}"#));
    assert_eq!(patched["attributes"]["enabled"], false);
    assert!(patched.get("value").is_none());
    assert_eq!(patched["tags"], json!({}));
    assert_eq!(
        status_and_codes(&ask("GET", old, "")),
        expected_error(403, "Forbidden", "SecretDisabled")
    );

    let deleted = reply_json(&ask("DELETE", "/secrets/mine", ""));
    assert!(deleted.get("value").is_none() && deleted.get("id").is_some());
    assert_eq!(deleted["recoveryId"], format!("{VAULT}/deletedsecrets/Mine"));
    assert!(deleted["scheduledPurgeDate"].as_i64() > deleted["deletedDate"].as_i64());
    assert_eq!(
        status_and_codes(&ask("GET", "/secrets/mine", "")),
        expected_error(404, "SecretNotFound", "")
    );
    let taken = ask("PUT", "/secrets/mine", r#"{"value":"x"}"#);
    assert_eq!(
        status_and_codes(&taken),
        expected_error(409, "Conflict", "ObjectIsDeletedButRecoverable")
    );
    assert_eq!(reply_json(&ask("GET", "/deletedsecrets/mine", "")), deleted);
    let all_deleted = reply_json(&ask("GET", "/deletedsecrets", ""));
    let [listed] = all_deleted["value"].as_array().unwrap().as_slice() else { panic!("one") };
    assert!(listed.get("value").is_none());
    assert_eq!(listed["recoveryId"], deleted["recoveryId"]);
    let recovered = ask("POST", "/deletedsecrets/mine/recover", "");
    assert_eq!(recovered.status, StatusCode::OK);
    assert!(reply_json(&recovered).get("value").is_none());
    assert_eq!(reply_json(&ask("GET", "/secrets/mine", ""))["value"], "two");
    ask("DELETE", "/secrets/mine", "");
    assert_eq!(ask("DELETE", "/deletedsecrets/mine", "").status, StatusCode::NO_CONTENT);
    assert_eq!(
        status_and_codes(&ask("DELETE", "/deletedsecrets/mine", "")),
        expected_error(404, "SecretNotFound", "")
    );
    assert_eq!(ask("PUT", "/secrets/mine", r#"{"value":"three"}"#).status, StatusCode::OK);
}

#[test]
fn secret_has_the_fields_that_its_version_and_the_api_have() {
    let visit = KeyVaultFixture::as_administrator();
    let path = "/secrets/Mine?api-version=2025-07-01";
    let minimal = visit.succeed("PUT", path, &json!({ "value": "one" }));
    let body = json!({
        "value": "two",
        "contentType": "text/plain",
        "attributes": { "enabled": true, "nbf": 1, "exp": 2 },
        "tags": { "a": "b" },
    });
    let complete = visit.succeed("PUT", path, &body);
    let now = SEED_TIME.as_second();
    let attributes = json!({
        "enabled": true,
        "created": now,
        "updated": now,
        "recoveryLevel": "Recoverable+Purgeable",
        "recoverableDays": 90,
    });
    assert_eq!(minimal, json!({ "value": "one", "id": minimal["id"], "attributes": attributes }));
    let mut limited = attributes;
    limited["nbf"] = json!(1);
    limited["exp"] = json!(2);
    let first = minimal["id"].as_str().unwrap().rsplit_once('/').unwrap().1;
    let expected = json!({
        "value": "two",
        "contentType": "text/plain",
        "id": complete["id"],
        "attributes": limited,
        "tags": { "a": "b" },
        "previousVersion": first,
    });
    assert_eq!(complete, expected);
    assert_eq!(visit.succeed("GET", path, &json!(null)), expected);
    let older_api = visit.succeed("GET", "/secrets/mine", &json!(null));
    assert!(older_api.get("previousVersion").is_none());
}

#[test]
fn malformed_requests_are_rejected_without_echoing_values() {
    let visit = KeyVaultFixture::as_administrator();
    let long = format!(r#"{{"value":"{}"}}"#, "x".repeat(MAX_VALUE_BYTES + 1));
    let cases = [
        ("PUT", "/secrets/a_b", r#"{"value":"planted"}"#),
        ("PUT", "/secrets/a", r#"{"contentType":"planted"}"#),
        ("PUT", "/secrets/a", r#"{"value":17,"x":"planted"}"#),
        ("PUT", "/secrets/a", "planted"),
        ("PUT", "/secrets/a", r#"{"value":"planted","attributes":{"exp":99999999999999}}"#),
        ("PUT", "/secrets/a", long.as_str()),
        ("GET", "/secrets?maxresults=26", ""),
        ("GET", "/secrets?maxresults=0", ""),
        ("GET", "/secrets?$skiptoken=%2A", ""),
    ];
    for (method, path, given) in cases {
        let reply = visit.send_request(visit.test_client, method, path, given);
        assert_eq!(
            status_and_codes(&reply),
            expected_error(400, "BadParameter", ""),
            "{method} {path} {given:.40}"
        );
        assert!(!String::from_utf8_lossy(&reply.body).contains("planted"), "{path}");
    }
    let exact = format!(r#"{{"value":"{}"}}"#, "x".repeat(MAX_VALUE_BYTES));
    assert_eq!(
        visit.send_request(visit.test_client, "PUT", "/secrets/a", &exact).status,
        StatusCode::OK
    );
    let bearer =
        format!("Bearer {}", issue_access_token_for(&visit.probe, visit.test_client, AUDIENCE));
    let url = format!("{VAULT}/secrets/a");
    let unversioned = visit.probe.get(Ingress::Tunnel, &url, &[("authorization", &bearer)]);
    assert_eq!(status_and_codes(&unversioned), expected_error(400, "BadParameter", ""));
}

#[test]
fn list_pages_link_to_the_next_page() {
    let visit = KeyVaultFixture::as_administrator();
    let (mut names, mut next) = (Vec::new(), "/secrets?maxresults=4".to_owned());
    loop {
        let page = reply_json(&visit.get(visit.test_client, &next));
        for item in page["value"].as_array().unwrap() {
            assert!(item.get("value").is_none());
            names.push(item["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned());
        }
        let Some(link) = page["nextLink"].as_str() else { break };
        next = link.strip_prefix(VAULT).unwrap().replace(&format!("{VERSION}&"), "");
    }
    assert_eq!(names.len(), 9, "{names:?}");
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(names, sorted);
}

#[test]
fn certificate_has_a_key_and_a_secret_of_the_same_name() {
    let visit = KeyVaultFixture::new();
    let name = "test-certificate";
    let read = |path: &str| {
        reply_json(&visit.send_request_to_vault(
            TEST_CLIENT_VAULT,
            visit.test_client,
            "GET",
            path,
            "",
        ))
    };
    let certificate = read(&format!("/certificates/{name}/"));
    let at = |field: &str| certificate[field].as_str().unwrap().to_owned();
    let secret = read(at("sid").strip_prefix(TEST_CLIENT_VAULT).unwrap());
    let key = read(at("kid").strip_prefix(TEST_CLIENT_VAULT).unwrap());
    assert_eq!(secret["contentType"], "application/x-pkcs12");
    assert_eq!(secret["kid"], certificate["kid"]);
    assert_eq!((&secret["managed"], &key["managed"]), (&json!(true), &json!(true)));
    assert_eq!(key["key"]["kid"], certificate["kid"]);
    assert!(!at("cer").is_empty() && !at("x5t").is_empty());
    assert_eq!(certificate["policy"]["secret_props"]["contentType"], "application/x-pkcs12");
    let pem = read("/secrets/test-certificate-pem");
    assert_eq!(pem["contentType"], "application/x-pem-file");
    assert!(pem["value"].as_str().unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    let administrator = KeyVaultFixture::as_administrator();
    let put = administrator.send_request_to_vault(
        TEST_CLIENT_VAULT,
        administrator.test_client,
        "PUT",
        &format!("/secrets/{name}"),
        r#"{"value":"x"}"#,
    );
    assert_eq!(status_and_codes(&put), expected_error(403, "Forbidden", "ObjectIsManaged"));
}

#[test]
fn test_client_reads_its_secret_but_not_the_withheld_one() {
    let visit = KeyVaultFixture::new();
    let ask = |path: &str| {
        visit.send_request_to_vault(TEST_CLIENT_VAULT, visit.test_client, "GET", path, "")
    };
    assert_eq!(reply_json(&ask("/secrets/test-secret"))["value"], "for test clients");
    let found = status_and_codes(&ask("/secrets/withheld-secret"));
    assert_eq!(found, expected_error(403, "Forbidden", "ForbiddenByRbac"));
}

fn platform_vault(state: &lanyard_emulator_core::engine::State) -> EmulatedVault {
    state.azure.vaults.vault_at_host("platform-kv.vault.azure.net").unwrap().clone()
}

#[test]
fn access_policies_and_roles_exclude_each_other() {
    let visit = KeyVaultFixture::new();
    let component = visit.client(Component::Disk);
    {
        let state = &mut *visit.probe.engine.state();
        let object = state.azure.registry.component_identity(Component::Disk).unwrap().object_id;
        let mut vault = platform_vault(state);
        vault.settings.rbac = false;
        let policy = json!({
            "tenantId": "11111111-1111-4111-8111-111111111111",
            "objectId": object,
            "permissions": { "secrets": ["Get"], "keys": ["all"] },
        });
        vault.settings.access_policies.push(serde_json::from_value(policy).unwrap());
        state.azure.vaults.insert(vault);
    }
    let path = secret_path(Component::File);
    assert_eq!(visit.get(component, &path).status, StatusCode::OK);
    assert_eq!(
        status_and_codes(&visit.get(component, "/secrets")),
        expected_error(403, "Forbidden", "AccessDenied")
    );
    assert_eq!(visit.get(component, "/keys").status, StatusCode::OK);
    assert_eq!(
        status_and_codes(&visit.get(visit.reader, &path)),
        expected_error(403, "Forbidden", "AccessDenied")
    );
    {
        let state = &mut *visit.probe.engine.state();
        let mut vault = platform_vault(state);
        vault.settings.rbac = true;
        state.azure.vaults.insert(vault);
    }
    assert_eq!(
        status_and_codes(&visit.get(component, &path)),
        expected_error(403, "Forbidden", "ForbiddenByRbac")
    );
    assert_eq!(visit.get(visit.reader, &path).status, StatusCode::OK);
}

#[test]
fn unknown_vaults_objects_and_operations_are_named() {
    let visit = KeyVaultFixture::as_administrator();
    let other = "https://other.vault.azure.net";
    let reply = visit.send_request_to_vault(other, visit.test_client, "GET", "/secrets/a", "");
    assert_eq!(status_and_codes(&reply), expected_error(404, "VaultNotFound", ""));
    let reply = visit.send_request(visit.test_client, "POST", "/rng", r#"{"count":8}"#);
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
    let (status, body) = visit.ask("GET", "/secrets/a/0123", &json!(null));
    assert_eq!(status, 404);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("A secret with (name/id) a/0123 was not found in this key vault."));
}

#[test]
fn request_log_records_codes_without_values() {
    let visit = KeyVaultFixture::as_administrator();
    visit.send_request(visit.test_client, "PUT", "/secrets/a", r#"{"value":"planted"}"#);
    visit.get(visit.reader, "/secrets/a");
    let request_log = visit.probe.engine.request_log();
    let entries: Vec<_> = request_log.entries_after(0).collect();
    let text = serde_json::to_string(&entries).unwrap();
    assert!(text.contains("ForbiddenByRbac"), "{text}");
    assert!(!text.contains("planted"), "{text}");
}
