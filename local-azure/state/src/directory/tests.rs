use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Map;

use super::*;

fn group(id: u128, members: &[u128]) -> Group {
    Group {
        object_id: Uuid::from_u128(id),
        tenant: crate::testing::TENANT.parse().unwrap(),
        display_name: id.to_string(),
        created: Timestamp::UNIX_EPOCH,
        members: members.iter().map(|member| Uuid::from_u128(*member)).collect(),
        owners: Vec::new(),
        properties: Map::new(),
    }
}

fn principal_ids(directory: &EntraDirectory, principal: u128) -> BTreeSet<u128> {
    let ids = directory.principal_and_group_ids(Uuid::from_u128(principal));
    ids.iter().map(Uuid::as_u128).collect()
}

#[test]
fn nested_groups_are_found_once_even_in_a_cycle() {
    let mut directory = EntraDirectory::default();
    directory.insert_group(group(10, &[1]));
    directory.insert_group(group(11, &[10, 12]));
    directory.insert_group(group(12, &[11]));
    assert_eq!(principal_ids(&directory, 1), BTreeSet::from([1, 10, 11, 12]));
    assert_eq!(principal_ids(&directory, 2), BTreeSet::from([2]));
}

#[test]
fn membership_follows_changes_of_groups_and_members() {
    let mut directory = EntraDirectory::default();
    directory.insert_group(group(10, &[1, 2]));
    directory.insert_group(group(10, &[2]));
    assert_eq!(principal_ids(&directory, 1), BTreeSet::from([1]));
    directory.remove_from_groups(Uuid::from_u128(2));
    assert!(directory.group(Uuid::from_u128(10)).unwrap().members.is_empty());
    directory.insert_group(group(10, &[2]));
    directory.remove_group(Uuid::from_u128(10));
    assert_eq!(principal_ids(&directory, 2), BTreeSet::from([2]));
}

#[test]
fn loaded_directory_finds_objects_by_every_unique_value() {
    let mut azure = crate::testing::azure_with_test_principals();
    azure.directory.insert_group(group(10, &[0xc1]));
    let text = serde_json::to_string(&azure.directory).unwrap();
    let mut loaded: EntraDirectory = serde_json::from_str(&text).unwrap();
    loaded.rebuild_index();
    let client = crate::testing::MSI.parse().unwrap();
    let identity = loaded.service_principal_by_client_id(client).unwrap();
    let resource = identity.resource_id().unwrap();
    assert_eq!(loaded.managed_identity(resource).unwrap().object_id, identity.object_id);
    assert!(loaded.application_by_client_id(crate::testing::APP.parse().unwrap()).is_some());
    assert!(loaded.object(Uuid::from_u128(0xb1)).is_some());
    assert_eq!(principal_ids(&loaded, 0xc1), BTreeSet::from([0xc1, 10]));
}
