use lanyard_emulator::testing::start_time;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::vaults::object_store::{StoredObjectAttributes, StoredObjectVersion};
use lanyard_emulator_state::vaults::vault::SecretContent;
use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, VAULT, VERSION, expected_error};

const NULL: Value = Value::Null;
const HOST: &str = "platform-kv.vault.azure.net";

/// Adds secrets without requests.
fn add_secrets(visit: &KeyVaultFixture, count: usize) {
    let secrets = &mut visit.probe.engine.state().azure.vaults.secrets;
    for number in 0..count {
        let version = StoredObjectVersion {
            id: format!("{number:032x}"),
            attributes: StoredObjectAttributes::new(start_time()),
            tags: None,
            content: SecretContent {
                value: RedactedText::new("x".to_owned()),
                content_type: None,
                key_version: None,
            },
        };
        secrets.push_version(HOST, &format!("bulk-{number:06}"), version).unwrap();
    }
}

fn names_of_page(page: &Value) -> Vec<String> {
    let items = page["value"].as_array().unwrap().iter();
    items.map(|item| item["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn pages_of_a_large_vault_are_complete_and_in_order() {
    let visit = KeyVaultFixture::as_administrator();
    add_secrets(&visit, 3_000);
    let (mut names, mut pages) = (Vec::new(), 0);
    let mut next = "/secrets".to_owned();
    loop {
        let page = visit.succeed("GET", &next, &NULL);
        let of_page = names_of_page(&page);
        assert!(of_page.len() <= 25);
        names.extend(of_page);
        pages += 1;
        let Some(link) = page["nextLink"].as_str() else { break };
        next = link.strip_prefix(VAULT).unwrap().to_owned();
    }
    // Nine credentials besides.
    assert_eq!((names.len(), pages), (3_009, 121));
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_page_stays_complete_if_objects_are_deleted_meanwhile() {
    let visit = KeyVaultFixture::as_administrator();
    add_secrets(&visit, 30);
    let page = visit.succeed("GET", "/secrets?maxresults=10", &NULL);
    let names = names_of_page(&page);
    for name in ["bulk-000009", "bulk-000010"] {
        visit.succeed("DELETE", &format!("/secrets/{name}"), &NULL);
    }
    assert_eq!(names.last().unwrap(), "bulk-000009");
    let next = page["nextLink"].as_str().unwrap().strip_prefix(VAULT).unwrap().to_owned();
    let rest = names_of_page(&visit.succeed("GET", &next, &NULL));
    assert_eq!((rest.len(), rest.first().unwrap().as_str()), (10, "bulk-000011"));
    let deleted = visit.succeed("GET", "/deletedsecrets?maxresults=1", &NULL);
    assert_eq!(deleted["value"][0]["recoveryId"], format!("{VAULT}/deletedsecrets/bulk-000009"));
    let next = deleted["nextLink"].as_str().unwrap().strip_prefix(VAULT).unwrap().to_owned();
    let rest = visit.succeed("GET", &next, &NULL);
    assert_eq!((names_of_page(&rest), &rest["nextLink"]), (vec!["bulk-000010".to_owned()], &NULL));
}

#[test]
fn versions_are_listed_in_pages() {
    let visit = KeyVaultFixture::as_administrator();
    for number in 0..5 {
        visit.succeed("PUT", "/secrets/many", &json!({ "value": number.to_string() }));
    }
    let page = visit.succeed("GET", "/secrets/many/versions?maxresults=3", &NULL);
    let next = page["nextLink"].as_str().unwrap();
    assert!(
        next.starts_with(&format!(
            "{VAULT}/secrets/many/versions?{VERSION}&maxresults=3&$skiptoken="
        ))
    );
    let rest = visit.succeed("GET", next.strip_prefix(VAULT).unwrap(), &NULL);
    let mut ids = [names_of_page(&page), names_of_page(&rest)].concat();
    assert_eq!(ids.len(), 5);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    let missing = visit.fail("GET", "/secrets/absent/versions", &NULL);
    assert_eq!(missing, expected_error(404, "SecretNotFound", ""));
}
