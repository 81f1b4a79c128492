use serde_json::{Map, json};

use super::compare::merge_applied as merge;
use super::*;
use crate::fixture::{
    CONTROL_PLANE, OWNER_UID, any_changes, desired_objects_of, example_inputs,
    example_with_changes, validated_cluster,
};
use crate::objects::{
    DesiredObjectInputs, ObjectWriter, desired_objects, unrendered_objects, without_ownership_marks,
};
use crate::templates::WorkloadTemplates;
use proptest::prelude::*;

/// A fake API server: merges what each writer applied last, sets defaults and omits empty values.
#[derive(Default)]
struct FakeApiServer {
    applied: BTreeMap<ObjectKey, BTreeMap<ObjectWriter, Value>>,
    manual_changes: BTreeMap<ObjectKey, Value>,
    writes: u32,
}

impl FakeApiServer {
    /// Returns the live objects.
    fn observed_objects(&self) -> BTreeMap<ObjectKey, ObservedObject> {
        let live = |key: &ObjectKey| {
            let mut value = Value::Object(Map::new());
            for applied in self.applied[key].values() {
                merge(&mut value, applied);
            }
            if let Some(foreign) = self.manual_changes.get(key) {
                merge(&mut value, foreign);
            }
            value["metadata"]["uid"] = json!("u");
            value["metadata"]["resourceVersion"] = json!(self.writes.to_string());
            value["metadata"]["creationTimestamp"] = json!("2026-11-21T00:00:00Z");
            value["metadata"]["generation"] = json!(1);
            let managers =
                self.applied[key].keys().map(|it| json!({"manager": it.field_manager()}));
            value["metadata"]["managedFields"] = managers.collect();
            if key.kind == OwnedKind::Deployment {
                value["spec"]["progressDeadlineSeconds"] = json!(600);
                for container in
                    value["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap()
                {
                    container["terminationMessagePath"] = json!("/dev/termination-log");
                }
                value["status"] = json!({"replicas": 1});
            }
            drop_empty(&mut value);
            ObservedObject::from_json(value).unwrap()
        };
        self.applied.keys().map(|key| (key.clone(), live(key))).collect()
    }

    fn apply_changes(&mut self, changes: &[ObjectChange]) {
        for change in changes.iter().filter(|change| change.is_write()) {
            self.writes += 1;
            match change {
                ObjectChange::Create { object } | ObjectChange::Apply { object, .. } => {
                    let applied = self.applied.entry(object.key.clone()).or_default();
                    // A forced apply takes fields from the other managers.
                    for other in applied.values_mut() {
                        overwrite_common_fields(other, &object.value);
                    }
                    applied.insert(object.writer, object.value.clone());
                    if let ObjectChange::Apply { unowned_fields: foreign, .. } = change
                        && let Some(by_hand) = self.manual_changes.get_mut(&object.key)
                    {
                        let patch = removal_patch(foreign, "1");
                        remove_patched_fields(by_hand, &patch);
                    }
                }
                ObjectChange::Prune { key, .. } => drop(self.applied.remove(key)),
                ObjectChange::Unowned { .. } | ObjectChange::Unchanged { .. } => {}
            }
        }
    }

    fn reconcile(&mut self, desired: &[DesiredObject]) -> Vec<ObjectChange> {
        let changes = diff_objects(&self.observed_objects(), desired, OWNED_BY_EXAMPLE);
        self.apply_changes(&changes);
        changes.into_iter().filter(ObjectChange::is_write).collect()
    }
}

static NO_OBJECTS: BTreeSet<ObjectKey> = BTreeSet::new();

const fn scope_of<'a>(cluster_label: &'a str, owner_uid: &'a str) -> PruneScope<'a> {
    PruneScope::OwnedBy { cluster_label, owner_uid, unrendered: &NO_OBJECTS }
}

const OWNED_BY_EXAMPLE: PruneScope<'_> = scope_of("harbour", OWNER_UID);

fn drop_empty(value: &mut Value) {
    if let Value::Object(map) = value {
        map.values_mut().for_each(drop_empty);
        map.retain(|_, value| {
            !matches!(value, Value::Null) && value.as_str() != Some("") && *value != json!([])
        });
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(drop_empty);
    }
}

/// Overwrites the values in `other` that `value` has, too.
fn overwrite_common_fields(other: &mut Value, value: &Value) {
    match (other, value) {
        (Value::Object(other), Value::Object(value)) => {
            for (key, other) in other {
                if let Some(value) = value.get(key) {
                    overwrite_common_fields(other, value);
                }
            }
        }
        (other, value) => *other = value.clone(),
    }
}

fn remove_patched_fields(value: &mut Value, patch: &Value) {
    let (Some(map), Some(patch)) = (value.as_object_mut(), patch.as_object()) else { return };
    for (key, patch) in patch {
        if patch.is_null() {
            map.remove(key);
        } else if let Some(value) = map.get_mut(key) {
            remove_patched_fields(value, patch);
        }
    }
}

fn converged_server(objects: &[DesiredObject]) -> FakeApiServer {
    let mut server = FakeApiServer::default();
    server.reconcile(objects);
    assert_eq!(server.reconcile(objects), []);
    server
}

fn key_of(objects: &[DesiredObject], name: &str) -> ObjectKey {
    objects.iter().find(|object| object.key.name == name).unwrap().key.clone()
}

fn path_texts(paths: &[FieldPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

/// Returns the only change after a manual edit.
fn change_after_manual_edit(name: &str, by_hand: Value) -> (Vec<String>, Vec<String>, bool) {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let mut server = converged_server(&objects);
    server.manual_changes.insert(key_of(&objects, name), by_hand);
    let changes: Vec<_> = diff_objects(&server.observed_objects(), &objects, OWNED_BY_EXAMPLE)
        .into_iter()
        .filter(ObjectChange::is_write)
        .collect();
    let [ObjectChange::Apply { differing_fields: why, unowned_fields: foreign, force, .. }, ..] =
        changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    (path_texts(why), path_texts(foreign), *force)
}

const NO_PATHS: [&str; 0] = [];

#[test]
fn everything_is_created_in_order_and_then_nothing_is_written() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let mut server = FakeApiServer::default();
    let changes = server.reconcile(&objects);
    assert_eq!(changes.len(), objects.len());
    assert!(changes.iter().all(|change| matches!(change, ObjectChange::Create { .. })));
    assert_eq!(server.reconcile(&objects), []);
    insta::assert_snapshot!(format_plan(&changes, &BTreeMap::new()));
}

#[test]
fn unowned_class_parameter_is_removed() {
    let (why, foreign, force) = change_after_manual_edit(
        "managed-azure-disk-csi",
        json!({"spec": {"parameters": {"cloudName": "AzureChinaCloud"}, "secretObjects": [{}]}}),
    );
    assert_eq!(why, NO_PATHS);
    assert_eq!(foreign, ["spec.parameters.cloudName", "spec.secretObjects"]);
    assert!(force);
}

#[test]
fn a_value_that_was_changed_by_hand_is_set_again_even_if_it_should_be_empty() {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    let without_reader =
        DesiredObjectInputs { vault_reader: None, ..example_inputs(&wire, &templates) };
    let objects = desired_objects(&validated_cluster(&wire), &without_reader);
    let mut server = converged_server(&objects);
    let class = key_of(&objects, "managed-azure-disk-csi");
    let by_hand = json!({"spec": {"parameters": {"userAssignedIdentityID": "another-client-id"}}});
    server.manual_changes.insert(class, by_hand);
    let changes = diff_objects(&server.observed_objects(), &objects, OWNED_BY_EXAMPLE);
    let writes: Vec<_> = changes.iter().filter(|change| change.is_write()).collect();
    let [ObjectChange::Apply { differing_fields: why, .. }] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!(path_texts(why), ["spec.parameters.userAssignedIdentityID"]);
}

#[test]
fn fields_added_by_other_managers_stay() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let mut server = converged_server(&objects);
    let additions = [
        (
            "ingress-operator",
            json!({"metadata": {"labels": {"team": "edge"}}, "spec": {"template": {"spec": {
                "containers": [{"name": "injected"}],
                "volumes": [{"name": "injected"}],
                "nodeSelector": {"pool": "system"},
            }}}}),
        ),
        (
            "managed-azure-disk-csi",
            json!({"metadata": {"annotations": {"note": "x"}, "finalizers": ["a/b"]}}),
        ),
        ("clusters-harbour", json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "x"}}})),
    ];
    for (name, by_hand) in additions {
        server.manual_changes.insert(key_of(&objects, name), by_hand);
    }
    assert_eq!(server.reconcile(&objects), []);
}

