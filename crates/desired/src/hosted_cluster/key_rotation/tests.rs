use super::*;
use crate::fixture::{
    KMS, desired_objects_of, example_json, parse_hosted_cluster_json, validated_cluster,
};
use crate::hosted_cluster::encryption_config::{ENCRYPTION_CONFIG_SECRET, with_key_roles};

fn now() -> Timestamp {
    "2026-06-01T12:00:00.5Z".parse().unwrap()
}

/// Returns the example with these key versions and this key record.
fn cluster_with_key_record(active: &str, backup: Option<&str>, record: &Value) -> HostedCluster {
    let mut example = example_json();
    let azure = example.pointer_mut(KMS).unwrap();
    azure["activeKey"]["keyVersion"] = json!(active);
    if let Some(backup) = backup {
        azure["backupKey"] = azure["activeKey"].clone();
        azure["backupKey"]["keyVersion"] = json!(backup);
    }
    example["status"] = json!({"secretEncryption": record});
    parse_hosted_cluster_json(example)
}

/// Returns the next step for a live configuration with these providers.
fn next_step(
    wire: &HostedCluster,
    providers: Option<&[&str]>,
    has_rolled: bool,
) -> KeyRotationStep {
    let configured = providers.map(|providers| ConfiguredProviders {
        writer: providers.first().copied().unwrap_or_default().to_owned(),
        readers: providers.iter().map(|&name| name.to_owned()).collect(),
    });
    next_key_rotation_step(
        &validated_cluster(wire),
        wire,
        &KeyRotationInputs {
            configured_providers: configured.as_ref(),
            is_rolled_out: has_rolled,
            now: now(),
        },
    )
}

/// Returns the new record, or `None` if it is unchanged.
fn next_record(wire: &HostedCluster, has_rolled: bool) -> Option<Value> {
    match next_step(wire, None, has_rolled) {
        KeyRotationStep::Record { status, .. } => Some(status),
        KeyRotationStep::Unchanged => None,
        KeyRotationStep::WouldLoseKey(problem) => panic!("{problem}"),
    }
}

/// Returns the versions of the active and the backup key.
fn key_role_versions(wire: &HostedCluster) -> (String, Option<String>) {
    let encryption = with_key_roles(&validated_cluster(wire), wire).encryption.unwrap();
    let version = |key: EncryptionKey| String::from(key.version);
    (version(encryption.active_key), encryption.backup_key.map(version))
}

fn provider_name(wire: &HostedCluster, version: &str) -> String {
    let encryption = validated_cluster(wire).encryption.unwrap();
    let key = EncryptionKey { version: version.parse().unwrap(), ..encryption.active_key.clone() };
    encryption.provider_name(&key)
}

fn versions(writes: &str, reads: &str) -> (String, Option<String>) {
    (writes.to_owned(), Some(reads.to_owned()))
}

