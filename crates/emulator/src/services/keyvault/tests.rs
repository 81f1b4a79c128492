use http::StatusCode;
use lanyard_vocabulary::{ClientId, Component};
use serde_json::{Value, json};

use super::*;
use crate::drill::{Drill, Fault, apply_drill};
use crate::engine::Door;
use crate::request::Reply;
use crate::seed::tests::{NOW, nine, plan, seeded, token};
use crate::testing::{Probe, body};

const VAULT: &str = "https://platform-kv.vault.azure.net";
/// The vault of the guests.
const GUEST_VAULT: &str = "https://guests-demo-abcde.vault.azure.net";
const AUDIENCE: &str = "https://vault.azure.net";
const VERSION: &str = "api-version=7.4";

/// A world, and the way to ask its vault as somebody.
struct Visit {
    probe: Probe,
    reader: ClientId,
    guest: ClientId,
}

impl Visit {
    fn new() -> Self {
        let (world, _) = nine();
        let guest = world.roster.guests.clone().unwrap().certificate_client;
        let reader = plan().vault_reader_client_id;
        Self { probe: Probe::new(world), reader, guest }
    }

    /// A visit by a principal that may do everything in the vault.
    fn as_administrator() -> Self {
        let visit = Self::new();
        {
            let state = &mut *visit.probe.engine.state();
            let object = state.world.directory.by_client(visit.guest).unwrap().object_id;
            let vaults = ["platform-kv.vault.azure.net", "guests-demo-abcde.vault.azure.net"];
            let scopes =
                vaults.map(|host| state.world.vaults.at_host(host).unwrap().resource_id.clone());
            let assignments = scopes.map(|scope| crate::authorization::RoleAssignment {
                name: state.ids.uuid(),
                scope,
                role: lanyard_vocabulary::RoleDefinitionId(uuid::uuid!(
                    "00482a5a-887f-4fb3-b363-3b7fe8e74483"
                )),
                principal_id: object,
                principal_type: "ServicePrincipal".to_owned(),
                description: None,
                created_on: NOW,
            });
            for assignment in assignments {
                state.world.authorization.assign(assignment).unwrap();
            }
        }
        visit
    }

    fn ask(&self, who: ClientId, method: &str, path: &str, given: &str) -> Reply {
        self.ask_at(VAULT, who, method, path, given)
    }

    fn ask_at(&self, vault: &str, who: ClientId, method: &str, path: &str, given: &str) -> Reply {
        let bearer = format!("Bearer {}", token(&self.probe, who, AUDIENCE));
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = format!("{vault}{path}{separator}{VERSION}");
        let headers = [("authorization", bearer.as_str())];
        self.probe.ask(Door::Tunnel, &method.parse().unwrap(), &url, &headers, given)
    }

    fn get(&self, who: ClientId, path: &str) -> Reply {
        self.ask(who, "GET", path, "")
    }

    fn client(&self, component: Component) -> ClientId {
        self.probe.engine.state().world.roster.holder(component).unwrap().client_id
    }

    fn drill(&self, fault: Fault, component: Component) {
        let state = &mut *self.probe.engine.state();
        apply_drill(&mut state.world, Drill { fault, component }, &mut state.ids, NOW).unwrap();
    }
}

fn path_of(component: Component) -> String {
    format!("/secrets/demo-{}", component.facts().secret_suffix)
}

fn codes(reply: &Reply) -> (u16, String, String) {
    let error = &body(reply)["error"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (reply.status.as_u16(), text(&error["code"]), text(&error["innererror"]["code"]))
}

fn refused(status: u16, code: &str, inner: &str) -> (u16, String, String) {
    (status, code.to_owned(), inner.to_owned())
}

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    let found = reply.headers.iter().find(|(known, _)| known.as_str() == name);
    found.map(|(_, value)| value.to_str().unwrap())
}

#[test]
fn the_first_request_is_challenged_in_the_form_that_clients_parse() {
    let visit = Visit::new();
    let url = format!("{VAULT}/secrets/any?{VERSION}");
    let reply = visit.probe.get(Door::Tunnel, &url, &[]);
    assert_eq!(codes(&reply), refused(401, "Unauthorized", ""));
    assert_eq!(
        header(&reply, "www-authenticate"),
        Some(
            "Bearer authorization=\"https://login.microsoftonline.com/11111111-1111-4111-8111-111111111111\", resource=\"https://vault.azure.net\""
        )
    );
    assert!(body(&reply)["error"]["message"].as_str().unwrap().starts_with("AKV10000"));
}