#[test]
fn a_foreign_key_of_a_configuration_and_a_foreign_argument_are_seen() {
    let (why, foreign, _) =
        change_after_manual_edit("azure-cloud-config", json!({"data": {"extra": "eA=="}}));
    assert_eq!((why.len(), foreign), (0, vec!["data.extra".to_owned()]));
    let container = json!({"name": "ingress-operator", "args": ["sleep"]});
    let spec = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let (why, foreign, _) = change_after_manual_edit("ingress-operator", spec);
    assert_eq!(why, ["spec.template.spec.containers[name=ingress-operator].args"]);
    assert_eq!(foreign, NO_PATHS);
}

#[test]
fn a_label_of_a_namespace_is_never_taken_by_force() {
    let label = "pod-security.kubernetes.io/enforce";
    let (why, _, force) = change_after_manual_edit(
        "clusters-harbour",
        json!({"metadata": {"labels": {label: "baseline"}}}),
    );
    assert_eq!((why, force), (vec![format!("metadata.labels[{label}]")], false));
}

#[test]
fn object_without_ownership_labels_is_not_force_applied() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let mut server = converged_server(&objects);
    let class = key_of(&objects, "managed-azure-file-csi");
    for applied in server.applied.get_mut(&class).unwrap().values_mut() {
        applied["metadata"].as_object_mut().unwrap().remove("labels");
        applied["spec"]["parameters"]["keyvaultName"] = json!("another");
    }
    let changes = server.reconcile(&objects);
    let [ObjectChange::Apply { differing_fields: why, force: false, .. }] = changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    assert!(path_texts(why).contains(&"spec.parameters.keyvaultName".to_owned()));
}

