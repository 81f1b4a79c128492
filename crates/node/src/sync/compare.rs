//! Whether a Secret has to be written. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
    Apply {
        /// What it shall say about how new it is.
        stamp: Timestamp,
    },
    /// Another node of ours wrote it from a newer volume. This one follows in its time.
    LeaveNewer {
        /// How new what is written is.
        written: Timestamp,
    },
    /// Its type cannot be changed.
    OtherType,
}

/// How new what a volume holds is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentAge {
    /// When the source was asked that gave it first.
    pub(super) since: Timestamp,
    /// When the source was asked last, and gave the same.
    pub(super) checked: Option<Timestamp>,
    /// How much older than the question an answer may be: volumes share what they read.
    pub(super) lag: Duration,
}

impl ContentAge {
    /// Nothing is known but when the volume was written.
    pub(super) const fn written(since: Timestamp) -> Self {
        Self { since, checked: None, lag: Duration::ZERO }
    }

    /// Whether the source certainly held it still after `written`: then when it was asked.
    fn confirmed_after(&self, written: Timestamp) -> Option<Timestamp> {
        self.checked.filter(|asked| asked.saturating_sub(self.lag).is_ok_and(|at| at > written))
    }
}

/// What to do about a Secret, given what the volume says and how new that is.
///
/// Pods on many nodes share a Secret, and rotate at different times: were each node to restore
/// what it has mounted, they would undo each other's work until the last has rotated. So each
/// writes down how new its content is, and who has something older stands back, until the source
/// has confirmed it later than that. When a volume was mounted says nothing: it may have been
/// filled from the sealed cache of an outage.
pub(super) fn decide(
    existing: Option<&Secret>,
    desired: &DesiredSecret,
    age: &ContentAge,
    now: Timestamp,
    manager: &str,
) -> Change {
    // The clock may have been ahead when the volume was filled.
    let since = age.since.min(now);
    let Some(existing) = existing else { return Change::Apply { stamp: since } };
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
    let ours_alone = desired.data.keys().all(|key| owned.data.contains(key))
        && owned.annotations.contains(CONTENT_SINCE);
    let written = stamp_of(existing, now).filter(|written| ours_alone && *written > since);
    match written {
        None => Change::Apply { stamp: since },
        Some(written) if same_data => Change::Apply { stamp: written },
        Some(written) => match age.confirmed_after(written) {
            Some(asked) => Change::Apply { stamp: asked.min(now) },
            None => Change::LeaveNewer { written },
        },
    }
}

/// How new a Secret says that it is. A stamp of the future is one of a clock that was ahead, and
/// would keep everybody else from the Secret until then.
fn stamp_of(secret: &Secret, now: Timestamp) -> Option<Timestamp> {
    let stamp: Timestamp =
        secret.metadata.annotations.as_ref()?.get(CONTENT_SINCE)?.parse().ok()?;
    let latest = now.saturating_add(CLOCKS_DIFFER).unwrap_or(Timestamp::MAX);
    (stamp <= latest).then_some(stamp)
}

