//! Decides whether a Secret has to be written. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use super::desired::DesiredSecret;

/// The decision about one Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretWriteDecision {
    /// The Secret is up to date.
    UpToDate,
    /// The Secret must be created or changed.
    Apply {
        /// The value of the `content-since` annotation to write.
        content_since: Timestamp,
    },
    /// The Secret was written by another node from a newer volume. This node writes it once its volume is
    /// newer.
    NewerContentExists {
        /// The age of the content in the Secret.
        content_since: Timestamp,
    },
    /// The type of the Secret differs and is immutable.
    TypeMismatch,
}

/// The age of the content of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentAge {
    /// When the source first returned this content.
    pub(super) fetched_at: Timestamp,
    /// When the source last returned the same content.
    pub(super) confirmed_at: Option<Timestamp>,
    /// The maximum age of a read at its use: volumes share reads.
    pub(super) max_read_age: Duration,
}

impl ContentAge {
    /// Creates the age of a volume of which only the time of its last write is known.
    pub(super) const fn from_write_time(fetched_at: Timestamp) -> Self {
        Self { fetched_at, confirmed_at: None, max_read_age: Duration::ZERO }
    }

    /// Returns the time of the last confirmation if the source certainly still held the content after
    /// `written`.
    fn confirmed_after(&self, written: Timestamp) -> Option<Timestamp> {
        self.confirmed_at.filter(|confirmed| {
            confirmed.saturating_sub(self.max_read_age).is_ok_and(|at| at > written)
        })
    }
}

/// Decides whether to write a Secret, from the files of the volume and their age.
///
/// Pods on many nodes share a Secret and rotate at different times. If each node restored its own mounted
/// content, the nodes would revert each other until the last one has rotated. Therefore each node records the
/// age of the content that it writes, and a node with older content skips the write until its source has
/// confirmed that content at a later time. The time of the mount is not used: the volume may have been filled
/// from the sealed cache during an outage.
pub(super) fn decide_secret_write(
    existing: Option<&Secret>,
    desired: &DesiredSecret,
    age: &ContentAge,
    now: Timestamp,
    manager: &str,
) -> SecretWriteDecision {
    // The clock may have been ahead when the volume was written.
    let since = age.fetched_at.min(now);
    let Some(existing) = existing else {
        return SecretWriteDecision::Apply { content_since: since };
    };
    let secret_type = existing.type_.as_deref().unwrap_or("Opaque");
    if secret_type != desired.secret_type {
        return SecretWriteDecision::TypeMismatch;
    }
    let owned = fields_applied_by(existing.metadata.managed_fields.as_deref(), manager);
    let same_data = has_same_data(existing, desired) && owned.data.is_subset(&keys(desired));
    if same_data && has_same_metadata(existing, desired, &owned) {
        return SecretWriteDecision::UpToDate;
    }
    // Only a write of this field manager counts as newer content. Changes by other field managers are
    // overwritten.
    let ours_alone = desired.data.keys().all(|key| owned.data.contains(key))
        && owned.annotations.contains(CONTENT_SINCE);
    let written = content_since_of(existing, now).filter(|written| ours_alone && *written > since);
    match written {
        None => SecretWriteDecision::Apply { content_since: since },
        Some(written) if same_data => SecretWriteDecision::Apply { content_since: written },
        Some(written) => match age.confirmed_after(written) {
            Some(confirmed) => SecretWriteDecision::Apply { content_since: confirmed.min(now) },
            None => SecretWriteDecision::NewerContentExists { content_since: written },
        },
    }
}