#[test]
fn unowned_object_is_left_unchanged() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let name = key_of(&objects, "azure-cloud-config");
    let stranger = json!({
        "apiVersion": "v1",
        "kind": name.kind.info().kind,
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "uid": "u",
            "resourceVersion": "1",
            "managedFields": [{"manager": "kubectl"}],
        },
        "data": {"config": "eA=="},
    });
    let mut observed = converged_server(&objects).observed_objects();
    observed.insert(name.clone(), ObservedObject::from_json(stranger).unwrap());
    let changes = diff_objects(&observed, &objects, OWNED_BY_EXAMPLE);
    let reported: Vec<_> =
        changes.iter().filter(|it| !matches!(it, ObjectChange::Unchanged { .. })).collect();
    let [ObjectChange::Unowned { object, differing_fields: why }] = reported.as_slice() else {
        panic!("{reported:?}")
    };
    assert_eq!(object.key, name);
    assert!(path_texts(why).contains(&"data[cloud.conf]".to_owned()), "{why:?}");
    assert!(!reported[0].is_write());
    let plan = format_plan(&changes, &BTreeMap::new());
    assert!(plan.contains(&format!("leave {name}, which another manager created\n")), "{plan}");
    assert!(plan.ends_with("1 of other managers, skipped\n"), "{plan}");
}

#[test]
fn undesired_objects_of_this_cluster_are_pruned() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let off = ("/spec/capabilities".to_owned(), json!({"disabled": ["Console", "Ingress"]}));
    let fewer = desired_objects_of(&example_with_changes(&[off]));
    let pruned = |server: &FakeApiServer, pruning| -> Vec<String> {
        let changes = diff_objects(&server.observed_objects(), &fewer, pruning);
        let prunes = changes.iter().filter(|change| matches!(change, ObjectChange::Prune { .. }));
        prunes.map(|change| change.key().to_string()).collect()
    };
    let mut server = converged_server(&objects);
    assert_eq!(
        pruned(&server, OWNED_BY_EXAMPLE),
        [
            "Deployment clusters-harbour/ingress-operator",
            "SecretProviderClass clusters-harbour/managed-azure-ingress",
        ]
    );
    assert_eq!(pruned(&server, PruneScope::Never), NO_PATHS);
    let others = [("another", OWNER_UID), ("harbour", "another"), ("harbour", "")];
    for (cluster_label, owner_uid) in others {
        assert_eq!(pruned(&server, scope_of(cluster_label, owner_uid)), NO_PATHS);
    }
    let class = key_of(&objects, "managed-azure-ingress");
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}});
    server.manual_changes.insert(class, deleting);
    assert_eq!(pruned(&server, OWNED_BY_EXAMPLE), ["Deployment clusters-harbour/ingress-operator"]);
}