#[test]
fn a_changed_key_is_read_by_every_api_server_before_it_writes_and_the_old_one_stays() {
    let unrecorded = cluster_with_key_record("1", None, &Value::Null);
    let first = next_record(&unrecorded, false).unwrap();
    assert_eq!(first["activeKey"]["azure"]["keyVersion"], "1");
    assert_eq!(
        next_record(&cluster_with_key_record("1", None, &first), true),
        None,
        "it is settled"
    );

    let changed = cluster_with_key_record("2", None, &first);
    assert_eq!(
        key_role_versions(&changed),
        versions("1", "2"),
        "before any value was re-encrypted"
    );
    let begun = next_record(&changed, true).unwrap();
    assert_eq!(begun["history"][0]["state"], READ_ONLY_DEPLOY_STATE);
    let waiting = cluster_with_key_record("2", None, &begun);
    assert_eq!(key_role_versions(&waiting), versions("1", "2"));
    assert!(awaits_api_server_rollout(&validated_cluster(&waiting), &waiting));
    assert_eq!(next_record(&waiting, false), None);

    let promoted = next_record(&waiting, true).unwrap();
    assert_eq!(promoted["history"].as_array().unwrap().len(), 1);
    assert_eq!(promoted["history"][0]["state"], WRITE_PROMOTE_STATE);
    assert_eq!(promoted["history"][0]["startedTime"], "2026-06-01T12:00:00Z");
    let promoted = cluster_with_key_record("2", None, &promoted);
    assert_eq!(key_role_versions(&promoted), versions("2", "1"));
    assert_eq!(next_record(&promoted, true), None, "until the record changes");
    assert!(!awaits_api_server_rollout(&validated_cluster(&promoted), &promoted));
    let lint = lint_key_rotation(&promoted).unwrap();
    assert!(lint.message.contains("version `2`") && lint.message.contains("version `1`"));

    // Further changes of the spec wait.
    let record = promoted.unknown["status"]["secretEncryption"].clone();
    let third = cluster_with_key_record("3", None, &record);
    assert_eq!((key_role_versions(&third), next_record(&third, true)), (versions("2", "1"), None));
    // All values were re-encrypted, and the new key was recorded.
    let ended = json!({"activeKey": record["targetKey"], "history": record["history"]});
    assert_eq!(next_record(&cluster_with_key_record("2", None, &ended), true), None);
    assert_eq!(key_role_versions(&cluster_with_key_record("3", None, &ended)), versions("2", "3"));
    let repeated = next_record(&cluster_with_key_record("3", None, &ended), true).unwrap();
    assert_eq!(repeated["history"].as_array().unwrap().len(), 2);
}

/// Returns status and reason of [`data_encryption`].
fn data_encryption_reason(active: &str, record: &Value) -> Option<(bool, &'static str)> {
    let wire = cluster_with_key_record(active, None, record);
    let found = data_encryption(&validated_cluster(&wire), &wire)?;
    Some((found.is_up_to_date, found.reason))
}

#[test]
fn data_encryption_follows_the_key_record() {
    let first = next_record(&cluster_with_key_record("1", None, &Value::Null), false).unwrap();
    let begun = next_record(&cluster_with_key_record("2", None, &first), false).unwrap();
    let promoted = next_record(&cluster_with_key_record("2", None, &begun), true).unwrap();
    let mut migrating = promoted.clone();
    migrating["history"][0]["state"] = json!("Migrating");
    let mut ended = json!({"activeKey": promoted["targetKey"], "history": promoted["history"]});
    ended["history"][0]["state"] = json!("Completed");
    let up_to_date = Some((true, "ReEncryptionCompleted"));
    let cases = [
        ("1", &Value::Null, None),
        ("1", &first, up_to_date),
        ("2", &first, Some((false, "ReadOnlyRolloutInProgress"))),
        ("2", &begun, Some((false, "ReadOnlyRolloutInProgress"))),
        ("2", &promoted, Some((false, "WritePromotionInProgress"))),
        ("2", &migrating, Some((false, "ReEncryptionInProgress"))),
        ("2", &ended, up_to_date),
    ];
    for (active, record, expected) in cases {
        assert_eq!(data_encryption_reason(active, record), expected, "{active} {record}");
    }
    let plain =
        crate::fixture::example_with_changes(&[("/spec/secretEncryption".to_owned(), Value::Null)]);
    assert_eq!(data_encryption(&validated_cluster(&plain), &plain), None);
}

