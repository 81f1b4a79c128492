use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::directory::{
    Application, DirectoryDelays, DirectoryReader, PasswordCredential, ServicePrincipal,
    ServicePrincipalKind,
};
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;
use uuid::Uuid;

use crate::testing::{
    APP, EngineFixture, FEDERATED, LOGIN, SECRET, TENANT, USER, USER_PASSWORD,
    azure_with_test_principals, reply_json, start_time, test_user,
};

const NEW_CLIENT: &str = "22222222-0000-4000-8000-0000000000f1";

fn later(seconds: i64) -> Timestamp {
    start_time() + SignedDuration::from_secs(seconds)
}

fn new_principal() -> ServicePrincipal {
    let id = Uuid::from_u128(0xf1);
    let (client, tenant) = (NEW_CLIENT.parse().unwrap(), TENANT.parse().unwrap());
    let kind = ServicePrincipalKind::Application;
    let mut principal =
        ServicePrincipal::new(id, client, tenant, "new", kind).created_at(start_time());
    principal.passwords.push(PasswordCredential {
        key_id: Uuid::from_u128(0xf2),
        display_name: None,
        text: RedactedText::new("secret".to_owned()),
        starts: start_time(),
        expires: later(86_400),
    });
    principal
}

#[test]
fn each_service_knows_a_new_object_after_its_own_delay() {
    let mut azure = azure_with_test_principals();
    azure.directory.replication.delays = DirectoryDelays {
        graph_seconds: 10,
        graph_deletion_seconds: 0,
        resource_manager_seconds: 20,
        token_service_seconds: 30,
        federated_credential_seconds: 0,
    };
    azure.directory.insert_service_principal(new_principal());
    let id = Uuid::from_u128(0xf1);
    for (reader, seconds) in [
        (DirectoryReader::Graph, 10),
        (DirectoryReader::ResourceManager, 20),
        (DirectoryReader::TokenService, 30),
    ] {
        let is_known = |seconds| azure.directory.is_known_to(reader, id, later(seconds));
        assert_eq!((is_known(seconds - 1), is_known(seconds)), (false, true), "{reader:?}");
    }
    // An update is no new object, and objects from before the delays are known.
    azure.directory.insert_service_principal(new_principal().created_at(later(100)));
    assert!(azure.directory.is_known_to(DirectoryReader::Graph, id, later(100)));
    let old = azure.directory.service_principal_by_client_id(APP.parse().unwrap()).unwrap();
    assert!(azure.directory.is_known_to(DirectoryReader::Graph, old.object_id, start_time()));
}

#[test]
fn token_service_rejects_a_new_application_until_it_knows_it() {
    let mut azure = azure_with_test_principals();
    azure.directory.replication.delays.token_service_seconds = 60;
    azure.directory.insert_service_principal(new_principal());
    let probe = EngineFixture::new(azure);
    let ask = || probe.request_token(&[("client_id", NEW_CLIENT), ("client_secret", "secret")]);
    assert_eq!(reply_json(&ask())["error_codes"][0], 700_016);
    probe.clock.advance(Duration::from_mins(1));
    assert_eq!(ask().status, 200);
}

fn new_application() -> Application {
    let (id, tenant) = (Uuid::from_u128(0xf4), TENANT.parse().unwrap());
    let client = NEW_CLIENT.parse().unwrap();
    let mut application = Application::new(id, client, tenant, "new", start_time());
    application.properties.insert("isFallbackPublicClient".to_owned(), json!(true));
    application
}

/// A request of the token service or of IMDS, by its URL and its form.
type TokenRequest<'a> = (String, Vec<(&'a str, &'a str)>);

fn send(probe: &EngineFixture, (url, fields): &TokenRequest<'_>) -> ServiceReply {
    let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let (ingress, method) = if fields.is_empty() {
        (Ingress::Proxy, Method::GET)
    } else {
        (Ingress::Tunnel, Method::POST)
    };
    probe.send_request(ingress, &method, url, &[("metadata", "true")], &form)
}

#[test]
fn every_grant_rejects_a_new_client_user_or_resource_until_the_token_service_knows_it() {
    const AZURE_CLI: &str = "04b07795-8ddb-461a-bbee-02f9e1bf7b46";
    const NEW_USER: &str = "new@contoso.onmicrosoft.com";
    let mut azure = azure_with_test_principals();
    azure.directory.replication.delays.token_service_seconds = 60;
    azure.directory.insert_application(new_application());
    azure.directory.insert_service_principal(new_principal());
    azure.directory.insert_user(test_user(NEW_USER, Uuid::from_u128(0xf3)));
    azure.imds.default_node.assigned = vec![NEW_CLIENT.parse().unwrap()];
    let probe = EngineFixture::new(azure);
    let token_url = format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token");
    let arm = "https://management.azure.com/.default";
    let password = |client, user| {
        let credential = [("username", user), ("password", USER_PASSWORD)];
        [&[("grant_type", "password"), ("client_id", client), ("scope", arm)], &credential[..]]
            .concat()
    };
    let resource = format!("{NEW_CLIENT}/.default");
    let application = |client, secret, scope| {
        let credential = [("client_id", client), ("client_secret", secret)];
        [&[("grant_type", "client_credentials"), ("scope", scope)], &credential[..]].concat()
    };
    let device = vec![("client_id", NEW_CLIENT), ("scope", arm)];
    let cases: [(TokenRequest<'_>, u64); 6] = [
        ((token_url.clone(), application(NEW_CLIENT, "secret", arm)), 700_016),
        ((token_url.clone(), application(APP, SECRET, &resource)), 500_011),
        ((token_url.clone(), password(NEW_CLIENT, USER)), 700_016),
        ((token_url, password(AZURE_CLI, NEW_USER)), 50_034),
        ((format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/devicecode"), device), 700_016),
        (
            (
                "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01\
                 &resource=https://vault.azure.net"
                    .to_owned(),
                Vec::new(),
            ),
            700_016,
        ),
    ];
    for (request, code) in &cases {
        let reply = send(&probe, request);
        assert_eq!(reply.rejection_reason, Some(format!("AADSTS{code}")), "{request:?}");
    }
    probe.clock.advance(Duration::from_mins(1));
    for (request, _) in &cases {
        assert_eq!(send(&probe, request).status, 200, "{request:?}");
    }
}

#[test]
fn federated_credential_is_known_after_its_delay() {
    let mut azure = azure_with_test_principals();
    azure.directory.replication.delays.federated_credential_seconds = 60;
    let client = FEDERATED.parse().unwrap();
    let holder = azure.directory.service_principal_by_client_id(client).unwrap().object_id;
    azure.directory.record_federated_credential(holder, "One", start_time());
    let count = |seconds| {
        let principal = azure.directory.service_principal_by_client_id(client).unwrap();
        azure.directory.known_federated_credentials_of(principal, later(seconds)).len()
    };
    assert_eq!((count(59), count(60)), (0, 1));
}

#[test]
fn records_of_known_objects_are_removed() {
    let mut azure = azure_with_test_principals();
    azure.directory.replication.delays.graph_seconds = 10;
    azure.directory.insert_service_principal(new_principal());
    assert!(!azure.directory.is_replicated());
    azure.directory.record_federated_credential(Uuid::from_u128(1), "a", later(10));
    assert!(azure.directory.is_replicated());
}