#[test]
fn tokens_for_another_resource_or_from_another_tenant_are_refused_with_401() {
    let visit = Visit::new();
    let url = format!("{VAULT}/secrets/any?{VERSION}");
    for audience in ["https://management.azure.com/", "https://vault.azure.net/"] {
        let bearer = format!("Bearer {}", token(&visit.probe, visit.reader, audience));
        let reply = visit.probe.get(Door::Tunnel, &url, &[("authorization", &bearer)]);
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{audience}");
        let message = body(&reply)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("AKV10022"), "{message}");
        assert!(header(&reply, "www-authenticate").unwrap().contains("error=\"invalid_token\""));
    }
    let mut two_tenants = plan();
    two_tenants.identities.truncate(1);
    let (world, _) = seeded(&two_tenants);
    let foreign = world.roster.holders[0].client_id;
    let visit = Visit { probe: Probe::new(world), reader: foreign, guest: foreign };
    let reply = visit.get(foreign, "/secrets/any");
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    assert!(body(&reply)["error"]["message"].as_str().unwrap().starts_with("AKV10032"));
}

#[test]
fn the_node_reads_every_credential_and_nothing_else() {
    let visit = Visit::new();
    for component in Component::ALL {
        let reply = visit.get(visit.reader, &path_of(component));
        assert_eq!(reply.status, StatusCode::OK, "{component}");
        let bundle = body(&reply);
        let id = bundle["id"].as_str().unwrap();
        let version = id.strip_prefix(&format!("{VAULT}{}/", path_of(component))).unwrap();
        assert!(version.len() == 32 && version.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert!(bundle["attributes"]["nbf"].is_i64() && bundle["attributes"]["exp"].is_i64());
        assert!(bundle["tags"]["renew_after"].is_string());
        let versioned = format!("{}/{version}", path_of(component));
        assert_eq!(body(&visit.get(visit.reader, &versioned)), bundle);
        let slashed = format!("{}/", path_of(component));
        assert_eq!(body(&visit.get(visit.reader, &slashed)), bundle);
    }
    for (vault, path) in [
        (VAULT, "/secrets"),
        (VAULT, "/secrets/unknown"),
        (GUEST_VAULT, "/secrets/guest-secret"),
        (GUEST_VAULT, "/keys/guest-certificate"),
    ] {
        let found = codes(&visit.ask_at(vault, visit.reader, "GET", path, ""));
        assert_eq!(found, refused(403, "Forbidden", "ForbiddenByRbac"), "{path}");
    }
}

#[test]
fn no_component_reads_a_secret_not_even_its_own() {
    let visit = Visit::new();
    for component in Component::ALL {
        let client = visit.client(component);
        for path in [path_of(component), path_of(Component::Disk)] {
            let reply = visit.get(client, &path);
            assert_eq!(codes(&reply), refused(403, "Forbidden", "ForbiddenByRbac"), "{component}");
            let message = body(&reply)["error"]["message"].as_str().unwrap().to_owned();
            let lines: Vec<_> = message.split("\r\n").collect();
            let object =
                visit.probe.engine.state().world.roster.holder(component).unwrap().object_id;
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
fn the_encryption_key_is_read_by_the_component_that_encrypts_only() {
    let visit = Visit::new();
    let kms = "https://demo-kms.vault.azure.net";
    for component in Component::ALL {
        let reply = visit.ask_at(kms, visit.client(component), "GET", "/keys/etcd", "");
        if component == Component::Kms {
            let key = body(&reply)["key"].clone();
            assert_eq!(key["kty"], "RSA");
            assert!(key["kid"].as_str().unwrap().starts_with(&format!("{kms}/keys/etcd/")));
            assert_eq!(key["e"], "AQAB");
            assert_eq!(key["n"].as_str().unwrap().len(), 342);
            assert!(key.get("d").is_none());
        } else {
            assert_eq!(codes(&reply), refused(403, "Forbidden", "ForbiddenByRbac"), "{component}");
        }
    }
}

#[test]
fn a_missing_secret_is_found_out_only_by_who_may_read_it() {
    let visit = Visit::new();
    visit.drill(Fault::MissingSecret, Component::Ingress);
    let path = path_of(Component::Ingress);
    assert_eq!(codes(&visit.get(visit.reader, &path)), refused(404, "SecretNotFound", ""));
    let stranger = visit.client(Component::Disk);
    assert_eq!(visit.get(stranger, &path).status, StatusCode::FORBIDDEN);
}

#[test]
fn a_lost_right_on_one_secret_leaves_the_other_eight() {
    let visit = Visit::new();
    visit.drill(Fault::VaultRole, Component::Network);
    for component in Component::ALL {
        let status = visit.get(visit.reader, &path_of(component)).status;
        let lost = component == Component::Network;
        assert_eq!(status == StatusCode::FORBIDDEN, lost, "{component}");
    }
}

#[test]
fn a_secret_lives_from_set_to_purge() {
    let visit = Visit::as_administrator();
    let ask = |method: &str, path: &str, given: &str| visit.ask(visit.guest, method, path, given);
    let first = ask(
        "PUT",
        "/secrets/Mine",
        r#"{"value":"one","contentType":"text/plain","attributes":{"nbf":1,"exp":2},"tags":{"a":"b"}}"#,
    );
    assert_eq!(first.status, StatusCode::OK);
    let first = body(&first);
    assert_eq!((&first["value"], &first["contentType"]), (&json!("one"), &json!("text/plain")));
    assert_eq!(first["attributes"]["recoverableDays"], 90);
    let id = first["id"].as_str().unwrap().to_owned();
    ask("PUT", "/secrets/mine", r#"{"value":"two"}"#);
    assert_eq!(body(&ask("GET", "/secrets/MINE", ""))["value"], "two");
    assert_eq!(body(&ask("GET", id.strip_prefix(VAULT).unwrap(), ""))["value"], "one");
    let versions = body(&ask("GET", "/secrets/mine/versions", ""));
    assert_eq!(versions["value"].as_array().unwrap().len(), 2);
    assert!(versions["value"][0].get("value").is_none(), "a list shows no value");

    let old = id.strip_prefix(VAULT).unwrap();
    let patched = body(&ask("PATCH", old, r#"{"attributes":{"enabled":false},"tags":{}}"#));
    assert_eq!(patched["attributes"]["enabled"], false);
    assert!(patched.get("value").is_none() && patched.get("tags").is_none());
    assert_eq!(codes(&ask("GET", old, "")), refused(403, "Forbidden", "SecretDisabled"));

    let deleted = body(&ask("DELETE", "/secrets/mine", ""));
    assert_eq!(deleted["recoveryId"], format!("{VAULT}/deletedsecrets/Mine"));
    assert!(deleted["scheduledPurgeDate"].as_i64() > deleted["deletedDate"].as_i64());
    assert_eq!(codes(&ask("GET", "/secrets/mine", "")), refused(404, "SecretNotFound", ""));
    let taken = ask("PUT", "/secrets/mine", r#"{"value":"x"}"#);
    assert_eq!(codes(&taken), refused(409, "Conflict", "ObjectIsDeletedButRecoverable"));
    assert_eq!(ask("GET", "/deletedsecrets/mine", "").status, StatusCode::OK);
    assert_eq!(body(&ask("GET", "/deletedsecrets", ""))["value"].as_array().unwrap().len(), 1);
    assert_eq!(ask("POST", "/deletedsecrets/mine/recover", "").status, StatusCode::OK);
    assert_eq!(body(&ask("GET", "/secrets/mine", ""))["value"], "two");
    ask("DELETE", "/secrets/mine", "");
    assert_eq!(ask("DELETE", "/deletedsecrets/mine", "").status, StatusCode::NO_CONTENT);
    assert_eq!(
        codes(&ask("DELETE", "/deletedsecrets/mine", "")),
        refused(404, "SecretNotFound", "")
    );
    assert_eq!(ask("PUT", "/secrets/mine", r#"{"value":"three"}"#).status, StatusCode::OK);
}

#[test]
fn requests_that_are_not_well_formed_are_refused_without_repeating_a_value() {
    let visit = Visit::as_administrator();
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
        let reply = visit.ask(visit.guest, method, path, given);
        assert_eq!(codes(&reply), refused(400, "BadParameter", ""), "{method} {path} {given:.40}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("planted"), "{path}");
    }
    let exact = format!(r#"{{"value":"{}"}}"#, "x".repeat(MAX_VALUE_BYTES));
    assert_eq!(visit.ask(visit.guest, "PUT", "/secrets/a", &exact).status, StatusCode::OK);
    let bearer = format!("Bearer {}", token(&visit.probe, visit.guest, AUDIENCE));
    let url = format!("{VAULT}/secrets/a");
    let unversioned = visit.probe.get(Door::Tunnel, &url, &[("authorization", &bearer)]);
    assert_eq!(codes(&unversioned), refused(400, "BadParameter", ""));
}

#[test]
fn lists_come_in_pages_that_lead_to_each_other() {
    let visit = Visit::as_administrator();
    let (mut names, mut next) = (Vec::new(), "/secrets?maxresults=4".to_owned());
    loop {
        let page = body(&visit.get(visit.guest, &next));
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
fn a_certificate_has_its_key_and_its_secret_beside_it() {
    let visit = Visit::new();
    let name = "guest-certificate";
    let read = |path: &str| body(&visit.ask_at(GUEST_VAULT, visit.guest, "GET", path, ""));
    let certificate = read(&format!("/certificates/{name}/"));
    let at = |field: &str| certificate[field].as_str().unwrap().to_owned();
    let secret = read(at("sid").strip_prefix(GUEST_VAULT).unwrap());
    let key = read(at("kid").strip_prefix(GUEST_VAULT).unwrap());
    assert_eq!(secret["contentType"], "application/x-pkcs12");
    assert_eq!(secret["kid"], certificate["kid"]);
    assert_eq!((&secret["managed"], &key["managed"]), (&json!(true), &json!(true)));
    assert_eq!(key["key"]["kid"], certificate["kid"]);
    assert!(!at("cer").is_empty() && !at("x5t").is_empty());
    assert_eq!(certificate["policy"]["secret_props"]["contentType"], "application/x-pkcs12");
    let pem = read("/secrets/guest-certificate-pem");
    assert_eq!(pem["contentType"], "application/x-pem-file");
    assert!(pem["value"].as_str().unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    let administrator = Visit::as_administrator();
    let put = administrator.ask_at(
        GUEST_VAULT,
        administrator.guest,
        "PUT",
        &format!("/secrets/{name}"),
        r#"{"value":"x"}"#,
    );
    assert_eq!(codes(&put), refused(403, "Forbidden", "ObjectIsManaged"));
}

#[test]
fn a_guest_reads_the_secret_of_the_guests_and_not_the_one_beside_it() {
    let visit = Visit::new();
    let ask = |path: &str| visit.ask_at(GUEST_VAULT, visit.guest, "GET", path, "");
    assert_eq!(body(&ask("/secrets/guest-secret"))["value"], "for guests");
    let found = codes(&ask("/secrets/withheld-secret"));
    assert_eq!(found, refused(403, "Forbidden", "ForbiddenByRbac"));
}

#[test]
fn with_access_policies_roles_do_not_count_and_the_other_way_round() {
    let visit = Visit::new();
    let component = visit.client(Component::Disk);
    {
        let state = &mut *visit.probe.engine.state();
        let object = state.world.roster.holder(Component::Disk).unwrap().object_id;
        let vault = state.world.vaults.at_host_mut("platform-kv.vault.azure.net").unwrap();
        vault.settings.rbac = false;
        let policy = json!({
            "tenantId": "11111111-1111-4111-8111-111111111111",
            "objectId": object,
            "permissions": { "secrets": ["Get"], "keys": ["all"] },
        });
        vault.settings.access_policies.push(serde_json::from_value(policy).unwrap());
    }
    let path = path_of(Component::File);
    assert_eq!(visit.get(component, &path).status, StatusCode::OK);
    assert_eq!(codes(&visit.get(component, "/secrets")), refused(403, "Forbidden", "AccessDenied"));
    assert_eq!(visit.get(component, "/keys").status, StatusCode::OK);
    assert_eq!(codes(&visit.get(visit.reader, &path)), refused(403, "Forbidden", "AccessDenied"));
    visit
        .probe
        .engine
        .state()
        .world
        .vaults
        .at_host_mut("platform-kv.vault.azure.net")
        .unwrap()
        .settings
        .rbac = true;
    assert_eq!(codes(&visit.get(component, &path)), refused(403, "Forbidden", "ForbiddenByRbac"));
    assert_eq!(visit.get(visit.reader, &path).status, StatusCode::OK);
}

#[test]
fn a_vault_that_is_not_there_is_no_vault_and_backup_is_not_implemented() {
    let visit = Visit::as_administrator();
    let reply = visit.ask_at("https://other.vault.azure.net", visit.guest, "GET", "/secrets/a", "");
    assert_eq!(codes(&reply), refused(404, "VaultNotFound", ""));
    let reply = visit.ask(visit.guest, "POST", "/secrets/a/backup", "");
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
    let reply = visit.ask(visit.guest, "POST", "/keys/a/0123/sign", "{}");
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
}

#[test]
fn the_ledger_keeps_codes_and_no_values() {
    let visit = Visit::as_administrator();
    visit.ask(visit.guest, "PUT", "/secrets/a", r#"{"value":"planted"}"#);
    visit.get(visit.reader, "/secrets/a");
    let state = visit.probe.engine.state();
    let entries: Vec<_> = state.ledger.since(0).collect();
    let text = serde_json::to_string(&entries).unwrap();
    assert!(text.contains("ForbiddenByRbac"), "{text}");
    assert!(!text.contains("planted"), "{text}");
}