/// The reference leaves such objects as they are, and reconciles all others.
#[test]
fn objects_that_cannot_be_rendered_stay() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let server = converged_server(&objects);
    let mode = "hypershift.openshift.io/azure-load-balancer-health-probe-mode";
    let bad = ("/metadata/annotations".to_owned(), json!({(mode): "Shared"}));
    let secret = (format!("{CONTROL_PLANE}/disk/credentialsSecretName"), json!("another"));
    let wire = example_with_changes(&[bad, secret]);
    let (cluster, templates) = (validated_cluster(&wire), WorkloadTemplates::default());
    let inputs = example_inputs(&wire, &templates);
    let unrendered = unrendered_objects(&cluster, &inputs);
    let names: Vec<_> = unrendered.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "ConfigMap clusters-harbour/azure-cloud-config",
            "Secret clusters-harbour/azure-cloud-config",
            "Deployment clusters-harbour/azure-cloud-controller-manager",
        ]
    );
    let scope = PruneScope::OwnedBy {
        cluster_label: "harbour",
        owner_uid: OWNER_UID,
        unrendered: &unrendered,
    };
    let changes =
        diff_objects(&server.observed_objects(), &desired_objects(&cluster, &inputs), scope);
    let written: Vec<_> =
        changes.iter().filter(|it| it.is_write()).map(ObjectChange::key).collect();
    assert!(written.iter().all(|key| !unrendered.contains(key)), "{written:?}");
    // The other identities go on: the class of the changed secret is written.
    assert!(written.iter().any(|key| key.name == "managed-azure-disk-csi"), "{written:?}");
    assert!(written.iter().any(|key| key.name == "azure-disk-csi-config"), "{written:?}");
}

#[test]
fn pruning_keeps_namespace_and_control_plane() {
    let server = converged_server(&desired_objects_of(&example_with_changes(&[])));
    let changes = diff_objects(&server.observed_objects(), &[], OWNED_BY_EXAMPLE);
    let kinds: Vec<_> = changes.iter().map(|change| change.key().kind).collect();
    assert!(
        !kinds.contains(&OwnedKind::Namespace) && !kinds.contains(&OwnedKind::HostedControlPlane)
    );
    assert!(kinds.is_sorted_by(|one, other| one >= other), "what depends on others goes first");
}

#[test]
fn object_being_deleted_is_not_written() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let mut server = converged_server(&objects);
    let deleting = json!({
        "metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"},
        "spec": {"provider": "another"},
    });
    server.manual_changes.insert(key_of(&objects, "managed-azure-cpo"), deleting);
    assert_eq!(server.reconcile(&objects), []);
}

#[test]
fn the_patch_that_takes_fields_away_names_the_version() {
    let class = json!({"spec": {"parameters": {"a": "x", "b.c": "y"}, "d": {"e": 1}}});
    let foreign = unowned_fields(&class, &json!({"spec": {"parameters": {}}}), "spec");
    let expected = json!({
        "metadata": {"resourceVersion": "7"},
        "spec": {"parameters": {"a": null, "b.c": null}, "d": null},
    });
    assert_eq!(removal_patch(&foreign, "7"), expected);
    assert_eq!(path_texts(&foreign), ["spec.d", "spec.parameters.a", "spec.parameters[b.c]"]);
}

