use serde_json::{Map, json};

use super::compare::merge_for_tests as merge;
use super::*;
use crate::fixture::{CONTROL_PLANE, OWNER_UID, any_changes, changed, inputs, objects_of, valid};
use crate::objects::{Inputs, Writer, desired_objects, reference_shape};
use crate::templates::WorkloadTemplates;
use proptest::prelude::*;

/// As much of an API server as a reconcile meets: what each writer applied last is merged, defaults
/// are filled in, empty values are left out.
#[derive(Default)]
struct Server {
    applied: BTreeMap<ObjectKey, BTreeMap<Writer, Value>>,
    by_hand: BTreeMap<ObjectKey, Value>,
    writes: u32,
}

impl Server {
    /// What is there, as a comparison sees it.
    fn observed(&self) -> BTreeMap<ObjectKey, ObservedObject> {
        let live = |key: &ObjectKey| {
            let mut value = Value::Object(Map::new());
            for applied in self.applied[key].values() {
                merge(&mut value, applied);
            }
            if let Some(foreign) = self.by_hand.get(key) {
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
            ObservedObject::of(value).unwrap()
        };
        self.applied.keys().map(|key| (key.clone(), live(key))).collect()
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes.iter().filter(|change| change.is_write()) {
            self.writes += 1;
            match change {
                Change::Create { object } | Change::Apply { object, .. } => {
                    let applied = self.applied.entry(object.key.clone()).or_default();
                    // Whoever takes a field by force takes it from the others.
                    for other in applied.values_mut() {
                        overwrite(other, &object.value);
                    }
                    applied.insert(object.writer, object.value.clone());
                    if let Change::Apply { foreign, .. } = change
                        && let Some(by_hand) = self.by_hand.get_mut(&object.key)
                    {
                        let patch = removal_patch(foreign, "1");
                        drop_patched(by_hand, &patch);
                    }
                }
                Change::Prune { key, .. } => drop(self.applied.remove(key)),
                Change::Foreign { .. } | Change::Keep { .. } => {}
            }
        }
    }

    fn reconcile(&mut self, desired: &[DesiredObject]) -> Vec<Change> {
        let changes = diff(&self.observed(), desired, OURS);
        self.apply(&changes);
        changes.into_iter().filter(Change::is_write).collect()
    }
}

const OURS: Pruning<'_> = Pruning::Of { cluster_label: "harbour", owner_uid: OWNER_UID };

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

/// Values that `other` has, too, become those of `value`.
fn overwrite(other: &mut Value, value: &Value) {
    match (other, value) {
        (Value::Object(other), Value::Object(value)) => {
            for (key, other) in other {
                if let Some(value) = value.get(key) {
                    overwrite(other, value);
                }
            }
        }
        (other, value) => *other = value.clone(),
    }
}

fn drop_patched(value: &mut Value, patch: &Value) {
    let (Some(map), Some(patch)) = (value.as_object_mut(), patch.as_object()) else { return };
    for (key, patch) in patch {
        if patch.is_null() {
            map.remove(key);
        } else if let Some(value) = map.get_mut(key) {
            drop_patched(value, patch);
        }
    }
}

fn converged(objects: &[DesiredObject]) -> Server {
    let mut server = Server::default();
    server.reconcile(objects);
    assert_eq!(server.reconcile(objects), []);
    server
}

fn key(objects: &[DesiredObject], name: &str) -> ObjectKey {
    objects.iter().find(|object| object.key.name == name).unwrap().key.clone()
}

fn paths(paths: &[FieldPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

/// The one change of a server that somebody touched.
fn touched(name: &str, by_hand: Value) -> (Vec<String>, Vec<String>, bool) {
    let objects = objects_of(&changed(&[]));
    let mut server = converged(&objects);
    server.by_hand.insert(key(&objects, name), by_hand);
    let changes: Vec<_> =
        diff(&server.observed(), &objects, OURS).into_iter().filter(Change::is_write).collect();
    let [Change::Apply { why, foreign, force, .. }, ..] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    (paths(why), paths(foreign), *force)
}

const NOTHING: [&str; 0] = [];

#[test]
fn everything_is_created_in_order_and_then_nothing_is_written() {
    let objects = objects_of(&changed(&[]));
    let mut server = Server::default();
    let changes = server.reconcile(&objects);
    assert_eq!(changes.len(), objects.len());
    assert!(changes.iter().all(|change| matches!(change, Change::Create { .. })));
    assert_eq!(server.reconcile(&objects), []);
    insta::assert_snapshot!(plan_text(&changes));
}

#[test]
fn a_parameter_of_somebody_else_is_taken_away() {
    let (why, foreign, force) = touched(
        "managed-azure-disk-csi",
        json!({"spec": {"parameters": {"cloudName": "AzureChinaCloud"}, "secretObjects": [{}]}}),
    );
    assert_eq!(why, NOTHING);
    assert_eq!(foreign, ["spec.parameters.cloudName", "spec.secretObjects"]);
    assert!(force);
}

#[test]
fn a_value_that_was_changed_by_hand_is_set_again_even_if_it_should_be_empty() {
    let wire = changed(&[]);
    let templates = WorkloadTemplates::default();
    let nobody = Inputs { vault_reader: None, ..inputs(&wire, &templates) };
    let objects = desired_objects(&valid(&wire), &nobody);
    let mut server = converged(&objects);
    let class = key(&objects, "managed-azure-disk-csi");
    let by_hand = json!({"spec": {"parameters": {"userAssignedIdentityID": "somebody"}}});
    server.by_hand.insert(class, by_hand);
    let changes = diff(&server.observed(), &objects, OURS);
    let writes: Vec<_> = changes.iter().filter(|change| change.is_write()).collect();
    let [Change::Apply { why, .. }] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(paths(why), ["spec.parameters.userAssignedIdentityID"]);
}

#[test]
fn what_others_add_elsewhere_stays() {
    let objects = objects_of(&changed(&[]));
    let mut server = converged(&objects);
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
        server.by_hand.insert(key(&objects, name), by_hand);
    }
    assert_eq!(server.reconcile(&objects), []);
}

#[test]
fn a_foreign_key_of_a_configuration_and_a_foreign_argument_are_seen() {
    let (why, foreign, _) = touched("azure-cloud-config", json!({"data": {"extra": "eA=="}}));
    assert_eq!((why.len(), foreign), (0, vec!["data.extra".to_owned()]));
    let container = json!({"name": "ingress-operator", "args": ["sleep"]});
    let spec = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let (why, foreign, _) = touched("ingress-operator", spec);
    assert_eq!(why, ["spec.template.spec.containers[name=ingress-operator].args"]);
    assert_eq!(foreign, NOTHING);
}

#[test]
fn a_label_of_a_namespace_is_never_taken_by_force() {
    let label = "pod-security.kubernetes.io/enforce";
    let (why, _, force) =
        touched("clusters-harbour", json!({"metadata": {"labels": {label: "baseline"}}}));
    assert_eq!((why, force), (vec![format!("metadata.labels[{label}]")], false));
}

#[test]
fn an_object_without_our_mark_is_not_taken_by_force() {
    let objects = objects_of(&changed(&[]));
    let mut server = converged(&objects);
    let class = key(&objects, "managed-azure-file-csi");
    for applied in server.applied.get_mut(&class).unwrap().values_mut() {
        applied["metadata"].as_object_mut().unwrap().remove("labels");
        applied["spec"]["parameters"]["keyvaultName"] = json!("another");
    }
    let changes = server.reconcile(&objects);
    let [Change::Apply { why, force: false, .. }] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert!(paths(why).contains(&"spec.parameters.keyvaultName".to_owned()));
}

#[test]
fn an_object_that_somebody_else_made_is_left_with_all_that_is_in_it() {
    let objects = objects_of(&changed(&[]));
    let name = key(&objects, "azure-cloud-config");
    let stranger = json!({
        "apiVersion": "v1",
        "kind": name.kind.facts().kind,
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "uid": "u",
            "resourceVersion": "1",
            "managedFields": [{"manager": "kubectl"}],
        },
        "data": {"config": "eA=="},
    });
    let mut observed = converged(&objects).observed();
    observed.insert(name.clone(), ObservedObject::of(stranger).unwrap());
    let changes = diff(&observed, &objects, OURS);
    let told: Vec<_> = changes.iter().filter(|it| !matches!(it, Change::Keep { .. })).collect();
    let [Change::Foreign { object, why }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(object.key, name);
    assert!(paths(why).contains(&"data[cloud.conf]".to_owned()), "{why:?}");
    assert!(!told[0].is_write());
    let plan = plan_text(&changes);
    assert!(plan.contains(&format!("leave {name}, which somebody else made\n")), "{plan}");
    assert!(plan.ends_with("1 of others, in the way\n"), "{plan}");
}

#[test]
fn what_is_not_desired_any_more_is_deleted_if_it_is_ours_and_of_this_cluster() {
    let objects = objects_of(&changed(&[]));
    let off = ("/spec/capabilities".to_owned(), json!({"disabled": ["Ingress"]}));
    let fewer = objects_of(&changed(&[off]));
    let pruned = |server: &Server, pruning| -> Vec<String> {
        let changes = diff(&server.observed(), &fewer, pruning);
        let prunes = changes.iter().filter(|change| matches!(change, Change::Prune { .. }));
        prunes.map(|change| change.key().to_string()).collect()
    };
    let mut server = converged(&objects);
    assert_eq!(
        pruned(&server, OURS),
        [
            "Deployment clusters-harbour/ingress-operator",
            "SecretProviderClass clusters-harbour/managed-azure-ingress",
        ]
    );
    assert_eq!(pruned(&server, Pruning::Never), NOTHING);
    let others = [("another", OWNER_UID), ("harbour", "another"), ("harbour", "")];
    for (cluster_label, owner_uid) in others {
        assert_eq!(pruned(&server, Pruning::Of { cluster_label, owner_uid }), NOTHING);
    }
    let class = key(&objects, "managed-azure-ingress");
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}});
    server.by_hand.insert(class, deleting);
    assert_eq!(pruned(&server, OURS), ["Deployment clusters-harbour/ingress-operator"]);
}

