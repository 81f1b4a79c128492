//! Builds the desired pod status and compares it with the existing one. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use lanyard_api::pod_status::{SecretProviderClassObject, SecretProviderClassPodStatusStatus};
use lanyard_api::{SecretProviderClassPodStatus, VolumeStatusReport};
use lanyard_keyvault::VolumePod;
use serde_json::{Map, Value, json};

use crate::kubernetes::digest::sha256_of_texts;
use crate::reporter::VolumeStatusUpdate;

/// Returns the pod status of a report with only the fields that the node owns, ready for server-side apply.
pub(super) fn desired_pod_status(
    report: &VolumeStatusUpdate,
    name: &str,
    node_label: &str,
) -> SecretProviderClassPodStatus {
    let labels =
        [(SecretProviderClassPodStatus::NODE_NAME_LABEL.to_owned(), node_label.to_owned())];
    let mut objects: Vec<_> = report.objects.iter().collect();
    objects.sort_unstable();
    let objects = objects.into_iter().map(|object| SecretProviderClassObject {
        id: Some(object.id.clone()),
        version: Some(object.version.clone()),
        unknown: Map::new(),
    });
    SecretProviderClassPodStatus {
        api_version: SecretProviderClassPodStatus::API_VERSION.to_owned(),
        kind: SecretProviderClassPodStatus::KIND.to_owned(),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(report.pod.namespace.clone()),
            labels: Some(BTreeMap::from(labels)),
            annotations: facts_annotation(&report.facts),
            owner_references: Some(vec![pod_owner(&report.pod)]),
            ..ObjectMeta::default()
        },
        status: SecretProviderClassPodStatusStatus {
            pod_name: Some(report.pod.name.clone()),
            secret_provider_class_name: Some(report.class_name.clone()),
            target_path: Some(report.target.to_string_lossy().into_owned()),
            mounted: Some(true),
            objects: objects.collect(),
            unknown: Map::new(),
        },
        unknown: Map::new(),
    }
}

/// Returns the annotation with the facts; `None` without facts.
fn facts_annotation(facts: &VolumeStatusReport) -> Option<BTreeMap<String, String>> {
    if *facts == VolumeStatusReport::default() {
        return None;
    }
    // A struct of strings and times always serializes to JSON.
    let text = serde_json::to_string(facts).ok()?;
    Some(BTreeMap::from([(
        SecretProviderClassPodStatus::VOLUME_REPORT_ANNOTATION.to_owned(),
        text,
    )]))
}

fn pod_owner(pod: &VolumePod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        ..OwnerReference::default()
    }
}

/// Returns a digest that two reports share exactly when they result in the same pod status.
pub(super) fn report_fingerprint(report: &VolumeStatusUpdate) -> [u8; 32] {
    let status = desired_pod_status(report, "", "");
    sha256_of_texts(&[&serde_json::to_string(&status).unwrap_or_default()])
}

/// Returns whether an object has the desired fields. Fields of other field managers are ignored.
pub(super) fn is_up_to_date(
    existing: &SecretProviderClassPodStatus,
    desired: &SecretProviderClassPodStatus,
) -> bool {
    let (is, should) = (&existing.status, &desired.status);
    let label = |it: &SecretProviderClassPodStatus| {
        it.metadata.labels.as_ref()?.get(SecretProviderClassPodStatus::NODE_NAME_LABEL).cloned()
    };
    let facts = |it: &SecretProviderClassPodStatus| {
        it.metadata
            .annotations
            .as_ref()?
            .get(SecretProviderClassPodStatus::VOLUME_REPORT_ANNOTATION)
            .cloned()
    };
    let known = |it: &SecretProviderClassPodStatusStatus| {
        let object = |it: &SecretProviderClassObject| (it.id.clone(), it.version.clone());
        it.objects.iter().map(object).collect::<Vec<_>>()
    };
    is.pod_name == should.pod_name
        && is.secret_provider_class_name == should.secret_provider_class_name
        && is.target_path == should.target_path
        && is.mounted == should.mounted
        && known(is) == known(should)
        && label(existing) == label(desired)
        && facts(existing) == facts(desired)
        && has_same_owners(existing, desired)
}