#[test]
fn deployment_with_another_selector_is_recreated() {
    let wire = example_with_changes(&[]);
    let canaries = desired_objects_of(&wire);
    let templates = WorkloadTemplates::parse(
        "deployments: {capi-provider: {spec: {selector: {matchLabels: {control-plane: capi}}, template: {metadata: {labels: {control-plane: capi}}, spec: {containers: [{name: manager, image: x}]}}}}}",
    );
    let templates = templates.unwrap();
    let components = desired_objects(&validated_cluster(&wire), &example_inputs(&wire, &templates));
    let mut server = converged_server(&canaries);
    let changes = server.reconcile(&components);
    let [ObjectChange::Prune { key, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(key.name, "capi-provider");
    let changes = server.reconcile(&components);
    assert!(matches!(changes.as_slice(), [ObjectChange::Create { .. }]));
    assert_eq!(server.reconcile(&components), []);
}

#[test]
fn a_selector_with_an_empty_list_is_the_same_selector() {
    let wire = example_with_changes(&[]);
    let template = |image: &str| {
        let text = format!(
            "deployments: {{kube-apiserver: {{spec: {{selector: {{matchLabels: {{app: kas}}, matchExpressions: []}}, template: {{metadata: {{labels: {{app: kas}}}}, spec: {{securityContext: {{runAsUser: 1001}}, containers: [{{name: kube-apiserver, image: {image}}}]}}}}}}}}}}"
        );
        let templates = WorkloadTemplates::parse(&text).unwrap();
        desired_objects(&validated_cluster(&wire), &example_inputs(&wire, &templates))
    };
    // The API server stores no empty lists.
    let mut server = converged_server(&template("one"));
    let changes = server.reconcile(&template("two"));
    let [ObjectChange::Apply { differing_fields: why, .. }] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert!(path_texts(why).iter().any(|path| path.ends_with("image")), "{why:?}");
}

#[test]
fn changed_secret_name_changes_only_objects_that_contain_it() {
    let mut server = converged_server(&desired_objects_of(&example_with_changes(&[])));
    let field = format!("{CONTROL_PLANE}/disk/credentialsSecretName");
    let renamed = desired_objects_of(&example_with_changes(&[(field, json!("another"))]));
    let changes = diff_objects(&server.observed_objects(), &renamed, OWNED_BY_EXAMPLE);
    insta::assert_snapshot!(format_plan(&changes, &BTreeMap::new()));
    server.reconcile(&renamed);
    assert_eq!(server.reconcile(&renamed), []);
}

/// Returns the objects of the two writers, each configured with its own vault reader.
fn two_operators(one: Option<&str>, other: Option<&str>) -> [Vec<DesiredObject>; 2] {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    [(one, ObjectWriter::HostedCluster), (other, ObjectWriter::ControlPlane)].map(
        |(reader, writer)| {
            let vault_reader = reader.map(|text| text.parse().unwrap());
            let inputs = DesiredObjectInputs { vault_reader, ..example_inputs(&wire, &templates) };
            let objects = desired_objects(&validated_cluster(&wire), &inputs);
            objects.into_iter().filter(|object| object.writer == writer).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_second_reconcile_writes_nothing(changes in any_changes()) {
        let objects = desired_objects_of(&example_with_changes(&changes));
        let mut server = FakeApiServer::default();
        server.reconcile(&objects);
        prop_assert_eq!(server.reconcile(&objects), vec![]);
    }

    #[test]
    fn any_cluster_change_converges_in_one_reconcile(one in any_changes(), other in any_changes()) {
        let (one, other) = (desired_objects_of(&example_with_changes(&one)), desired_objects_of(&example_with_changes(&other)));
        let mut server = FakeApiServer::default();
        server.reconcile(&one);
        server.reconcile(&other);
        prop_assert_eq!(server.reconcile(&other), vec![]);
        let wanted: BTreeSet<_> = other.iter().map(|object| object.key.clone()).collect();
        let there: BTreeSet<_> = server.applied.keys().cloned().collect();
        prop_assert_eq!(there, wanted);
    }

    #[test]
    fn two_operators_with_different_vault_readers_converge(
        order in prop::collection::vec(any::<bool>(), 6..12),
        one in prop::option::of("[0-9a-f]{8}-0000-4000-8000-000000000000"),
        other in prop::option::of("[0-9a-f]{8}-0000-4000-8000-000000000000"),
    ) {
        let operators = two_operators(one.as_deref(), other.as_deref());
        let mut server = FakeApiServer::default();
        let reconcile = |slot: bool, server: &mut FakeApiServer| {
            let changes = diff_objects(&server.observed_objects(), &operators[usize::from(slot)], PruneScope::Never);
            server.apply_changes(&changes);
        };
        for slot in order {
            reconcile(slot, &mut server);
        }
        for slot in [false, true, false] {
            reconcile(slot, &mut server);
        }
        let before = server.writes;
        for slot in [true, false, true, false] {
            reconcile(slot, &mut server);
        }
        prop_assert_eq!(server.writes, before, "they write in turn");
        let class = key_of(&operators[0], "managed-azure-kms");
        let live = &server.observed_objects()[&class].value;
        let reader = live.pointer("/spec/parameters/userAssignedIdentityID");
        let reader = reader.and_then(Value::as_str).unwrap_or_default();
        prop_assert_eq!(reader, one.unwrap_or_default(), "the writer of HostedClusters decides");
        let hash = crate::hash::desired_state_hash(&without_ownership_marks(&server.applied[&class][&ObjectWriter::ControlPlane]));
        prop_assert_eq!(&live["metadata"]["annotations"][DESIRED_STATE_HASH_ANNOTATION], &json!(hash));
    }
}
