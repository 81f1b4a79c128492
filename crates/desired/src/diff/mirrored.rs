//! The fields of a HostedControlPlane that depend on the live object.

use serde_json::{Map, Value};

use super::field_path::FieldPath;
use crate::objects::{
    COPIED_RESTART_DATE_ANNOTATION, DesiredObject, OwnedKind, RESTART_DATE_ANNOTATION,
    is_mirrored_annotation, is_mirrored_label,
};

const ANNOTATIONS: &str = "/metadata/annotations";
const BASE_DOMAIN: &str = "/spec/dns/baseDomain";

/// Whether an annotation or a label with this name is mirrored.
type IsMirrored = fn(&str) -> bool;

/// Returns the mirrored annotations and labels of the live HostedControlPlane that the HostedCluster
/// does not have, whichever manager set them.
pub(super) fn stale_mirrored_fields(desired: &DesiredObject, live: &Value) -> Vec<FieldPath> {
    if desired.key.kind != OwnedKind::HostedControlPlane {
        return Vec::new();
    }
    let maps: [(&str, IsMirrored); 2] =
        [("annotations", is_mirrored_annotation), ("labels", is_mirrored_label)];
    let stale = maps.into_iter().flat_map(|(map, is_mirrored)| {
        let entries = |object: &Value| {
            object.pointer(&format!("/metadata/{map}")).and_then(Value::as_object).cloned()
        };
        let wanted = entries(&desired.value).unwrap_or_default();
        let is_stale = move |key: &String| is_mirrored(key) && !wanted.contains_key(key);
        let path = FieldPath::default().child_field("metadata").child_field(map);
        let keys = entries(live).unwrap_or_default().into_iter().map(|(key, _)| key);
        keys.filter(is_stale).map(move |key| path.child_field(&key)).collect::<Vec<_>>()
    });
    stale.collect()
}

/// Returns the desired HostedControlPlane with the values of the live one that it keeps: the restart
/// date and the base domain. The desired-state hash remains that of the HostedCluster's values.
pub(super) fn with_live_fields(desired: &DesiredObject, live: &Value) -> Option<DesiredObject> {
    if desired.key.kind != OwnedKind::HostedControlPlane {
        return None;
    }
    let mut merged = desired.clone();
    keep_restart_date(&mut merged.value, live);
    keep_base_domain(&mut merged.value, live);
    (merged.value != desired.value).then_some(merged)
}

/// Keeps the restart date of the live object, unless the HostedCluster has a date that was not copied
/// yet.
///
/// The date is copied once, so that other managers can set it on the HostedControlPlane, and it
/// stays when the HostedCluster no longer has it: a change restarts the control plane.
fn keep_restart_date(desired: &mut Value, live: &Value) {
    let empty = Map::new();
    let live = live.pointer(ANNOTATIONS).and_then(Value::as_object).unwrap_or(&empty);
    let Some(own) = desired.pointer_mut(ANNOTATIONS).and_then(Value::as_object_mut) else { return };
    let wanted = own.get(COPIED_RESTART_DATE_ANNOTATION);
    if wanted.is_some() && wanted != live.get(COPIED_RESTART_DATE_ANNOTATION) {
        return;
    }
    for key in [RESTART_DATE_ANNOTATION, COPIED_RESTART_DATE_ANNOTATION] {
        match live.get(key) {
            Some(value) => own.insert(key.to_owned(), value.clone()),
            None => own.remove(key),
        };
    }
}