fn has_same_owners(
    existing: &SecretProviderClassPodStatus,
    desired: &SecretProviderClassPodStatus,
) -> bool {
    let owners = |it: &SecretProviderClassPodStatus| {
        let owners = it.metadata.owner_references.iter().flatten();
        let owner = |it: &OwnerReference| (it.kind.clone(), it.name.clone(), it.uid.clone());
        owners.map(owner).collect::<Vec<_>>()
    };
    owners(existing) == owners(desired)
}

/// The kind of name under which the status of a volume is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodStatusNameKind {
    /// The plain name, as upstream.
    Plain,
    /// A name with a digest of the target: another volume has the plain name.
    WithDigest,
}

/// Selects the kind of name for the status of a volume, given the object with the plain name.
///
/// The volumes of a pod never change, so an object of the same pod with another target belongs to another
/// volume that still exists. An object of an earlier pod of the same name is a leftover and is reused.
pub(super) fn select_name_kind(
    existing: Option<&SecretProviderClassPodStatus>,
    report: &VolumeStatusUpdate,
) -> PodStatusNameKind {
    let Some(existing) = existing else { return PodStatusNameKind::Plain };
    let status = &existing.status;
    let is_ours = |is: Option<&str>, ours: &str| is.is_none_or(|is| is == ours);
    let same_pod = is_ours(status.pod_name.as_deref(), &report.pod.name)
        && is_ours(status.secret_provider_class_name.as_deref(), &report.class_name);
    let owners = existing.metadata.owner_references.iter().flatten();
    let same_uid = owners.into_iter().any(|owner| owner.uid == report.pod.uid);
    let target = report.target.to_string_lossy();
    let same_target = is_ours(status.target_path.as_deref(), &target);
    if same_pod && (same_target || !same_uid) {
        PodStatusNameKind::Plain
    } else {
        PodStatusNameKind::WithDigest
    }
}

