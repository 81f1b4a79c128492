use serde_json::json;

use super::*;
use crate::fixture::{KMS, changed, example, names, valid, wire};

fn key(vault: &str, name: &str, version: &str) -> EncryptionKey {
    EncryptionKey {
        vault: vault.parse().unwrap(),
        name: name.parse().unwrap(),
        version: version.parse().unwrap(),
    }
}

fn encryption(active: EncryptionKey, managed_hsm: bool) -> Encryption {
    Encryption { active_key: active, backup_key: None, managed_hsm, private_access: false }
}

#[test]
fn provider_names_are_those_of_the_reference() {
    let name = |key: EncryptionKey, hsm: bool| encryption(key.clone(), hsm).provider_name(&key);
    assert_eq!(name(key("vault", "key", "1"), false), "azure-be23a676");
    assert_eq!(name(key("test-kms-keyvault", "test-key", "1"), false), "azure-b6969f37");
    assert_eq!(name(key("vault", "key", "1"), true), "azure-46685c54");
}

#[test]
fn a_backup_key_is_read_after_the_active_one_and_before_plain_values() {
    let mut encryption = encryption(key("vault", "key", "2"), false);
    encryption.backup_key = Some(key("vault", "key", "1"));
    insta::assert_snapshot!(encryption_config(&encryption));
}

#[test]
fn there_is_no_configuration_without_a_key() {
    let cluster = valid(&changed(&[("/spec/secretEncryption".to_owned(), Value::Null)]));
    assert_eq!(desired_encryption_config(&cluster, &names()), None);
    assert!(desired_encryption_config(&valid(&changed(&[])), &names()).is_some());
}

/// Versions of the active and the backup key, for versions in the spec and a status.
fn parts(spec: (&str, Option<&str>), status: Value) -> (String, Option<String>) {
    let mut example = example();
    let azure = example.pointer_mut(KMS).unwrap();
    azure["activeKey"]["keyVersion"] = json!(spec.0);
    if let Some(version) = spec.1 {
        azure["backupKey"] = azure["activeKey"].clone();
        azure["backupKey"]["keyVersion"] = json!(version);
    }
    example["status"] = json!({"secretEncryption": status});
    let wire = wire(example);
    let encryption = with_key_roles(&valid(&wire), &wire).encryption.unwrap();
    let version = |key: EncryptionKey| String::from(key.version);
    (version(encryption.active_key), encryption.backup_key.map(version))
}

fn status_key(version: &str) -> Value {
    let azure = json!({"keyVaultName": "harbour-keys", "keyName": "etcd", "keyVersion": version});
    json!({"provider": "Azure", "azure": azure})
}

#[test]
fn until_the_status_knows_a_key_the_spec_says_the_parts() {
    assert_eq!(parts(("2", Some("1")), Value::Null), ("2".to_owned(), Some("1".to_owned())));
    assert_eq!(parts(("2", None), json!({"history": []})), ("2".to_owned(), None));
    let unusable = json!({"activeKey": {"azure": {"keyVaultName": "x"}}});
    assert_eq!(parts(("2", Some("1")), unusable), ("2".to_owned(), Some("1".to_owned())));
}

#[test]
fn a_rotation_has_two_stages_and_the_backup_key_of_the_spec_has_no_part_in_it() {
    let stage = |state: Option<&str>| {
        let status = json!({
            "activeKey": status_key("1"),
            "targetKey": status_key("2"),
            "history": state.map(|state| json!({"state": state})).into_iter().collect::<Vec<_>>(),
        });
        parts(("3", Some("0")), status)
    };
    let (old_writes, new_writes) =
        (("1".to_owned(), Some("2".to_owned())), ("2".to_owned(), Some("1".to_owned())));
    assert_eq!(stage(None), old_writes);
    assert_eq!(stage(Some("ReadOnlyDeploy")), old_writes);
    assert_eq!(stage(Some("Interrupted")), old_writes);
    assert_eq!(stage(Some("WritePromote")), new_writes);
    assert_eq!(stage(Some("Migrating")), new_writes);
}

#[test]
fn a_key_that_the_spec_changed_only_decrypts_until_somebody_records_a_rotation() {
    let known = json!({"activeKey": status_key("1"), "history": [{"state": "Completed"}]});
    assert_eq!(parts(("2", None), known), ("1".to_owned(), Some("2".to_owned())));
}

#[test]
fn a_key_that_is_promoted_moves_to_the_other_socket_and_keeps_its_provider() {
    let (old, new) = (key("vault", "key", "1"), key("vault", "key", "2"));
    let mut before = encryption(old.clone(), false);
    before.backup_key = Some(new.clone());
    let mut after = encryption(new.clone(), false);
    after.backup_key = Some(old.clone());
    for key in [&old, &new] {
        assert_eq!(before.provider_name(key), after.provider_name(key));
        let part = |encryption: &Encryption| {
            encryption.keys().find(|(_, known)| *known == key).map(|(part, _)| part.endpoint())
        };
        assert_ne!(part(&before), part(&after));
    }
}

#[test]
fn a_rotation_that_is_over_has_one_key() {
    let mut status = json!({"activeKey": status_key("2"), "history": [{"state": "Completed"}]});
    status["activeKey"]["azure"]["keyName"] = json!("etcd-encryption");
    assert_eq!(parts(("2", Some("1")), status), ("2".to_owned(), None));
}
