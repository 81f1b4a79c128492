use std::time::Duration;

use super::*;
use crate::directory::{PasswordCredential, ServicePrincipalKind};
use crate::keys::RedactedText;
use crate::testing::{
    APP, EngineFixture, FEDERATED, TENANT, azure_with_test_principals, reply_json, start_time,
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
