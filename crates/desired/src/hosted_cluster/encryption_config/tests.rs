use serde_json::json;

use super::*;
use crate::fixture::{
    KMS, example_json, example_render_context, example_with_changes, parse_hosted_cluster_json,
    validated_cluster,
};

fn encryption_key(vault: &str, name: &str, version: &str) -> EncryptionKey {
    EncryptionKey {
        vault: vault.parse().unwrap(),
        name: name.parse().unwrap(),
        version: version.parse().unwrap(),
    }
}

fn encryption_with(active: EncryptionKey, managed_hsm: bool) -> KmsEncryption {
    KmsEncryption {
        routed_vault: active.vault.clone(),
        active_key: active,
        backup_key: None,
        is_managed_hsm: managed_hsm,
        is_private_access: false,
    }
}

#[test]
fn provider_names_are_those_of_the_reference() {
    let name =
        |key: EncryptionKey, hsm: bool| encryption_with(key.clone(), hsm).provider_name(&key);
    assert_eq!(name(encryption_key("vault", "key", "1"), false), "azure-be23a676");
    assert_eq!(name(encryption_key("test-kms-keyvault", "test-key", "1"), false), "azure-b6969f37");
    assert_eq!(name(encryption_key("vault", "key", "1"), true), "azure-46685c54");
}

#[test]
fn a_backup_key_is_read_after_the_active_one_and_before_plain_values() {
    let mut encryption = encryption_with(encryption_key("vault", "key", "2"), false);
    encryption.backup_key = Some(encryption_key("vault", "key", "1"));
    insta::assert_snapshot!(render_encryption_config(&encryption, KmsApiVersion::V2));
}

#[test]
fn a_configuration_keeps_its_kms_api_version() {
    let encryption = encryption_with(encryption_key("vault", "key", "1"), false);
    let v2 = render_encryption_config(&encryption, KmsApiVersion::default());
    let v1 = render_encryption_config(&encryption, KmsApiVersion::V1);
    assert!(v2.contains("      apiVersion: v2\n"), "{v2}");
    assert_eq!(v1, v2.replace("      apiVersion: v2\n", "      apiVersion: v1\n"));
}

#[test]
fn there_is_no_configuration_without_a_key() {
    let cluster = validated_cluster(&example_with_changes(&[(
        "/spec/secretEncryption".to_owned(),
        Value::Null,
    )]));
    assert_eq!(desired_encryption_config(&cluster, &example_render_context()), None);
    assert!(
        desired_encryption_config(
            &validated_cluster(&example_with_changes(&[])),
            &example_render_context()
        )
        .is_some()
    );
}

/// Returns the versions of the active and the backup key, for the versions in a spec and a status.
fn key_role_versions(spec: (&str, Option<&str>), status: Value) -> (String, Option<String>) {
    let mut example = example_json();
    let azure = example.pointer_mut(KMS).unwrap();
    azure["activeKey"]["keyVersion"] = json!(spec.0);
    if let Some(version) = spec.1 {
        azure["backupKey"] = azure["activeKey"].clone();
        azure["backupKey"]["keyVersion"] = json!(version);
    }
    example["status"] = json!({"secretEncryption": status});
    let wire = parse_hosted_cluster_json(example);
    let encryption = with_key_roles(&validated_cluster(&wire), &wire).encryption.unwrap();
    let version = |key: EncryptionKey| String::from(key.version);
    (version(encryption.active_key), encryption.backup_key.map(version))
}

fn status_key(version: &str) -> Value {
    let azure = json!({"keyVaultName": "harbour-keys", "keyName": "etcd", "keyVersion": version});
    json!({"provider": "Azure", "azure": azure})
}

#[test]
fn spec_decides_key_roles_until_the_status_has_a_key() {
    assert_eq!(
        key_role_versions(("2", Some("1")), Value::Null),
        ("2".to_owned(), Some("1".to_owned()))
    );
    assert_eq!(key_role_versions(("2", None), json!({"history": []})), ("2".to_owned(), None));
    let unusable = json!({"activeKey": {"azure": {"keyVaultName": "x"}}});
    assert_eq!(
        key_role_versions(("2", Some("1")), unusable),
        ("2".to_owned(), Some("1".to_owned()))
    );
}

#[test]
fn rotation_has_two_stages_and_ignores_the_backup_key() {
    let stage = |state: Option<&str>| {
        let status = json!({
            "activeKey": status_key("1"),
            "targetKey": status_key("2"),
            "history": state.map(|state| json!({"state": state})).into_iter().collect::<Vec<_>>(),
        });
        key_role_versions(("3", Some("0")), status)
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
fn changed_key_only_decrypts_until_a_rotation_is_recorded() {
    let known = json!({"activeKey": status_key("1"), "history": [{"state": "Completed"}]});
    assert_eq!(key_role_versions(("2", None), known), ("1".to_owned(), Some("2".to_owned())));
}

#[test]
fn a_key_that_is_promoted_moves_to_the_other_socket_and_keeps_its_provider() {
    let (old, new) = (encryption_key("vault", "key", "1"), encryption_key("vault", "key", "2"));
    let mut before = encryption_with(old.clone(), false);
    before.backup_key = Some(new.clone());
    let mut after = encryption_with(new.clone(), false);
    after.backup_key = Some(old.clone());
    for key in [&old, &new] {
        assert_eq!(before.provider_name(key), after.provider_name(key));
        let part = |encryption: &KmsEncryption| {
            encryption
                .keys()
                .find(|(_, known)| *known == key)
                .map(|(part, _)| part.socket_endpoint())
        };
        assert_ne!(part(&before), part(&after));
    }
}

#[test]
fn a_rotation_that_is_over_has_one_key() {
    let mut status = json!({"activeKey": status_key("2"), "history": [{"state": "Completed"}]});
    status["activeKey"]["azure"]["keyName"] = json!("etcd-encryption");
    assert_eq!(key_role_versions(("2", Some("1")), status), ("2".to_owned(), None));
}