#[test]
fn a_rotation_between_private_vaults_is_linted() {
    let key = |vault: &str| {
        let key = json!({"keyVaultName": vault, "keyName": "etcd", "keyVersion": "1"});
        json!({"provider": "Azure", "azure": key})
    };
    let lint = |access: &str, active: &str| {
        let mut example = example_json();
        example.pointer_mut(KMS).unwrap()["keyVaultAccess"] = json!(access);
        example["status"] = json!({"secretEncryption": {"activeKey": key(active)}});
        let wire = parse_hosted_cluster_json(example);
        lint_private_rotation(&validated_cluster(&wire), &wire)
    };
    let found = lint("Private", "old-keys").unwrap();
    assert_eq!(found.severity, ProblemSeverity::Lint);
    assert!(found.message.contains("only to the vault `harbour-keys`"), "{found}");
    assert!(found.message.contains("vault `old-keys`"), "{found}");
    assert!(found.hint.unwrap().contains("`old-keys`"));
    assert_eq!(lint("Private", "HARBOUR-KEYS"), None);
    assert_eq!(lint("Public", "old-keys"), None);
}

#[test]
fn the_kms_api_version_is_that_of_the_writing_provider() {
    let version = |text: &str| {
        let bytes = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
        read_kms_api_version(&json!({"data": {(ENCRYPTION_CONFIG_KEY): bytes}}))
    };
    let v1 = "resources:\n- providers: [{kms: {apiVersion: v1, name: x}}, {identity: {}}]\n";
    assert_eq!(version(v1), KmsApiVersion::V1);
    assert_eq!(version("resources:\n- providers: [{kms: {name: x}}]\n"), KmsApiVersion::V1);
    for text in [
        "resources:\n- providers: [{kms: {apiVersion: v2, name: x}}]\n",
        // Only the provider that encrypts counts.
        "resources:\n- providers: [{identity: {}}, {kms: {apiVersion: v1, name: x}}]\n",
        "resources: []",
        "",
    ] {
        assert_eq!(version(text), KmsApiVersion::V2, "{text}");
    }
    assert_eq!(read_kms_api_version(&json!({})), KmsApiVersion::V2);
}

/// The expected values are those of HyperShift's function, computed with `sha256sum`.
#[test]
fn history_has_the_fingerprints_of_the_reference() {
    let key = EncryptionKey {
        vault: "test-kms-keyvault".parse().unwrap(),
        name: "test-key".parse().unwrap(),
        version: "1".parse().unwrap(),
    };
    let fingerprints = [false, true].map(|is_managed_hsm| key_fingerprint(&key, is_managed_hsm));
    assert_eq!(
        fingerprints,
        [
            "07378866990a0ce3b5369810c1d4d0c0c20e01c01ea4e0d2866e4d2bc02e4e45",
            "bc70b286988829bb4f1f1457c27ce804dd7185d5b53ca91032640112bf0b3f1c",
        ]
    );
    let first = next_record(&cluster_with_key_record("1", None, &Value::Null), false).unwrap();
    let begun = next_record(&cluster_with_key_record("2", None, &first), false).unwrap();
    let entry = &begun["history"][0];
    assert_eq!(entry["from"]["provider"], "Azure");
    // `harbour-keys/etcd-encryption/1` and `harbour-keys/etcd-encryption/2`
    assert_eq!(
        entry["from"]["fingerprint"],
        "a734641264e4f0f5ae1366d10d4137f109c80477d052a873231c0ea11bf50a5d"
    );
    assert_eq!(
        entry["to"]["fingerprint"],
        "4330d434ca93222b6c0faac332c8afdbda1c30b271d848adf775dd3b9e6a940f"
    );
}

