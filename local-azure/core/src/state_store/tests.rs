use std::os::unix::fs::MetadataExt;

use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::testing::{APP, azure_with_test_principals, principal_mut};

use super::*;
use crate::authority::LocalAuthority;

fn save_all(store: &StateStore, azure: &mut AzureState) {
    let authority = LocalAuthority::generate(&AzureClouds::new(None, 443)).unwrap();
    let changes =
        StateChanges::collect_all(authority.stored_form(), azure, &IdGenerator::Random).unwrap();
    store.commit(&[changes]).unwrap();
}

#[test]
fn directory_and_database_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let store = StateStore::open(&path).unwrap();
    assert!(store.load().unwrap().is_none());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path.join(DATABASE_FILE)), 0o600);
    assert_eq!(mode(&path), 0o700);
    assert!(matches!(StateStore::open(&path), Err(StateStoreError::Locked { .. })));
}

#[test]
fn loaded_state_equals_the_saved_one_after_further_changes() {
    let directory = tempfile::tempdir().unwrap();
    let store = StateStore::open(directory.path()).unwrap();
    let mut azure = azure_with_test_principals();
    save_all(&store, &mut azure);
    principal_mut(&mut azure, APP).enabled = false;
    azure.tokens.application_seconds = 60;
    let changes = StateChanges::collect(&mut azure, &IdGenerator::Random).unwrap();
    let mut names: Vec<_> = changes.rows.iter().map(|change| change.table).collect();
    names.sort_unstable();
    assert_eq!(names, ["directory.service-principals", "tokens"]);
    store.commit(&[changes]).unwrap();
    drop(store);
    let loaded = StateStore::open(directory.path()).unwrap().load().unwrap().unwrap().azure;
    assert_eq!(serde_json::to_value(&loaded).unwrap(), serde_json::to_value(&azure).unwrap());
    let client = APP.parse().unwrap();
    assert!(!loaded.directory.service_principal_by_client_id(client).unwrap().enabled);
}

#[test]
fn complete_state_replaces_all_rows() {
    let directory = tempfile::tempdir().unwrap();
    let store = StateStore::open(directory.path()).unwrap();
    save_all(&store, &mut azure_with_test_principals());
    save_all(&store, &mut AzureState::default());
    let loaded = store.load().unwrap().unwrap().azure;
    assert_eq!(loaded.directory.service_principals().len(), 0);
}

#[test]
fn files_of_other_versions_are_rejected_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join(OLD_STATE_FILE);
    std::fs::write(&old, "{}").unwrap();
    let error = StateStore::open(directory.path()).unwrap_err();
    assert!(matches!(error, StateStoreError::OtherFormat { found: 1, .. }), "{error}");
    std::fs::remove_file(old).unwrap();
    let path = directory.path().join(DATABASE_FILE);
    std::fs::write(&path, "no database").unwrap();
    let error = StateStore::open(directory.path()).unwrap().load().unwrap_err();
    assert!(matches!(error, StateStoreError::Database { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "no database");
}

#[test]
fn loading_writes_nothing_unless_the_database_was_not_closed() {
    let (closed, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = StateStore::open(closed.path()).unwrap();
    let mut azure = azure_with_test_principals();
    save_all(&store, &mut azure);
    let file = closed.path().join(DATABASE_FILE);
    std::fs::copy(&file, killed.path().join(DATABASE_FILE)).unwrap();
    drop(store);
    let before = std::fs::read(&file).unwrap();
    let expected = serde_json::to_value(&azure).unwrap();
    for (directory, is_repaired) in [(&closed, false), (&killed, true)] {
        let store = StateStore::open(directory.path()).unwrap();
        let loaded = store.load().unwrap().unwrap().azure;
        assert_eq!(serde_json::to_value(&loaded).unwrap(), expected);
        assert_eq!(store.writable.get().is_some(), is_repaired);
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn submitted_changes_are_on_disk_when_the_wait_ends() {
    let directory = tempfile::tempdir().unwrap();
    let store = StateStore::open(directory.path()).unwrap();
    let mut azure = azure_with_test_principals();
    save_all(&store, &mut azure);
    let writer = store.into_writer().unwrap();
    for _ in 0..20 {
        azure.tokens.application_seconds += 1;
        let changes = StateChanges::collect(&mut azure, &IdGenerator::Random).unwrap();
        writer.submit(changes).wait_blocking().unwrap();
    }
    let changes = StateChanges::collect(&mut azure, &IdGenerator::Random).unwrap();
    assert!(changes.is_empty());
    writer.submit(changes).wait_blocking().unwrap();
}