/// Returns the patch that removes the owners that other clients added and that an apply does not remove.
pub(super) fn owner_cleanup_patch(
    applied: &SecretProviderClassPodStatus,
    desired: &SecretProviderClassPodStatus,
) -> Option<Value> {
    if has_same_owners(applied, desired) {
        return None;
    }
    Some(json!({
        "metadata": {
            "resourceVersion": applied.metadata.resource_version,
            "ownerReferences": desired.metadata.owner_references,
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use lanyard_api::ObjectStatusReport;
    use lanyard_provider::ProviderObjectVersion;

    fn object(id: &str, version: &str) -> ProviderObjectVersion {
        ProviderObjectVersion { id: id.to_owned(), version: version.to_owned() }
    }

    fn report(uid: &str, target: &str) -> VolumeStatusUpdate {
        VolumeStatusUpdate {
            pod: VolumePod {
                namespace: "n".to_owned(),
                name: "p".to_owned(),
                uid: uid.to_owned(),
                service_account: "sa".to_owned(),
            },
            class_name: "c".to_owned(),
            target: PathBuf::from(target),
            objects: vec![object("secret/b", "2"), object("secret/a", "1")],
            facts: VolumeStatusReport::default(),
        }
    }

    fn facts() -> VolumeStatusReport {
        VolumeStatusReport {
            last_good_hop: Some("file".to_owned()),
            objects: vec![ObjectStatusReport {
                id: "secret/a".to_owned(),
                version: "1".to_owned(),
                not_after: Some(Timestamp::UNIX_EPOCH),
                ..ObjectStatusReport::default()
            }],
            ..VolumeStatusReport::default()
        }
    }

    fn desired(report: &VolumeStatusUpdate) -> SecretProviderClassPodStatus {
        desired_pod_status(report, "p-n-c", "node")
    }

    #[test]
    fn pod_status_matches_upstream_plus_facts_annotation() {
        let with_facts = VolumeStatusUpdate { facts: facts(), ..report("u", "/t") };
        let text = r#"{"lastGoodHop":"file","objects":[{"id":"secret/a","version":"1","notAfter":"1970-01-01T00:00:00Z"}]}"#;
        assert_eq!(
            serde_json::to_value(desired(&with_facts)).unwrap(),
            json!({
                "apiVersion": "secrets-store.csi.x-k8s.io/v1",
                "kind": "SecretProviderClassPodStatus",
                "metadata": {
                    "name": "p-n-c",
                    "namespace": "n",
                    "labels": {"internal.secrets-store.csi.k8s.io/node-name": "node"},
                    "annotations": {"lanyard.dev/volume-facts": text},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
                },
                "status": {
                    "podName": "p",
                    "secretProviderClassName": "c",
                    "targetPath": "/t",
                    "mounted": true,
                    "objects": [
                        {"id": "secret/a", "version": "1"},
                        {"id": "secret/b", "version": "2"},
                    ],
                },
            })
        );
        assert_eq!(desired(&report("u", "/t")).metadata.annotations, None);
    }

    #[test]
    fn foreign_fields_do_not_make_a_status_outdated() {
        let should = desired(&report("u", "/t"));
        let mut is = should.clone();
        is.metadata.resource_version = Some("7".to_owned());
        is.metadata.labels.get_or_insert_default().insert("team".to_owned(), "x".to_owned());
        is.unknown.insert("extra".to_owned(), Value::Null);
        assert!(is_up_to_date(&is, &should));
        assert_eq!(owner_cleanup_patch(&is, &should), None);
    }

    #[test]
    fn every_owned_field_makes_a_status_outdated() {
        let should = desired(&VolumeStatusUpdate { facts: facts(), ..report("u", "/t") });
        let changes: [fn(&mut SecretProviderClassPodStatus); 9] = [
            |it| it.status.pod_name = None,
            |it| it.status.secret_provider_class_name = Some("x".to_owned()),
            |it| it.status.target_path = Some("/x".to_owned()),
            |it| it.status.mounted = Some(false),
            |it| it.status.objects.truncate(1),
            |it| it.status.objects[0].version = Some("9".to_owned()),
            |it| it.metadata.labels = None,
            |it| it.metadata.annotations = None,
            |it| it.metadata.owner_references = Some(Vec::new()),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut is = should.clone();
            change(&mut is);
            assert!(!is_up_to_date(&is, &should), "change {number}");
        }
    }

    #[test]
    fn report_without_facts_removes_the_annotation() {
        let is = desired(&VolumeStatusUpdate { facts: facts(), ..report("u", "/t") });
        assert!(!is_up_to_date(&is, &desired(&report("u", "/t"))));
    }

    #[test]
    fn second_volume_with_the_same_class_gets_a_digest_name() {
        let first = desired(&report("u", "/one"));
        assert_eq!(select_name_kind(None, &report("u", "/one")), PodStatusNameKind::Plain);
        assert_eq!(select_name_kind(Some(&first), &report("u", "/one")), PodStatusNameKind::Plain);
        assert_eq!(
            select_name_kind(Some(&first), &report("u", "/two")),
            PodStatusNameKind::WithDigest
        );
    }

    #[test]
    fn status_of_a_former_pod_of_the_same_name_is_reused() {
        let former = desired(&report("old", "/one"));
        let now = report("new", "/two");
        assert_eq!(select_name_kind(Some(&former), &now), PodStatusNameKind::Plain);
        let mut applied = desired(&now);
        applied.metadata.resource_version = Some("7".to_owned());
        let former = former.metadata.owner_references.unwrap();
        applied.metadata.owner_references.get_or_insert_default().extend(former);
        let patch = owner_cleanup_patch(&applied, &desired(&now)).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let owners = patch["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(owners.iter().map(|it| &it["uid"]).collect::<Vec<_>>(), ["new"]);
    }

    #[test]
    fn status_of_another_pod_with_the_same_name_is_not_overwritten() {
        let mut other = desired(&report("other", "/one"));
        other.status.pod_name = Some("p-n".to_owned());
        assert_eq!(
            select_name_kind(Some(&other), &report("u", "/two")),
            PodStatusNameKind::WithDigest
        );
    }

    proptest! {
        #[test]
        fn the_order_of_the_objects_does_not_matter(
            mut objects in prop::collection::vec(("[a-z]{1,3}", "[0-9]{1,3}"), 0..6),
            slot in 0_usize..6,
        ) {
            let of = |objects: &[(String, String)]| VolumeStatusUpdate {
                objects: objects.iter().map(|(id, version)| object(id, version)).collect(),
                ..report("u", "/t")
            };
            let before = of(&objects);
            let slot = slot.min(objects.len());
            objects.rotate_left(slot);
            let after = of(&objects);
            prop_assert_eq!(report_fingerprint(&before), report_fingerprint(&after));
            prop_assert!(is_up_to_date(&desired(&before), &desired(&after)));
        }
    }
}