#[test]
fn nothing_at_all_is_desired_and_the_namespace_and_the_control_plane_stay() {
    let server = converged(&objects_of(&changed(&[])));
    let changes = diff(&server.observed(), &[], OURS);
    let kinds: Vec<_> = changes.iter().map(|change| change.key().kind).collect();
    assert!(
        !kinds.contains(&OwnedKind::Namespace) && !kinds.contains(&OwnedKind::HostedControlPlane)
    );
    assert!(kinds.is_sorted_by(|one, other| one >= other), "what depends on others goes first");
}

#[test]
fn an_object_on_its_way_out_is_left_to_go() {
    let objects = objects_of(&changed(&[]));
    let mut server = converged(&objects);
    let deleting = json!({
        "metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"},
        "spec": {"provider": "another"},
    });
    server.by_hand.insert(key(&objects, "managed-azure-cpo"), deleting);
    assert_eq!(server.reconcile(&objects), []);
}

#[test]
fn the_patch_that_takes_fields_away_names_the_version() {
    let class = json!({"spec": {"parameters": {"a": "x", "b.c": "y"}, "d": {"e": 1}}});
    let foreign = foreign_fields(&class, &json!({"spec": {"parameters": {}}}), "spec");
    let expected = json!({
        "metadata": {"resourceVersion": "7"},
        "spec": {"parameters": {"a": null, "b.c": null}, "d": null},
    });
    assert_eq!(removal_patch(&foreign, "7"), expected);
    assert_eq!(paths(&foreign), ["spec.d", "spec.parameters.a", "spec.parameters[b.c]"]);
}

