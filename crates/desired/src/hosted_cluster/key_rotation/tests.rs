use super::*;
use crate::fixture::{KMS, example, objects_of, valid, wire};
use crate::hosted_cluster::encryption_config::{ENCRYPTION_CONFIG_SECRET, with_key_roles};

fn now() -> Timestamp {
    "2026-06-01T12:00:00.5Z".parse().unwrap()
}

/// The example with these versions of its keys, and this record.
fn cluster(active: &str, backup: Option<&str>, record: &Value) -> HostedCluster {
    let mut example = example();
    let azure = example.pointer_mut(KMS).unwrap();
    azure["activeKey"]["keyVersion"] = json!(active);
    if let Some(backup) = backup {
        azure["backupKey"] = azure["activeKey"].clone();
        azure["backupKey"]["keyVersion"] = json!(backup);
    }
    example["status"] = json!({"secretEncryption": record});
    wire(example)
}

/// With these providers in the configuration that is there.
fn step(wire: &HostedCluster, providers: Option<&[&str]>, has_rolled: bool) -> KeyStep {
    let configured = providers.map(|providers| ConfiguredProviders {
        writer: providers.first().copied().unwrap_or_default().to_owned(),
        readers: providers.iter().map(|&name| name.to_owned()).collect(),
    });
    key_step(
        &valid(wire),
        wire,
        &KeyEvidence { configured: configured.as_ref(), has_rolled, now: now() },
    )
}

/// What is recorded, or nothing where it stays.
fn next(wire: &HostedCluster, has_rolled: bool) -> Option<Value> {
    match step(wire, None, has_rolled) {
        KeyStep::Record { status, .. } => Some(status),
        KeyStep::Keep => None,
        KeyStep::Lost(problem) => panic!("{problem}"),
    }
}

/// The versions that write and read by a record.
fn parts(wire: &HostedCluster) -> (String, Option<String>) {
    let encryption = with_key_roles(&valid(wire), wire).encryption.unwrap();
    let version = |key: EncryptionKey| String::from(key.version);
    (version(encryption.active_key), encryption.backup_key.map(version))
}

fn provider(wire: &HostedCluster, version: &str) -> String {
    let encryption = valid(wire).encryption.unwrap();
    let key = EncryptionKey { version: version.parse().unwrap(), ..encryption.active_key.clone() };
    encryption.provider_name(&key)
}

fn versions(writes: &str, reads: &str) -> (String, Option<String>) {
    (writes.to_owned(), Some(reads.to_owned()))
}

#[test]
fn a_changed_key_is_read_by_every_api_server_before_it_writes_and_the_old_one_stays() {
    let unrecorded = cluster("1", None, &Value::Null);
    let first = next(&unrecorded, false).unwrap();
    assert_eq!(first["activeKey"]["azure"]["keyVersion"], "1");
    assert_eq!(next(&cluster("1", None, &first), true), None, "it is settled");

    let changed = cluster("2", None, &first);
    assert_eq!(parts(&changed), versions("1", "2"), "before anybody wrote anything");
    let begun = next(&changed, true).unwrap();
    assert_eq!(begun["history"][0]["state"], READ_ONLY_DEPLOY);
    let waiting = cluster("2", None, &begun);
    assert_eq!(parts(&waiting), versions("1", "2"));
    assert!(awaits_rollout(&valid(&waiting), &waiting));
    assert_eq!(next(&waiting, false), None);

    let promoted = next(&waiting, true).unwrap();
    assert_eq!(promoted["history"].as_array().unwrap().len(), 1);
    assert_eq!(promoted["history"][0]["state"], WRITE_PROMOTE);
    assert_eq!(promoted["history"][0]["startedTime"], "2026-06-01T12:00:00Z");
    let promoted = cluster("2", None, &promoted);
    assert_eq!(parts(&promoted), versions("2", "1"));
    assert_eq!(next(&promoted, true), None, "until somebody records otherwise");
    assert!(!awaits_rollout(&valid(&promoted), &promoted));
    let lint = lint_rotation(&promoted).unwrap();
    assert!(lint.message.contains("version `2`") && lint.message.contains("version `1`"));

    // Whatever the spec becomes meanwhile waits.
    let record = promoted.unknown["status"]["secretEncryption"].clone();
    let third = cluster("3", None, &record);
    assert_eq!((parts(&third), next(&third, true)), (versions("2", "1"), None));
    // Somebody wrote all values anew, and recorded it.
    let ended = json!({"activeKey": record["targetKey"], "history": record["history"]});
    assert_eq!(next(&cluster("2", None, &ended), true), None);
    assert_eq!(parts(&cluster("3", None, &ended)), versions("2", "3"));
    let again = next(&cluster("3", None, &ended), true).unwrap();
    assert_eq!(again["history"].as_array().unwrap().len(), 2);
}

