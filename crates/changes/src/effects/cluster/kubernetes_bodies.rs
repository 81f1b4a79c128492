//! The bodies of Kubernetes objects, as far as a request can write them. Does no I/O.

use lanyard_kubernetes::ObjectReference;
use serde_json::{Value, json};

use crate::creation_evidence::CreationMark;
use crate::live_state::LiveResource;
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::merge_properties;
use crate::resource_id::ResourceId;

/// A live object. Its uid shows whether it is the one that lanyard created.
pub(super) fn object_resource(id: ResourceId, body: Value) -> LiveResource {
    let metadata = &body["metadata"];
    let text = |name: &str| metadata[name].as_str().map(str::to_owned);
    let creation = CreationMark { at: text("creationTimestamp"), by: None, id: text("uid") };
    LiveResource { id, body, creation, has_tags: true }
}

/// Whether the object only waits for its finalizers.
pub(super) fn is_deleted(body: &Value) -> bool {
    body["metadata"]["deletionTimestamp"].is_string()
}

/// The body of an apply, and whether it takes fields from other managers.
///
/// An apply removes what an earlier one of the same manager contained, so the annotations of lanyard stay in it. Only an
/// object with these annotations is lanyard's alone; on an adopted one, other managers keep their fields.
pub(super) fn applied_body(
    object: &ObjectReference,
    desired: &Value,
    existing: Option<&Value>,
    tags: &OwnershipTags,
) -> (Value, bool) {
    let named = json!({ "apiVersion": object.api_version, "kind": object.kind,
        "metadata": { "name": object.name } });
    let mut body = merge_properties(&named, desired);
    if let Some(namespace) = &object.namespace {
        body["metadata"]["namespace"] = namespace.as_str().into();
    }
    let is_marked = existing.is_some_and(|body| tags.are_on(body));
    if existing.is_none() || is_marked {
        tags.add_annotations_to(&mut body);
    }
    if let Some(existing) = existing {
        // The API server rejects the apply if another object has the name by now.
        body["metadata"]["uid"] = existing["metadata"]["uid"].clone();
    }
    (body, is_marked)
}

/// Whether the object has the properties it had before.
pub(super) fn is_restored(before: &Value, live: &Value) -> bool {
    writable_body(before) == writable_body(live)
}

/// The body that restores an object, if that is still the live one.
pub(super) fn restored_body(before: &Value, live: Option<&Value>) -> Value {
    let mut body = writable_body(before);
    if let Some(live) = live {
        for name in ["uid", "resourceVersion"] {
            body["metadata"][name] = live["metadata"][name].clone();
        }
    }
    body
}

/// Removes what the API server sets itself.
fn writable_body(body: &Value) -> Value {
    const READ_ONLY: [&str; 7] = [
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "uid",
    ];
    let mut body = body.clone();
    if let Some(body) = body.as_object_mut() {
        body.remove("status");
    }
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags() -> OwnershipTags {
        OwnershipTags::new("shop", "shop-weu")
    }

    fn object() -> ObjectReference {
        let [api_version, kind, name] = ["v1", "ServiceAccount", "api"].map(str::to_owned);
        ObjectReference { api_version, kind, namespace: Some("shop".to_owned()), name }
    }

    #[test]
    fn annotations_of_lanyard_are_on_what_it_creates_and_on_no_adopted_object() {
        let desired =
            json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "Helm" } } });
        let (created, takes_fields) = applied_body(&object(), &desired, None, &tags());
        assert!(!takes_fields && tags().are_on(&created), "{created}");
        assert_eq!(
            created,
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
                "name": "api", "namespace": "shop",
                "labels": { "app.kubernetes.io/managed-by": "Helm" },
                "annotations": { "lanyard.dev/cluster": "shop", "lanyard.dev/infra-id": "shop-weu" },
            } })
        );
        let mut ours = created;
        ours["metadata"]["uid"] = "1".into();
        let (changed, takes_fields) = applied_body(&object(), &desired, Some(&ours), &tags());
        assert!(takes_fields && changed == ours, "{changed}");
        let adopted = json!({ "metadata": { "uid": "2" } });
        let (changed, takes_fields) = applied_body(&object(), &desired, Some(&adopted), &tags());
        assert!(!takes_fields && !tags().are_on(&changed), "{changed}");
        let other = OwnershipTags::new("shop", "shop-neu");
        assert!(!applied_body(&object(), &desired, Some(&ours), &other).1);
    }

    #[test]
    fn restored_object_has_the_version_of_the_live_one() {
        let before = json!({ "data": { "a": "1" }, "status": {}, "metadata": { "name": "x",
            "uid": "1", "resourceVersion": "7", "managedFields": [], "generation": 1 } });
        let live = json!({ "metadata": { "uid": "1", "resourceVersion": "9" } });
        assert_eq!(
            restored_body(&before, Some(&live)),
            json!({ "data": { "a": "1" },
                "metadata": { "name": "x", "uid": "1", "resourceVersion": "9" } })
        );
        let mut later = before.clone();
        later["metadata"]["resourceVersion"] = "8".into();
        assert!(is_restored(&before, &later) && !is_restored(&before, &live));
    }
}
