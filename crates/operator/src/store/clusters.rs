//! The cache of HostedClusters.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use lanyard_api::HostedCluster;
use lanyard_desired::deletion::FORCE_ANNOTATION;
use serde_json::{Map, Value};

use super::objects::is_older_version;
use super::parse::{TypeMismatch, parse_typed};
use crate::queue::ReconcileTrigger;

/// A cached HostedCluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CachedCluster {
    /// The object as JSON, without finalizers and without the status except `secretEncryption`.
    content: Box<[u8]>,
    /// The operator's own conditions.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) uid: String,
    /// `metadata.resourceVersion`.
    resource_version: String,
    /// The latest resource version that is known to have this content.
    pub(crate) content_version: String,
    pub(crate) generation: Option<i64>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) is_deleting: bool,
    /// Whether a user forces the deletion, so that it waits for no dependents.
    pub(crate) is_deletion_forced: bool,
    pub(crate) finalizers: Vec<String>,
}

/// A HostedCluster whose fields do not have the types of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadableCluster {
    /// The path of the field in the object.
    pub(crate) field: String,
    pub(crate) problem: String,
    /// `spec.platform.type`, if it is a string.
    pub(crate) platform_type: Option<String>,
}

impl CachedCluster {
    /// Caches a HostedCluster; `condition_types` are the types of the operator's conditions.
    pub(crate) fn of(mut object: DynamicObject, condition_types: &[&str]) -> Self {
        let metadata = &mut object.metadata;
        metadata.managed_fields = None;
        let resource_version = metadata.resource_version.take().unwrap_or_default();
        let (uid, generation) = (metadata.uid.clone().unwrap_or_default(), metadata.generation);
        let created_at = metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_deleting = metadata.deletion_timestamp.is_some();
        let annotations = metadata.annotations.as_ref();
        let forced = annotations.and_then(|all| all.get(FORCE_ANNOTATION));
        let is_deletion_forced = forced.is_some_and(|value| value == "true");
        let finalizers = metadata.finalizers.take().unwrap_or_default();
        let conditions = conditions_of(&object.data, condition_types);
        if let Some(data) = object.data.as_object_mut() {
            let status = data.remove("status").unwrap_or_default();
            if let Some(encryption) = status.get("secretEncryption") {
                let retained =
                    Map::from_iter([("secretEncryption".to_owned(), encryption.clone())]);
                data.insert("status".to_owned(), Value::Object(retained));
            }
        }
        let content = serde_json::to_vec(&object).unwrap_or_default().into_boxed_slice();
        Self {
            content,
            conditions,
            uid,
            content_version: resource_version.clone(),
            resource_version,
            generation,
            created_at,
            is_deleting,
            is_deletion_forced,
            finalizers,
        }
    }

    /// Parses the content.
    pub(crate) fn parse(&self) -> Result<HostedCluster, UnreadableCluster> {
        let mut reader = serde_json::Deserializer::from_slice(&self.content);
        parse_typed(&mut reader).map_err(|TypeMismatch { field, problem }| {
            let value: Value = serde_json::from_slice(&self.content).unwrap_or_default();
            let platform = value.pointer("/spec/platform/type").and_then(Value::as_str);
            UnreadableCluster { field, problem, platform_type: platform.map(str::to_owned) }
        })
    }

    /// Whether both are the same HostedCluster with the same content.
    pub(crate) fn has_same_spec(&self, other: &Self) -> bool {
        self.uid == other.uid && self.content == other.content
    }

    /// Whether a write response with a newer version of this cluster is already cached.
    pub(crate) fn is_older_than(&self, known: &Self) -> bool {
        self.uid == known.uid && is_older_version(&self.resource_version, &known.resource_version)
    }

    /// Stores the conditions and the version from the response to a write of the operator, unless the response
    /// is older or about another HostedCluster with the same name. Changes by others arrive with the watch,
    /// which triggers a reconciliation.
    pub(crate) fn merge_written_status(&mut self, answer: DynamicObject, condition_types: &[&str]) {
        let answer = Self::of(answer, condition_types);
        if answer.uid != self.uid || answer.is_older_than(self) {
            return;
        }
        if answer.content == self.content {
            self.content_version.clone_from(&answer.resource_version);
        }
        self.conditions = answer.conditions;
        if !answer.resource_version.is_empty() {
            self.resource_version = answer.resource_version;
        }
    }

    /// Stores the response to the write that added this finalizer, unless another client changed something
    /// meanwhile: then the watch delivers the object and triggers a reconciliation.
    pub(crate) fn merge_finalizer(
        &mut self,
        answer: DynamicObject,
        finalizer: &str,
        condition_types: &[&str],
    ) {
        let answer = Self::of(answer, condition_types);
        let others = |it: &&String| *it != finalizer;
        let is_alone = answer.content == self.content
            && answer.is_deleting == self.is_deleting
            && answer.conditions == self.conditions
            && answer.finalizers.iter().filter(others).eq(self.finalizers.iter().filter(others));
        if is_alone && !answer.is_older_than(self) {
            *self = answer;
        }
    }

    /// The trigger that this update causes; `None` if nothing relevant changed.
    pub(crate) fn reconcile_trigger(&self, before: Option<&Self>) -> Option<ReconcileTrigger> {
        let Some(before) = before else { return Some(ReconcileTrigger::SpecChanged) };
        let is_spec_changed = self.content != before.content
            || self.finalizers != before.finalizers
            || self.is_deleting != before.is_deleting;
        if is_spec_changed {
            return Some(ReconcileTrigger::SpecChanged);
        }
        (self.conditions != before.conditions).then_some(ReconcileTrigger::RelatedChanged)
    }
}

