//! Whether a Secret has to be written. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use super::desired::DesiredSecret;

/// What to do about a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It says what it should.
    Nothing,
    /// It has to be made, or to say something else.
    Apply,
    /// Another node of ours wrote it from a newer volume. This one follows in its time.
    LeaveNewer,
    /// Its type cannot be changed.
    OtherType,
}

/// What to do about a Secret, given what the volume says `since` then.
///
/// Pods on many nodes share a Secret, and rotate at different times: were each node to restore
/// what it has mounted, they would undo each other's work until the last has rotated. So each
/// writes down since when its volume says so, and who has something older stands back.
pub(super) fn decide(
    existing: Option<&Secret>,
    desired: &DesiredSecret,
    since: Timestamp,
    manager: &str,
) -> Change {
    let Some(existing) = existing else { return Change::Apply };
    let secret_type = existing.type_.as_deref().unwrap_or("Opaque");
    if secret_type != desired.secret_type {
        return Change::OtherType;
    }
    let owned = owned_fields(existing.metadata.managed_fields.as_deref(), manager);
    let same_data = has_the_same_data(existing, desired) && owned.data.is_subset(&keys(desired));
    if same_data && has_the_same_metadata(existing, desired, &owned) {
        return Change::Nothing;
    }
    // Only what one of us wrote is anybody's newer volume; other hands are overruled.
    let ours_alone = desired.data.keys().all(|key| owned.data.contains(key));
    let written = stamp_of(existing).filter(|_| ours_alone);
    if !same_data && written.is_some_and(|written| written > since) {
        return Change::LeaveNewer;
    }
    Change::Apply
}

/// Since when the volume that a Secret was written from says so.
fn stamp_of(secret: &Secret) -> Option<Timestamp> {
    secret.metadata.annotations.as_ref()?.get(CONTENT_SINCE)?.parse().ok()
}

fn keys(desired: &DesiredSecret) -> BTreeSet<String> {
    desired.data.keys().cloned().collect()
}

fn has_the_same_data(existing: &Secret, desired: &DesiredSecret) -> bool {
    let empty = BTreeMap::new();
    let data = existing.data.as_ref().unwrap_or(&empty);
    desired.data.iter().all(|(key, value)| {
        data.get(key).is_some_and(|is| {
            aws_lc_rs::constant_time::verify_slices_are_equal(&is.0, value.expose()).is_ok()
        })
    })
}

fn has_the_same_metadata(existing: &Secret, desired: &DesiredSecret, owned: &Owned) -> bool {
    let empty = BTreeMap::new();
    let labels = existing.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = existing.metadata.annotations.as_ref().unwrap_or(&empty);
    let contains = |is: &BTreeMap<String, String>, should: &BTreeMap<String, String>| {
        should.iter().all(|(key, value)| is.get(key) == Some(value))
    };
    contains(labels, &desired.labels)
        && contains(annotations, &desired.annotations)
        && owned.labels.iter().all(|label| desired.labels.contains_key(label))
        && owned
            .annotations
            .iter()
            .all(|it| desired.annotations.contains_key(it) || it == CONTENT_SINCE)
}

/// The fields of a Secret that a manager applied.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owned {
    data: BTreeSet<String>,
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

/// Reads the managed fields (structured-merge-diff, `fieldsV1`: `f:` before each name).
fn owned_fields(entries: Option<&[ManagedFieldsEntry]>, manager: &str) -> Owned {
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
    };
    let entry = entries.unwrap_or_default().iter().find(is_ours);
    let Some(fields) = entry.and_then(|entry| entry.fields_v1.as_ref()) else {
        return Owned::default();
    };
    let names = |value: &Value| -> BTreeSet<String> {
        let fields = value.as_object().into_iter().flatten();
        fields.filter_map(|(name, _)| name.strip_prefix("f:").map(str::to_owned)).collect()
    };
    Owned {
        data: names(&fields.0["f:data"]),
        labels: names(&fields.0["f:metadata"]["f:labels"]),
        annotations: names(&fields.0["f:metadata"]["f:annotations"]),
    }
}

/// The annotation with the time since when the volume that a Secret was written from says so.
pub(super) const CONTENT_SINCE: &str = "lanyard.dev/content-since";

#[cfg(test)]
mod tests {
    use lanyard_keyvault::SecretBytes;
    use serde_json::json;

    use super::*;

    const OURS: &str = "lanyard-node";

    fn desired(value: &str) -> DesiredSecret {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        DesiredSecret {
            name: "s".to_owned(),
            labels: map("managed", "true"),
            annotations: map("note", "y"),
            secret_type: "Opaque".to_owned(),
            data: BTreeMap::from([("k".to_owned(), SecretBytes::from(value.to_owned()))]),
        }
    }