#[test]
fn a_deployment_that_selects_other_pods_is_made_anew() {
    let wire = changed(&[]);
    let canaries = objects_of(&wire);
    let templates = WorkloadTemplates::parse(
        "deployments: {capi-provider: {spec: {selector: {matchLabels: {control-plane: capi}}, template: {metadata: {labels: {control-plane: capi}}, spec: {containers: [{name: manager, image: x}]}}}}}",
    );
    let templates = templates.unwrap();
    let components = desired_objects(&valid(&wire), &inputs(&wire, &templates));
    let mut server = converged(&canaries);
    let changes = server.reconcile(&components);
    let [Change::Prune { key, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(key.name, "capi-provider");
    let changes = server.reconcile(&components);
    assert!(matches!(changes.as_slice(), [Change::Create { .. }]));
    assert_eq!(server.reconcile(&components), []);
}

#[test]
fn a_selector_with_an_empty_list_is_the_same_selector() {
    let wire = changed(&[]);
    let template = |image: &str| {
        let text = format!(
            "deployments: {{kube-apiserver: {{spec: {{selector: {{matchLabels: {{app: kas}}, matchExpressions: []}}, template: {{metadata: {{labels: {{app: kas}}}}, spec: {{securityContext: {{runAsUser: 1001}}, containers: [{{name: kube-apiserver, image: {image}}}]}}}}}}}}}}"
        );
        let templates = WorkloadTemplates::parse(&text).unwrap();
        desired_objects(&valid(&wire), &inputs(&wire, &templates))
    };
    // The server stores no empty lists.
    let mut server = converged(&template("one"));
    let changes = server.reconcile(&template("two"));
    let [Change::Apply { why, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    assert!(paths(why).iter().any(|path| path.ends_with("image")), "{why:?}");
}

#[test]
fn another_secret_name_changes_exactly_what_it_is_in() {
    let mut server = converged(&objects_of(&changed(&[])));
    let field = format!("{CONTROL_PLANE}/disk/credentialsSecretName");
    let renamed = objects_of(&changed(&[(field, json!("another"))]));
    insta::assert_snapshot!(plan_text(&diff(&server.observed(), &renamed, OURS)));
    server.reconcile(&renamed);
    assert_eq!(server.reconcile(&renamed), []);
}

/// The objects of the two writers, each told its own reader.
fn two_operators(one: Option<&str>, other: Option<&str>) -> [Vec<DesiredObject>; 2] {
    let wire = changed(&[]);
    let templates = WorkloadTemplates::default();
    [(one, Writer::HostedCluster), (other, Writer::ControlPlane)].map(|(reader, writer)| {
        let vault_reader = reader.map(|text| text.parse().unwrap());
        let inputs = Inputs { vault_reader, ..inputs(&wire, &templates) };
        let objects = desired_objects(&valid(&wire), &inputs);
        objects.into_iter().filter(|object| object.writer == writer).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_second_reconcile_writes_nothing(changes in any_changes()) {
        let objects = objects_of(&changed(&changes));
        let mut server = Server::default();
        server.reconcile(&objects);
        prop_assert_eq!(server.reconcile(&objects), vec![]);
    }

    #[test]
    fn from_any_cluster_to_any_other_it_takes_one_reconcile(one in any_changes(), other in any_changes()) {
        let (one, other) = (objects_of(&changed(&one)), objects_of(&changed(&other)));
        let mut server = Server::default();
        server.reconcile(&one);
        server.reconcile(&other);
        prop_assert_eq!(server.reconcile(&other), vec![]);
        let wanted: BTreeSet<_> = other.iter().map(|object| object.key.clone()).collect();
        let there: BTreeSet<_> = server.applied.keys().cloned().collect();
        prop_assert_eq!(there, wanted);
    }

    #[test]
    fn two_operators_that_were_told_different_readers_come_to_rest(
        order in prop::collection::vec(any::<bool>(), 6..12),
        one in prop::option::of("[0-9a-f]{8}-0000-4000-8000-000000000000"),
        other in prop::option::of("[0-9a-f]{8}-0000-4000-8000-000000000000"),
    ) {
        let operators = two_operators(one.as_deref(), other.as_deref());
        let mut server = Server::default();
        let reconcile = |turn: bool, server: &mut Server| {
            let changes = diff(&server.observed(), &operators[usize::from(turn)], Pruning::Never);
            server.apply(&changes);
        };
        for turn in order {
            reconcile(turn, &mut server);
        }
        for turn in [false, true, false] {
            reconcile(turn, &mut server);
        }
        let before = server.writes;
        for turn in [true, false, true, false] {
            reconcile(turn, &mut server);
        }
        prop_assert_eq!(server.writes, before, "they write in turn");
        let class = key(&operators[0], "managed-azure-kms");
        let live = &server.observed()[&class].value;
        let reader = live.pointer("/spec/parameters/userAssignedIdentityID");
        let reader = reader.and_then(Value::as_str).unwrap_or_default();
        prop_assert_eq!(reader, one.unwrap_or_default(), "the writer of HostedClusters decides");
        let hash = crate::hash::desired_state_hash(&reference_shape(&server.applied[&class][&Writer::ControlPlane]));
        prop_assert_eq!(&live["metadata"]["annotations"][DESIRED_STATE_HASH], &json!(hash));
    }
}