/// Returns the `content-since` time of a Secret. A time in the future comes from a clock that was ahead; it
/// would block all other nodes until then and is ignored.
fn content_since_of(secret: &Secret, now: Timestamp) -> Option<Timestamp> {
    let stamp: Timestamp =
        secret.metadata.annotations.as_ref()?.get(CONTENT_SINCE)?.parse().ok()?;
    let latest = now.saturating_add(MAX_CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    (stamp <= latest).then_some(stamp)
}

/// Returns the class whose Secret this write overwrites. Two classes that name one Secret would revert each
/// other forever.
pub(super) fn overwritten_class(
    existing: Option<&Secret>,
    desired: &DesiredSecret,
    class: &str,
    manager: &str,
) -> Option<String> {
    let metadata = &existing?.metadata;
    let other = metadata.annotations.as_ref()?.get(CLASS_ANNOTATION)?;
    let owned = fields_applied_by(metadata.managed_fields.as_deref(), manager);
    let is_ours = owned.annotations.contains(CLASS_ANNOTATION);
    let same_data = has_same_data(existing?, desired) && owned.data.is_subset(&keys(desired));
    (is_ours && !same_data && other != class).then(|| other.clone())
}

fn keys(desired: &DesiredSecret) -> BTreeSet<String> {
    desired.data.keys().cloned().collect()
}

fn has_same_data(existing: &Secret, desired: &DesiredSecret) -> bool {
    let empty = BTreeMap::new();
    let data = existing.data.as_ref().unwrap_or(&empty);
    desired.data.iter().all(|(key, value)| {
        data.get(key).is_some_and(|is| {
            aws_lc_rs::constant_time::verify_slices_are_equal(&is.0, value.expose()).is_ok()
        })
    })
}

fn has_same_metadata(existing: &Secret, desired: &DesiredSecret, owned: &AppliedFields) -> bool {
    let empty = BTreeMap::new();
    let labels = existing.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = existing.metadata.annotations.as_ref().unwrap_or(&empty);
    let contains = |is: &BTreeMap<String, String>, should: &BTreeMap<String, String>| {
        should.iter().all(|(key, value)| is.get(key) == Some(value))
    };
    contains(labels, &desired.labels)
        && contains(annotations, &desired.annotations)
        && owned.labels.iter().all(|label| desired.labels.contains_key(label))
        && owned.annotations.iter().all(|it| {
            desired.annotations.contains_key(it) || OWN_ANNOTATIONS.contains(&it.as_str())
        })
}

/// The fields of a Secret that one field manager applied.
#[derive(Debug, Default, PartialEq, Eq)]
struct AppliedFields {
    data: BTreeSet<String>,
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

/// Parses the managed fields (structured-merge-diff, `fieldsV1`: each name has the prefix `f:`).
fn fields_applied_by(entries: Option<&[ManagedFieldsEntry]>, manager: &str) -> AppliedFields {
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
    };
    let entry = entries.unwrap_or_default().iter().find(is_ours);
    let Some(fields) = entry.and_then(|entry| entry.fields_v1.as_ref()) else {
        return AppliedFields::default();
    };
    let names = |value: &Value| -> BTreeSet<String> {
        let fields = value.as_object().into_iter().flatten();
        fields.filter_map(|(name, _)| name.strip_prefix("f:").map(str::to_owned)).collect()
    };
    AppliedFields {
        data: names(&fields.0["f:data"]),
        labels: names(&fields.0["f:metadata"]["f:labels"]),
        annotations: names(&fields.0["f:metadata"]["f:annotations"]),
    }
}

/// The annotation with the time at which the source returned the content of a Secret.
pub(super) const CONTENT_SINCE: &str = "lanyard.dev/content-since";

/// The annotation with the class for which a Secret was last written.
pub(super) const CLASS_ANNOTATION: &str = "lanyard.dev/secret-provider-class";

/// The annotations that the synchronization itself sets.
const OWN_ANNOTATIONS: [&str; 2] = [CONTENT_SINCE, CLASS_ANNOTATION];

/// The maximum difference between the clocks of two nodes.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use lanyard_keyvault::SharedSecretBytes;
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
            data: BTreeMap::from([("k".to_owned(), SharedSecretBytes::from(value.to_owned()))]),
        }
    }

    /// The Secret of `desired("new")` as applied at second 100, with `change`.
    fn applied_secret(change: impl FnOnce(&mut Value)) -> Secret {
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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn apply(second: i64) -> SecretWriteDecision {
        SecretWriteDecision::Apply { content_since: at(second) }
    }

    /// Decides at second 1,000.
    fn decide_with_age(
        existing: &Secret,
        desired: &DesiredSecret,
        age: ContentAge,
    ) -> SecretWriteDecision {
        decide_secret_write(Some(existing), desired, &age, at(1_000), OURS)
    }

    fn decide_at(existing: &Secret, desired: &DesiredSecret, second: i64) -> SecretWriteDecision {
        decide_with_age(existing, desired, ContentAge::from_write_time(at(second)))
    }

    #[test]
    fn up_to_date_secret_is_not_written_despite_foreign_fields() {
        let age = ContentAge::from_write_time(at(50));
        assert_eq!(decide_secret_write(None, &desired("new"), &age, at(1_000), OURS), apply(50));
        for second in [50, 100, 150] {
            assert_eq!(
                decide_at(&applied_secret(|_| ()), &desired("new"), second),
                SecretWriteDecision::UpToDate
            );
        }
    }

    #[test]
    fn newer_content_is_written_and_older_content_is_skipped() {
        let existing = applied_secret(|_| ());
        assert_eq!(decide_at(&existing, &desired("newer"), 150), apply(150));
        assert_eq!(
            decide_at(&existing, &desired("old"), 50),
            SecretWriteDecision::NewerContentExists { content_since: at(100) }
        );
    }

    #[test]
    fn skipped_content_is_written_once_its_source_confirms_it() {
        let existing = applied_secret(|_| ());
        let age = |checked| ContentAge {
            fetched_at: at(50),
            confirmed_at: Some(at(checked)),
            max_read_age: Duration::from_mins(2),
        };
        let judge = |checked| decide_with_age(&existing, &desired("rolled-back"), age(checked));
        assert_eq!(
            judge(220),
            SecretWriteDecision::NewerContentExists { content_since: at(100) },
            "it may be a shared read"
        );
        assert_eq!(judge(221), apply(221));
    }

    #[test]
    fn future_or_foreign_content_since_does_not_block_writes() {
        let stamped = |second: i64| {
            applied_secret(|secret| {
                secret["metadata"]["annotations"][CONTENT_SINCE] = json!(at(second));
            })
        };
        let newer = desired("newer");
        assert_eq!(
            decide_at(&stamped(1_300), &newer, 50),
            SecretWriteDecision::NewerContentExists { content_since: at(1_300) }
        );
        assert_eq!(decide_at(&stamped(1_301), &newer, 50), apply(50));
        assert_eq!(
            decide_at(&stamped(100), &newer, 5_000),
            apply(1_000),
            "the clock of this node was ahead"
        );
        let foreign = applied_secret(|secret| {
            secret["metadata"]["managedFields"][1]["fieldsV1"]["f:metadata"]["f:annotations"] =
                json!({"f:note": {}});
        });
        assert_eq!(decide_at(&foreign, &newer, 50), apply(50));
    }

    #[test]
    fn overwritten_class_is_reported_only_while_data_differs() {
        let of = |class: &str| {
            applied_secret(|secret| {
                secret["metadata"]["annotations"][CLASS_ANNOTATION] = json!(class);
                let fields = &mut secret["metadata"]["managedFields"][1]["fieldsV1"];
                fields["f:metadata"]["f:annotations"][format!("f:{CLASS_ANNOTATION}")] = json!({});
            })
        };
        let taken = |existing: &Secret, value: &str| {
            overwritten_class(Some(existing), &desired(value), "mine", OURS)
        };
        assert_eq!(taken(&of("other"), "else").as_deref(), Some("other"));
        assert_eq!(taken(&of("other"), "new"), None);
        assert_eq!(taken(&of("mine"), "else"), None);
        assert_eq!(taken(&applied_secret(|_| ()), "else"), None);
        assert_eq!(decide_at(&of("other"), &desired("new"), 100), SecretWriteDecision::UpToDate);
    }

    #[test]
    fn restoring_labels_keeps_the_newer_content_since() {
        let without_label = applied_secret(|secret| secret["metadata"]["labels"] = json!(null));
        assert_eq!(decide_at(&without_label, &desired("new"), 50), apply(100));
    }

    #[test]
    fn foreign_edits_are_reverted_regardless_of_content_since() {
        let edited = applied_secret(|secret| {
            secret["data"]["k"] = json!("ZWRpdGVk");
            secret["metadata"]["managedFields"][1]["fieldsV1"]["f:data"] = json!({});
        });
        assert_eq!(decide_at(&edited, &desired("new"), 50), apply(50));
    }

    #[test]
    fn secret_of_upstream_driver_is_overwritten_when_data_differs() {
        let upstream = |value: &str| {
            let value = value.to_owned();
            applied_secret(move |secret| {
                secret["data"]["k"] = json!(value);
                let fields = &mut secret["metadata"]["managedFields"][1];
                fields["manager"] = json!("secrets-store-csi-driver");
                fields["operation"] = json!("Update");
            })
        };
        assert_eq!(
            decide_at(&upstream("bmV3"), &desired("new"), 50),
            SecretWriteDecision::UpToDate
        );
        assert_eq!(decide_at(&upstream("b2xk"), &desired("new"), 50), apply(50));
    }

    #[test]
    fn fields_dropped_from_the_class_are_removed() {
        let changes: [fn(&mut Value); 3] = [
            |fields| fields["f:data"]["f:foreign"] = json!({}),
            |fields| fields["f:metadata"]["f:labels"]["f:foreign"] = json!({}),
            |fields| fields["f:metadata"]["f:annotations"]["f:foreign"] = json!({}),
        ];
        for change in changes {
            let existing = applied_secret(|secret| {
                change(&mut secret["metadata"]["managedFields"][1]["fieldsV1"]);
            });
            assert_eq!(decide_at(&existing, &desired("new"), 100), apply(100));
        }
    }

    #[test]
    fn a_label_or_annotation_of_the_class_that_is_missing_is_written() {
        let without_label = applied_secret(|secret| secret["metadata"]["labels"] = json!(null));
        assert_eq!(decide_at(&without_label, &desired("new"), 150), apply(150));
        let without_note = applied_secret(|secret| secret["metadata"]["annotations"] = json!(null));
        assert_eq!(decide_at(&without_note, &desired("new"), 50), apply(50));
    }

    #[test]
    fn secret_type_mismatch_is_reported_without_a_write() {
        let tls = applied_secret(|secret| secret["type"] = json!("kubernetes.io/tls"));
        assert_eq!(decide_at(&tls, &desired("new"), 100), SecretWriteDecision::TypeMismatch);
    }

    #[test]
    fn a_secret_without_type_is_opaque() {
        let untyped = applied_secret(|secret| secret["type"] = json!(null));
        assert_eq!(decide_at(&untyped, &desired("new"), 100), SecretWriteDecision::UpToDate);
    }
}