    /// The Secret as we would have applied it at second 100, from `desired("new")`.
    fn applied(change: impl FnOnce(&mut Value)) -> Secret {
        let mut secret = json!({
            "metadata": {
                "labels": {"managed": "true", "foreign": "1"},
                "annotations": {"note": "y", CONTENT_SINCE: "1970-01-01T00:01:40Z", "foreign": "1"},
                "managedFields": [
                    {"manager": "other", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:foreign": {}}},
                    }},
                    {"manager": OURS, "operation": "Apply", "fieldsV1": {
                        "f:data": {"f:k": {}},
                        "f:metadata": {
                            "f:labels": {"f:managed": {}},
                            "f:annotations": {"f:note": {}, format!("f:{CONTENT_SINCE}"): {}},
                        },
                        "f:type": {},
                    }},
                ],
            },
            "type": "Opaque",
            "data": {"k": "bmV3", "foreign": "MQ=="},
        });
        change(&mut secret);
        serde_json::from_value(secret).unwrap()
    }

    fn judge(existing: &Secret, desired: &DesiredSecret, second: i64) -> Change {
        decide(Some(existing), desired, Timestamp::from_second(second).unwrap(), OURS)
    }

    #[test]
    fn a_secret_that_says_what_it_should_is_not_written_whatever_others_added() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(decide(None, &desired("new"), now, OURS), Change::Apply);
        for second in [50, 100, 150] {
            assert_eq!(judge(&applied(|_| ()), &desired("new"), second), Change::Nothing);
        }
    }

    #[test]
    fn a_newer_volume_is_written_and_an_older_one_stands_back() {
        let existing = applied(|_| ());
        assert_eq!(judge(&existing, &desired("newer"), 150), Change::Apply);
        assert_eq!(judge(&existing, &desired("old"), 50), Change::LeaveNewer);
    }

    #[test]
    fn what_other_hands_changed_is_restored_whatever_the_stamp() {
        let edited = applied(|secret| {
            secret["data"]["k"] = json!("ZWRpdGVk");
            secret["metadata"]["managedFields"][1]["fieldsV1"]["f:data"] = json!({});
        });
        assert_eq!(judge(&edited, &desired("new"), 50), Change::Apply);
    }

    #[test]
    fn what_upstream_wrote_is_taken_over_when_it_differs() {
        let upstream = |value: &str| {
            let value = value.to_owned();
            applied(move |secret| {
                secret["data"]["k"] = json!(value);
                let fields = &mut secret["metadata"]["managedFields"][1];
                fields["manager"] = json!("secrets-store-csi-driver");
                fields["operation"] = json!("Update");
            })
        };
        assert_eq!(judge(&upstream("bmV3"), &desired("new"), 50), Change::Nothing);
        assert_eq!(judge(&upstream("b2xk"), &desired("new"), 50), Change::Apply);
    }

    #[test]
    fn what_the_class_no_longer_says_is_removed() {
        let changes: [fn(&mut Value); 3] = [
            |fields| fields["f:data"]["f:foreign"] = json!({}),
            |fields| fields["f:metadata"]["f:labels"]["f:foreign"] = json!({}),
            |fields| fields["f:metadata"]["f:annotations"]["f:foreign"] = json!({}),
        ];
        for change in changes {
            let existing = applied(|secret| {
                change(&mut secret["metadata"]["managedFields"][1]["fieldsV1"]);
            });
            assert_eq!(judge(&existing, &desired("new"), 100), Change::Apply);
        }
    }

    #[test]
    fn a_label_or_annotation_of_the_class_that_is_missing_is_written() {
        let without_label = applied(|secret| secret["metadata"]["labels"] = json!(null));
        assert_eq!(judge(&without_label, &desired("new"), 50), Change::Apply);
        let without_note = applied(|secret| secret["metadata"]["annotations"] = json!(null));
        assert_eq!(judge(&without_note, &desired("new"), 50), Change::Apply);
    }

    #[test]
    fn another_type_is_told_instead_of_tried() {
        let tls = applied(|secret| secret["type"] = json!("kubernetes.io/tls"));
        assert_eq!(judge(&tls, &desired("new"), 100), Change::OtherType);
    }

    #[test]
    fn a_secret_without_type_is_opaque() {
        let untyped = applied(|secret| secret["type"] = json!(null));
        assert_eq!(judge(&untyped, &desired("new"), 100), Change::Nothing);
    }
}