/// The conditions of these types.
fn conditions_of(data: &Value, condition_types: &[&str]) -> Vec<Condition> {
    let conditions = data.pointer("/status/conditions").and_then(Value::as_array);
    let is_ours = |condition: &&Value| {
        let kind = condition.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| condition_types.contains(&kind))
    };
    let conditions = conditions.into_iter().flatten().filter(is_ours);
    conditions.filter_map(|it| serde_json::from_value(it.clone()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster_with(change: impl FnOnce(&mut Value)) -> CachedCluster {
        let mut object = json!({
            "apiVersion": HostedCluster::API_VERSION,
            "kind": HostedCluster::KIND,
            "metadata": {"name": "harbour", "namespace": "clusters", "resourceVersion": "1"},
            "spec": {"infraID": "harbour-1"},
            "status": {"conditions": [
                {"type": "Available", "status": "True", "reason": "A", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ours", "status": "True", "reason": "A", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        change(&mut object);
        CachedCluster::of(serde_json::from_value(object).unwrap(), &["Ours"])
    }

    #[test]
    fn only_spec_and_own_conditions_trigger_reconcile() {
        let before = cluster_with(|_| ());
        assert_eq!(before.reconcile_trigger(None), Some(ReconcileTrigger::SpecChanged));
        let status_only = cluster_with(|it| {
            it["metadata"]["resourceVersion"] = json!("2");
            it["status"]["conditions"][0]["status"] = json!("False");
            it["status"]["version"] = json!({"history": []});
        });
        assert_eq!(status_only.reconcile_trigger(Some(&before)), None);
        let ours = cluster_with(|it| it["status"]["conditions"][1]["status"] = json!("False"));
        assert_eq!(ours.reconcile_trigger(Some(&before)), Some(ReconcileTrigger::RelatedChanged));
        let spec_change = cluster_with(|it| it["spec"]["infraID"] = json!("other"));
        assert_eq!(
            spec_change.reconcile_trigger(Some(&before)),
            Some(ReconcileTrigger::SpecChanged)
        );
        let key = cluster_with(|it| it["status"]["secretEncryption"] = json!({"activeKey": {}}));
        assert_eq!(key.reconcile_trigger(Some(&before)), Some(ReconcileTrigger::SpecChanged));
    }

    #[test]
    fn content_version_ignores_versions_with_other_content() {
        let answer = |version: &str, key: &str| {
            let object = json!({
                "apiVersion": HostedCluster::API_VERSION,
                "kind": HostedCluster::KIND,
                "metadata": {"name": "harbour", "namespace": "clusters", "resourceVersion": version},
                "spec": {"infraID": "harbour-1"},
                "status": {"conditions": [], "secretEncryption": {"activeKey": key}},
            });
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let mut known = CachedCluster::of(answer("1", "a"), &["Ours"]);
        for (version, key, expected) in [("2", "a", "2"), ("3", "b", "2"), ("4", "a", "4")] {
            known.merge_written_status(answer(version, key), &["Ours"]);
            assert_eq!((&*known.resource_version, &*known.content_version), (version, expected));
        }
    }

    #[test]
    fn own_finalizer_triggers_reconcile_only_with_other_changes() {
        type ObjectMutation = dyn Fn(&mut Value);
        let answer = |change: &ObjectMutation| {
            let mut object = json!({
                "apiVersion": HostedCluster::API_VERSION,
                "kind": HostedCluster::KIND,
                "metadata": {"name": "harbour", "namespace": "clusters", "resourceVersion": "2",
                    "finalizers": ["theirs/one", "ours/one"]},
                "spec": {"infraID": "harbour-1"},
            });
            change(&mut object);
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let known = || {
            CachedCluster::of(
                answer(&|it| {
                    it["metadata"]["resourceVersion"] = json!("1");
                    it["metadata"]["finalizers"] = json!(["theirs/one"]);
                }),
                &[],
            )
        };
        let cases: [(&ObjectMutation, bool); 5] = [
            (&|_| (), true),
            (&|it| it["spec"]["infraID"] = json!("other"), false),
            (&|it| it["metadata"]["finalizers"] = json!(["ours/one"]), false),
            (&|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"), false),
            (&|it| it["metadata"]["resourceVersion"] = json!("0"), false),
        ];
        for (change, is_taken_in) in cases {
            let mut cluster = known();
            cluster.merge_finalizer(answer(change), "ours/one", &[]);
            let watched = CachedCluster::of(answer(change), &[]);
            assert_eq!(
                watched.reconcile_trigger(Some(&cluster)).is_none(),
                is_taken_in,
                "{watched:?}"
            );
            let version = if is_taken_in { "2" } else { "1" };
            assert_eq!(cluster.content_version, version);
            assert_eq!(cluster.finalizers.len(), if is_taken_in { 2 } else { 1 });
            assert!(cluster.has_same_spec(&known()), "a finalizer is not part of the spec");
        }
    }

    #[test]
    fn unreadable_cluster_error_quotes_no_content() {
        let broken = cluster_with(|it| it["spec"]["platform"] = json!("planted"));
        let unreadable = broken.parse().unwrap_err();
        assert_eq!(unreadable.field, "spec.platform");
        assert!(unreadable.problem.starts_with("expected struct"), "{}", unreadable.problem);
        assert!(!format!("{unreadable:?}").contains("planted"), "{unreadable:?}");
        // The deletion can be forced nevertheless.
        let force = |value: &str| {
            cluster_with(|it| {
                it["spec"]["platform"] = json!("planted");
                it["metadata"]["annotations"] = json!({FORCE_ANNOTATION: value});
            })
        };
        assert!(force("true").is_deletion_forced && !force("yes").is_deletion_forced);
        assert_eq!(
            cluster_with(|_| ()).parse().unwrap().spec.unwrap().infra_id.unwrap(),
            "harbour-1"
        );
    }
}