#[test]
fn a_key_that_wrote_nothing_yet_gives_way() {
    let first = next(&cluster("1", None, &Value::Null), false).unwrap();
    let begun = next(&cluster("2", None, &first), false).unwrap();
    let replaced = next(&cluster("3", None, &begun), true).unwrap();
    assert_eq!(replaced["targetKey"]["azure"]["keyVersion"], "3");
    let states: Vec<_> =
        replaced["history"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert_eq!(states, [READ_ONLY_DEPLOY, INTERRUPTED]);
    assert_eq!(parts(&cluster("3", None, &replaced)), versions("1", "3"));

    let back = next(&cluster("1", None, &begun), true).unwrap();
    assert_eq!((back.get("targetKey"), &back["history"][0]["state"]), (None, &json!(INTERRUPTED)));
    assert_eq!(parts(&cluster("1", None, &back)), ("1".to_owned(), None));
}

#[test]
fn what_is_recorded_first_is_what_writes_and_never_loses_what_is_read() {
    let both = cluster("2", Some("1"), &Value::Null);
    for (writer, parts_then) in [("2", versions("2", "1")), ("1", versions("1", "2"))] {
        let writer = provider(&both, writer);
        let KeyStep::Record { status, .. } = step(&both, Some(&[&writer]), false) else { panic!() };
        assert_eq!(parts(&cluster("2", Some("1"), &status)), parts_then);
    }
    // Somebody changed the key while nobody recorded it.
    let changed = cluster("2", None, &Value::Null);
    let [old, new] = ["1", "2"].map(|version| provider(&changed, version));
    for providers in [&[&*old][..], &[], &[&*old, &*new]] {
        let KeyStep::Lost(problem) = step(&changed, Some(providers), true) else { panic!() };
        assert_eq!(problem.field, "spec.secretEncryption.kms.azure.activeKey");
        assert!(problem.message.contains("encrypts with another key"), "{problem}");
    }
    assert!(matches!(step(&changed, Some(&[&new]), false), KeyStep::Record { .. }));
}

#[test]
fn a_record_that_is_lost_after_the_new_key_writes_loses_no_key_that_is_read() {
    // The record said that the old key is read; the spec names the new one alone.
    let lost = cluster("2", None, &Value::Null);
    let [old, new] = ["1", "2"].map(|version| provider(&lost, version));
    for stranger in [&*old, "aescbc"] {
        let KeyStep::Lost(problem) = step(&lost, Some(&[&new, stranger]), true) else { panic!() };
        assert!(problem.message.contains(&format!("provider `{stranger}`")), "{problem}");
        assert!(problem.hint.unwrap().contains("`backupKey`"));
    }
    // What the hint says.
    let named = cluster("2", Some("1"), &Value::Null);
    let KeyStep::Record { status, .. } = step(&named, Some(&[&new, &old]), true) else { panic!() };
    assert_eq!(parts(&cluster("2", Some("1"), &status)), versions("2", "1"));
    assert!(matches!(step(&named, Some(&[&new, &old, "aescbc"]), true), KeyStep::Lost(_)));
}

#[test]
fn the_writer_is_the_first_provider_of_what_is_rendered() {
    let wire = cluster("2", Some("1"), &Value::Null);
    let objects = objects_of(&wire);
    let mut secrets = objects.iter().filter(|it| it.key.name == ENCRYPTION_CONFIG_SECRET);
    let found = providers_in(&secrets.next().unwrap().value);
    assert_eq!(found.writer, provider(&wire, "2"));
    assert_eq!(found.readers, ["1", "2"].map(|version| provider(&wire, version)).into());
    assert_eq!(providers_in(&json!({})), ConfiguredProviders::default());
}

/// What is in a configuration of others.
fn providers_of(text: &str) -> ConfiguredProviders {
    let bytes = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
    providers_in(&json!({"data": {(ENCRYPTION_CONFIG): bytes}}))
}

/// Who writes in it.
fn writer_of(text: &str) -> String {
    providers_of(text).writer
}

#[test]
fn everybody_who_reads_is_found_wherever_it_stands() {
    let text = "resources:\n- providers: [{kms: {name: x}}, {kms: {name: z}}, {identity: {}}]\n- providers: [{identity: {}}, {aescbc: {}}]\n";
    let readers = providers_of(text).readers;
    assert_eq!(readers.iter().collect::<Vec<_>>(), ["aescbc", "x", "z"]);
}

#[test]
fn the_writer_is_found_however_the_configuration_is_written() {
    for text in [
        "resources:\n- providers:\n  - kms:\n      name: x\n      endpoint: e\n  - kms:\n      name: y\n",
        // Other orders, indents, quotes and comments; the list of resources first.
        "resources:\n  # of others\n  - resources: [secrets]\n    providers:\n      - kms: # here\n          endpoint: e\n          name: \"x\"\n      - identity: {}\n",
        "resources: [{providers: [{kms: {name: x}}, {identity: {}}], resources: [secrets]}]",
        r#"{"resources":[{"resources":["secrets"],"providers":[{"kms":{"name":"x"}}]}]}"#,
        // One key for all of it, but for what is not encrypted.
        "resources:\n- providers: [{kms: {name: x}}]\n- providers: [{identity: {}}]\n- providers: [{kms: {name: x}}]\n",
    ] {
        assert_eq!(writer_of(text), "x", "{text}");
    }
}

#[test]
fn no_writer_is_guessed() {
    for text in [
        "",
        "resources: []",
        "resources:\n- providers: []\n",
        // It only reads.
        "resources:\n- providers:\n  - identity: {}\n  - kms:\n      name: x\n",
        "resources:\n- providers:\n  - aescbc: {}\n  - kms:\n      name: x\n",
        // Two keys write.
        "resources:\n- providers: [{kms: {name: x}}]\n- providers: [{kms: {name: y}}]\n",
        "resources:\n- providers: [{kms: {name: x}}]\n- providers: [{aescbc: {}}]\n",
        // What the API server does not take.
        "resources:\n- providers: [{kms: {name: x}, identity: {}}]\n",
        "resources:\n- providers: [{kms: {name: 7}}]\n",
        "resources:\n- providers: [{kms: x}]\n",
        "resources: {providers: [{kms: {name: x}}]}",
        "resources:\n- providers: [{kms: {name: x}}]\nresources:\n- providers: [{kms: {name: y}}]\n",
        "resources:\n- providers: [{kms: {name: x}}",
        "- kms:\n  name: x\n",
    ] {
        assert_eq!(writer_of(text), "", "{text}");
    }
    for data in [
        json!({}),
        json!({(ENCRYPTION_CONFIG): "no base64!"}),
        json!({(ENCRYPTION_CONFIG): "/w=="}),
    ] {
        assert_eq!(providers_in(&json!({"data": data})), ConfiguredProviders::default());
    }
}

#[test]
fn a_deployment_has_rolled_when_nothing_earlier_is_left() {
    let rolled = json!({
        "metadata": {"generation": 4},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3},
    });
    assert!(has_rolled(&rolled));
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
        assert!(!has_rolled(&deployment), "{pointer}");
    }
    let mut leaving = rolled;
    leaving["status"]["terminatingReplicas"] = json!(1);
    assert!(!has_rolled(&leaving));
    assert!(!has_rolled(&json!({"spec": {"replicas": 1}})));
}
