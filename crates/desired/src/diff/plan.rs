//! Text output of a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{FieldPath, ObjectChange};
use crate::objects::{ObjectKey, ObservedObject, OwnedKind};

/// Formats the changes as lines: the operation on each object, and the changed fields. If `live` has
/// the object, also the old and the new values, except those of Secrets. Unchanged objects are only
/// counted.
pub fn format_plan(changes: &[ObjectChange], live: &BTreeMap<ObjectKey, ObservedObject>) -> String {
    let reported =
        changes.iter().filter(|change| !matches!(change, ObjectChange::Unchanged { .. }));
    let mut lines: Vec<_> = reported.map(|change| format_change(change, live)).collect();
    let count =
        |wanted: fn(&ObjectChange) -> bool| changes.iter().filter(|change| wanted(change)).count();
    lines.push(format!(
        "{} to create, {} to change, {} to delete, {} unchanged",
        count(|change| matches!(change, ObjectChange::Create { .. })),
        count(|change| matches!(change, ObjectChange::Apply { .. })),
        count(|change| matches!(change, ObjectChange::Prune { .. })),
        count(|change| matches!(change, ObjectChange::Unchanged { .. })),
    ));
    let foreign = count(|change| matches!(change, ObjectChange::Unowned { .. }));
    if foreign > 0 {
        lines.push(format!("{foreign} of other managers, skipped"));
    }
    lines.join("\n") + "\n"
}

fn format_change(change: &ObjectChange, live: &BTreeMap<ObjectKey, ObservedObject>) -> String {
    let key = change.key();
    match change {
        ObjectChange::Create { object } => {
            format!("create {key} as {}", object.writer.field_manager())
        }
        ObjectChange::Apply { object, differing_fields: why, unowned_fields: foreign, .. } => {
            let mut line = format!("change {key} as {}", object.writer.field_manager());
            let live = live.get(key).map(|observed| &observed.value);
            let text = |path: &FieldPath, of: &Value| value_text(key, path, of);
            line.extend(why.iter().map(|path| {
                let values = live.map(|live| (text(path, live), text(path, &object.value)));
                let values = values.map(|(old, new)| format!(": {old} -> {new}"));
                format!("\n  set {path}{}", values.unwrap_or_default())
            }));
            line.extend(foreign.iter().map(|path| {
                let old = live.map(|live| format!(": {}", text(path, live)));
                format!("\n  remove {path}{}", old.unwrap_or_default())
            }));
            line
        }
        ObjectChange::Unowned { differing_fields: why, .. } => {
            let mut line = format!("leave {key}, which another manager created");
            line.extend(why.iter().map(|path| format!("\n  differs in {path}")));
            line
        }
        ObjectChange::Prune { .. } => format!("delete {key}"),
        ObjectChange::Unchanged { .. } => format!("keep {key}"),
    }
}

/// The value of a field as JSON.
fn value_text(key: &ObjectKey, path: &FieldPath, object: &Value) -> String {
    match path.value_in(object) {
        None => "(absent)".to_owned(),
        Some(_) if key.kind == OwnedKind::Secret => "(not shown)".to_owned(),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::{ApplyStep, DesiredObject, ObjectWriter};

    /// The lines of the plan for the first change of an object.
    fn plan_of_change(kind: OwnedKind, live: &Value, desired: &Value) -> String {
        let metadata = json!({
            "name": "one", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "labels": {crate::objects::CLUSTER_LABEL: "harbour"},
        });
        let object = |fields: &Value| {
            let mut object = fields.clone();
            object["apiVersion"] = json!(kind.info().api_version);
            object["kind"] = json!(kind.info().kind);
            object["metadata"] = metadata.clone();
            object
        };
        let observed = ObservedObject::from_json(object(live)).unwrap();
        let key = observed.key.clone();
        let writer = ObjectWriter::ControlPlane;
        let desired = DesiredObject {
            key: key.clone(),
            value: object(desired),
            writer,
            step: ApplyStep::Namespace,
            keeps_live_vault_reader: false,
        };
        let change = ObjectChange::Apply {
            differing_fields: super::super::compare::differences(&observed.value, &desired.value),
            unowned_fields: Vec::new(),
            object: desired,
            force: true,
            resource_version: "1".to_owned(),
        };
        format_plan(&[change], &BTreeMap::from([(key, observed)]))
    }

    #[test]
    fn changed_fields_are_shown_with_old_and_new_value() {
        let container = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": image}]}}}});
        let mut desired = container("registry.example/a:2");
        desired["spec"]["replicas"] = json!(1);
        let plan =
            plan_of_change(OwnedKind::Deployment, &container("registry.example/a:1"), &desired);
        for line in [
            "  set spec.template.spec.containers[name=a].image: \"registry.example/a:1\" -> \"registry.example/a:2\"\n",
            "  set spec.replicas: (absent) -> 1\n",
        ] {
            assert!(plan.contains(line), "{plan}");
        }
    }

    #[test]
    fn values_of_secrets_are_never_shown() {
        let secret = |value: &str| json!({"data": {"azure.json": value}});
        let plan = plan_of_change(OwnedKind::Secret, &secret("b2xk"), &secret("bmV3"));
        assert!(plan.contains("  set data[azure.json]: (not shown) -> (not shown)\n"), "{plan}");
        assert!(!plan.contains("b2xk") && !plan.contains("bmV3"), "{plan}");
    }
}