/// The class whose Secret this becomes another class's: each undoes what the other writes, for ever.
pub(super) fn taken_from(
    existing: Option<&Secret>,
    desired: &DesiredSecret,
    class: &str,
    manager: &str,
) -> Option<String> {
    let metadata = &existing?.metadata;
    let other = metadata.annotations.as_ref()?.get(OF_CLASS)?;
    let owned = owned_fields(metadata.managed_fields.as_deref(), manager);
    let is_ours = owned.annotations.contains(OF_CLASS);
    let same_data = has_the_same_data(existing?, desired) && owned.data.is_subset(&keys(desired));
    (is_ours && !same_data && other != class).then(|| other.clone())
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
            .all(|it| desired.annotations.contains_key(it) || OF_OURS.contains(&it.as_str()))
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

/// The annotation with the time at which the source was asked that gave what a Secret says.
pub(super) const CONTENT_SINCE: &str = "lanyard.dev/content-since";

/// The annotation with the class that a Secret was written for last.
pub(super) const OF_CLASS: &str = "lanyard.dev/secret-provider-class";

/// What no class says itself.
const OF_OURS: [&str; 2] = [CONTENT_SINCE, OF_CLASS];

/// By how much the clocks of two nodes may differ.
const CLOCKS_DIFFER: Duration = Duration::from_mins(5);

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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn apply(second: i64) -> Change {
        Change::Apply { stamp: at(second) }
    }

    /// Judges at second 1,000.
    fn judge_aged(existing: &Secret, desired: &DesiredSecret, age: ContentAge) -> Change {
        decide(Some(existing), desired, &age, at(1_000), OURS)
    }

    fn judge(existing: &Secret, desired: &DesiredSecret, second: i64) -> Change {
        judge_aged(existing, desired, ContentAge::written(at(second)))
    }

    #[test]
    fn a_secret_that_says_what_it_should_is_not_written_whatever_others_added() {
        let age = ContentAge::written(at(50));
        assert_eq!(decide(None, &desired("new"), &age, at(1_000), OURS), apply(50));
        for second in [50, 100, 150] {
            assert_eq!(judge(&applied(|_| ()), &desired("new"), second), Change::Nothing);
        }
    }

    #[test]
    fn a_newer_volume_is_written_and_an_older_one_stands_back() {
        let existing = applied(|_| ());
        assert_eq!(judge(&existing, &desired("newer"), 150), apply(150));
        assert_eq!(judge(&existing, &desired("old"), 50), Change::LeaveNewer { written: at(100) });
    }

    #[test]
    fn who_stood_back_goes_on_once_the_source_has_confirmed_what_it_has() {
        let existing = applied(|_| ());
        let age = |checked| ContentAge {
            since: at(50),
            checked: Some(at(checked)),
            lag: Duration::from_mins(2),
        };
        let judge = |checked| judge_aged(&existing, &desired("rolled-back"), age(checked));
        assert_eq!(judge(220), Change::LeaveNewer { written: at(100) }, "it may be a shared read");
        assert_eq!(judge(221), apply(221));
    }

    #[test]
    fn a_stamp_of_a_clock_that_was_ahead_or_of_other_hands_keeps_nobody_back() {
        let stamped = |second: i64| {
            applied(|secret| {
                secret["metadata"]["annotations"][CONTENT_SINCE] = json!(at(second));
            })
        };
        let newer = desired("newer");
        assert_eq!(judge(&stamped(1_300), &newer, 50), Change::LeaveNewer { written: at(1_300) });
        assert_eq!(judge(&stamped(1_301), &newer, 50), apply(50));
        assert_eq!(judge(&stamped(100), &newer, 5_000), apply(1_000), "ours was ahead");
        let foreign = applied(|secret| {
            secret["metadata"]["managedFields"][1]["fieldsV1"]["f:metadata"]["f:annotations"] =
                json!({"f:note": {}});
        });
        assert_eq!(judge(&foreign, &newer, 50), apply(50));
    }

    #[test]
    fn the_secret_of_another_class_is_one_only_while_it_says_something_else() {
        let of = |class: &str| {
            applied(|secret| {
                secret["metadata"]["annotations"][OF_CLASS] = json!(class);
                let fields = &mut secret["metadata"]["managedFields"][1]["fieldsV1"];
                fields["f:metadata"]["f:annotations"][format!("f:{OF_CLASS}")] = json!({});
            })
        };
        let taken = |existing: &Secret, value: &str| {
            taken_from(Some(existing), &desired(value), "mine", OURS)
        };
        assert_eq!(taken(&of("other"), "else").as_deref(), Some("other"));
        assert_eq!(taken(&of("other"), "new"), None);
        assert_eq!(taken(&of("mine"), "else"), None);
        assert_eq!(taken(&applied(|_| ()), "else"), None);
        assert_eq!(judge(&of("other"), &desired("new"), 100), Change::Nothing);
    }

    #[test]
    fn labels_are_mended_without_making_the_content_older() {
        let without_label = applied(|secret| secret["metadata"]["labels"] = json!(null));
        assert_eq!(judge(&without_label, &desired("new"), 50), apply(100));
    }

    #[test]
    fn what_other_hands_changed_is_restored_whatever_the_stamp() {
        let edited = applied(|secret| {
            secret["data"]["k"] = json!("ZWRpdGVk");
            secret["metadata"]["managedFields"][1]["fieldsV1"]["f:data"] = json!({});
        });
        assert_eq!(judge(&edited, &desired("new"), 50), apply(50));
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
        assert_eq!(judge(&upstream("b2xk"), &desired("new"), 50), apply(50));
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
            assert_eq!(judge(&existing, &desired("new"), 100), apply(100));
        }
    }

    #[test]
    fn a_label_or_annotation_of_the_class_that_is_missing_is_written() {
        let without_label = applied(|secret| secret["metadata"]["labels"] = json!(null));
        assert_eq!(judge(&without_label, &desired("new"), 150), apply(150));
        let without_note = applied(|secret| secret["metadata"]["annotations"] = json!(null));
        assert_eq!(judge(&without_note, &desired("new"), 50), apply(50));
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