#[test]
fn unused_target_key_is_replaced() {
    let first = next_record(&cluster_with_key_record("1", None, &Value::Null), false).unwrap();
    let begun = next_record(&cluster_with_key_record("2", None, &first), false).unwrap();
    let replaced = next_record(&cluster_with_key_record("3", None, &begun), true).unwrap();
    assert_eq!(replaced["targetKey"]["azure"]["keyVersion"], "3");
    let states: Vec<_> =
        replaced["history"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert_eq!(states, [READ_ONLY_DEPLOY_STATE, INTERRUPTED_STATE]);
    assert_eq!(
        key_role_versions(&cluster_with_key_record("3", None, &replaced)),
        versions("1", "3")
    );

    let back = next_record(&cluster_with_key_record("1", None, &begun), true).unwrap();
    assert_eq!(
        (back.get("targetKey"), &back["history"][0]["state"]),
        (None, &json!(INTERRUPTED_STATE))
    );
    assert_eq!(
        key_role_versions(&cluster_with_key_record("1", None, &back)),
        ("1".to_owned(), None)
    );
}

#[test]
fn first_record_is_the_writing_key_and_keeps_read_keys() {
    let both = cluster_with_key_record("2", Some("1"), &Value::Null);
    for (writer, parts_then) in [("2", versions("2", "1")), ("1", versions("1", "2"))] {
        let writer = provider_name(&both, writer);
        let KeyRotationStep::Record { status, .. } = next_step(&both, Some(&[&writer]), false)
        else {
            panic!()
        };
        assert_eq!(
            key_role_versions(&cluster_with_key_record("2", Some("1"), &status)),
            parts_then
        );
    }
    // The spec changed before the key was recorded.
    let changed = cluster_with_key_record("2", None, &Value::Null);
    let [old, new] = ["1", "2"].map(|version| provider_name(&changed, version));
    for providers in [&[&*old][..], &[], &[&*old, &*new]] {
        let KeyRotationStep::WouldLoseKey(problem) = next_step(&changed, Some(providers), true)
        else {
            panic!()
        };
        assert_eq!(problem.field, "spec.secretEncryption.kms.azure.activeKey");
        assert!(problem.message.contains("encrypts with another key"), "{problem}");
    }
    assert!(matches!(next_step(&changed, Some(&[&new]), false), KeyRotationStep::Record { .. }));
}

#[test]
fn lost_record_after_promotion_keeps_every_read_key() {
    // The old key was only in the record; the spec names only the new one.
    let lost = cluster_with_key_record("2", None, &Value::Null);
    let [old, new] = ["1", "2"].map(|version| provider_name(&lost, version));
    for stranger in [&*old, "aescbc"] {
        let KeyRotationStep::WouldLoseKey(problem) =
            next_step(&lost, Some(&[&new, stranger]), true)
        else {
            panic!()
        };
        assert!(problem.message.contains(&format!("provider `{stranger}`")), "{problem}");
        assert!(problem.hint.unwrap().contains("`backupKey`"));
    }
    // The suggested fix.
    let named = cluster_with_key_record("2", Some("1"), &Value::Null);
    let KeyRotationStep::Record { status, .. } = next_step(&named, Some(&[&new, &old]), true)
    else {
        panic!()
    };
    assert_eq!(
        key_role_versions(&cluster_with_key_record("2", Some("1"), &status)),
        versions("2", "1")
    );
    assert!(matches!(
        next_step(&named, Some(&[&new, &old, "aescbc"]), true),
        KeyRotationStep::WouldLoseKey(_)
    ));
}

#[test]
fn the_writer_is_the_first_provider_of_what_is_rendered() {
    let wire = cluster_with_key_record("2", Some("1"), &Value::Null);
    let objects = desired_objects_of(&wire);
    let mut secrets = objects.iter().filter(|it| it.key.name == ENCRYPTION_CONFIG_SECRET);
    let found = read_configured_providers(&secrets.next().unwrap().value);
    assert_eq!(found.writer, provider_name(&wire, "2"));
    assert_eq!(found.readers, ["1", "2"].map(|version| provider_name(&wire, version)).into());
    assert_eq!(read_configured_providers(&json!({})), ConfiguredProviders::default());
}

/// Parses the providers of a configuration.
fn parse_providers(text: &str) -> ConfiguredProviders {
    let bytes = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
    read_configured_providers(&json!({"data": {(ENCRYPTION_CONFIG_KEY): bytes}}))
}

/// Returns the provider that encrypts.
fn parse_writer(text: &str) -> String {
    parse_providers(text).writer
}

#[test]
fn all_reading_providers_are_found() {
    let text = "resources:\n- providers: [{kms: {name: x}}, {kms: {name: z}}, {identity: {}}]\n- providers: [{identity: {}}, {aescbc: {}}]\n";
    let readers = parse_providers(text).readers;
    assert_eq!(readers.iter().collect::<Vec<_>>(), ["aescbc", "x", "z"]);
}

#[test]
fn the_writer_is_found_however_the_configuration_is_written() {
    for text in [
        "resources:\n- providers:\n  - kms:\n      name: x\n      endpoint: e\n  - kms:\n      name: y\n",
        // Another order, indentation, quotes and comments.
        "resources:\n  # of others\n  - resources: [secrets]\n    providers:\n      - kms: # here\n          endpoint: e\n          name: \"x\"\n      - identity: {}\n",
        "resources: [{providers: [{kms: {name: x}}, {identity: {}}], resources: [secrets]}]",
        r#"{"resources":[{"resources":["secrets"],"providers":[{"kms":{"name":"x"}}]}]}"#,
        // One key for all encrypted resources.
        "resources:\n- providers: [{kms: {name: x}}]\n- providers: [{identity: {}}]\n- providers: [{kms: {name: x}}]\n",
    ] {
        assert_eq!(parse_writer(text), "x", "{text}");
    }
}

#[test]
fn ambiguous_configuration_has_no_writer() {
    for text in [
        "",
        "resources: []",
        "resources:\n- providers: []\n",
        // The provider only decrypts.
        "resources:\n- providers:\n  - identity: {}\n  - kms:\n      name: x\n",
        "resources:\n- providers:\n  - aescbc: {}\n  - kms:\n      name: x\n",
        // Two keys encrypt.
        "resources:\n- providers: [{kms: {name: x}}]\n- providers: [{kms: {name: y}}]\n",
        "resources:\n- providers: [{kms: {name: x}}]\n- providers: [{aescbc: {}}]\n",
        // Invalid for the API server.
        "resources:\n- providers: [{kms: {name: x}, identity: {}}]\n",
        "resources:\n- providers: [{kms: {name: 7}}]\n",
        "resources:\n- providers: [{kms: x}]\n",
        "resources: {providers: [{kms: {name: x}}]}",
        "resources:\n- providers: [{kms: {name: x}}]\nresources:\n- providers: [{kms: {name: y}}]\n",
        "resources:\n- providers: [{kms: {name: x}}",
        "- kms:\n  name: x\n",
    ] {
        assert_eq!(parse_writer(text), "", "{text}");
    }
    for data in [
        json!({}),
        json!({(ENCRYPTION_CONFIG_KEY): "no base64!"}),
        json!({(ENCRYPTION_CONFIG_KEY): "/w=="}),
    ] {
        assert_eq!(
            read_configured_providers(&json!({"data": data})),
            ConfiguredProviders::default()
        );
    }
}

#[test]
fn deployment_is_rolled_out_without_pods_of_old_revisions() {
    let rolled = json!({
        "metadata": {"generation": 4},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3},
    });
    assert!(is_rolled_out(&rolled));
    let changes = [
        ("/metadata/generation", 5),
        ("/spec/replicas", 0),
        ("/status/replicas", 4),
        ("/status/updatedReplicas", 2),
        ("/status/availableReplicas", 2),
        ("/status/observedGeneration", 3),
    ];
    for (pointer, value) in changes {
        let mut deployment = rolled.clone();
        *deployment.pointer_mut(pointer).unwrap() = json!(value);
        assert!(!is_rolled_out(&deployment), "{pointer}");
    }
    let mut deleted = rolled;
    deleted["status"]["terminatingReplicas"] = json!(1);
    assert!(!is_rolled_out(&deleted));
    assert!(!is_rolled_out(&json!({"spec": {"replicas": 1}})));
}