/// Keeps the base domain of the live object if the HostedCluster no longer has one: the schema of the
/// HostedControlPlane rejects a change.
fn keep_base_domain(desired: &mut Value, live: &Value) {
    let Some(domain) = desired.pointer_mut(BASE_DOMAIN).filter(|it| **it == "") else { return };
    if let Some(live) = live.pointer(BASE_DOMAIN).filter(|it| it.is_string()) {
        *domain = live.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::{ObjectChange, PruneScope, diff_objects};
    use super::*;
    use crate::fixture::{desired_objects_of, example_json, parse_hosted_cluster_json};
    use crate::objects::ObservedObject;

    /// Returns the HostedControlPlane of the example with this restart date.
    fn control_plane(restart_date: Option<&str>) -> DesiredObject {
        let mut example = example_json();
        if let Some(date) = restart_date {
            example["metadata"]["annotations"][RESTART_DATE_ANNOTATION] = json!(date);
        }
        control_plane_of(example)
    }

    fn control_plane_of(cluster: Value) -> DesiredObject {
        let objects = desired_objects_of(&parse_hosted_cluster_json(cluster));
        let is_wanted = |it: &DesiredObject| it.key.kind == OwnedKind::HostedControlPlane;
        objects.into_iter().find(is_wanted).unwrap()
    }

    fn change_of(desired: &DesiredObject, mut live: Value) -> ObjectChange {
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["resourceVersion"] = json!("7");
        let observed = ObservedObject::from_json(live).unwrap();
        let observed = BTreeMap::from([(desired.key.clone(), observed)]);
        let changes = diff_objects(&observed, std::slice::from_ref(desired), PruneScope::Never);
        changes.into_iter().next().unwrap()
    }

    #[test]
    fn mirrored_metadata_without_its_origin_is_removed() {
        let desired = control_plane(None);
        let mut live = desired.value.clone();
        for (map, key) in [
            ("annotations", "hypershift.openshift.io/topology"),
            ("annotations", "idpoverrides.hypershift.openshift.io/github"),
            ("labels", "api.openshift.com/limited-support"),
            ("annotations", "example.com/kept"),
            ("labels", "example.com/kept"),
        ] {
            live["metadata"][map][key] = json!("x");
        }
        let ObjectChange::Apply { unowned_fields, force: true, .. } = change_of(&desired, live)
        else {
            panic!("not applied");
        };
        let paths: Vec<_> = unowned_fields.iter().map(ToString::to_string).collect();
        assert_eq!(
            paths,
            [
                "metadata.annotations[hypershift.openshift.io/topology]",
                "metadata.annotations[idpoverrides.hypershift.openshift.io/github]",
                "metadata.labels[api.openshift.com/limited-support]",
            ]
        );
    }

    #[test]
    fn base_domain_stays_when_the_cluster_no_longer_has_one() {
        let before = control_plane(None);
        assert_ne!(before.value["spec"]["dns"]["baseDomain"], "");
        let mut example = example_json();
        example["spec"].as_object_mut().unwrap().remove("dns");
        let desired = control_plane_of(example);
        assert_eq!(desired.value["spec"]["dns"], json!({"baseDomain": ""}));
        let merged = with_live_fields(&desired, &before.value).unwrap();
        let domain = |object: &DesiredObject| object.value["spec"]["dns"]["baseDomain"].clone();
        assert_eq!(domain(&merged), domain(&before));
    }

    #[test]
    fn restart_date_of_another_manager_stays_until_the_cluster_has_a_new_one() {
        let first = control_plane(Some("2026-01-01"));
        let mut live = first.value.clone();
        live["metadata"]["annotations"][RESTART_DATE_ANNOTATION] = json!("2026-02-02");
        let change = change_of(&first, live.clone());
        assert!(matches!(change, ObjectChange::Unchanged { .. }), "{change:?}");
        let applied = |desired: &DesiredObject| {
            let ObjectChange::Apply { object, .. } = change_of(desired, live.clone()) else {
                panic!("not applied");
            };
            [RESTART_DATE_ANNOTATION, COPIED_RESTART_DATE_ANNOTATION]
                .map(|key| object.value["metadata"]["annotations"][key].clone())
        };
        assert_eq!(applied(&control_plane(Some("2026-03-03"))), ["2026-03-03", "2026-03-03"]);
        // Without a date, nothing restarts.
        assert_eq!(applied(&control_plane(None)), ["2026-02-02", "2026-01-01"]);
    }
}
