//! What a pod status shall say, and whether it says it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use lanyard_api::pod_status::{PodStatus, PodStatusObject};
use lanyard_api::{SecretProviderClassPodStatus, VolumeFacts};
use lanyard_keyvault::Pod;
use serde_json::{Map, Value, json};

use crate::kubernetes::digest::digest_of;
use crate::reporter::VolumeReport;

/// The pod status of a report: only what is ours to say, so that it can be applied as it is.
pub(super) fn desired_pod_status(
    report: &VolumeReport,
    name: &str,
    node_label: &str,
) -> SecretProviderClassPodStatus {
    let labels = [(SecretProviderClassPodStatus::NODE_NAME.to_owned(), node_label.to_owned())];
    let mut objects: Vec<_> = report.objects.iter().collect();
    objects.sort_unstable();
    let objects = objects.into_iter().map(|object| PodStatusObject {
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
            annotations: annotations(&report.facts),
            owner_references: Some(vec![owner(&report.pod)]),
            ..ObjectMeta::default()
        },
        status: PodStatus {
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

/// The facts as the annotation; none where nothing is known.
fn annotations(facts: &VolumeFacts) -> Option<BTreeMap<String, String>> {
    if *facts == VolumeFacts::default() {
        return None;
    }
    // A struct of texts and times always has a JSON form.
    let text = serde_json::to_string(facts).ok()?;
    Some(BTreeMap::from([(SecretProviderClassPodStatus::VOLUME_FACTS.to_owned(), text)]))
}

fn owner(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        ..OwnerReference::default()
    }
}

/// What two reports have in common exactly when they come to the same pod status.
pub(super) fn fingerprint(report: &VolumeReport) -> [u8; 32] {
    let status = desired_pod_status(report, "", "");
    digest_of(&[&serde_json::to_string(&status).unwrap_or_default()])
}

/// Whether an object says what it should. What else it says is not ours.
pub(super) fn is_same(
    existing: &SecretProviderClassPodStatus,
    desired: &SecretProviderClassPodStatus,
) -> bool {
    let (is, should) = (&existing.status, &desired.status);
    let label = |it: &SecretProviderClassPodStatus| {
        it.metadata.labels.as_ref()?.get(SecretProviderClassPodStatus::NODE_NAME).cloned()
    };
    let facts = |it: &SecretProviderClassPodStatus| {
        it.metadata.annotations.as_ref()?.get(SecretProviderClassPodStatus::VOLUME_FACTS).cloned()
    };
    let known = |it: &PodStatus| {
        let object = |it: &PodStatusObject| (it.id.clone(), it.version.clone());
        it.objects.iter().map(object).collect::<Vec<_>>()
    };
    is.pod_name == should.pod_name
        && is.secret_provider_class_name == should.secret_provider_class_name
        && is.target_path == should.target_path
        && is.mounted == should.mounted
        && known(is) == known(should)
        && label(existing) == label(desired)
        && facts(existing) == facts(desired)
        && has_the_same_owners(existing, desired)
}

fn has_the_same_owners(
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

/// Where the status of a volume stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Under the plain name.
    Plain,
    /// Under a name of its own: the plain one is another volume's.
    Beside,
}

/// Where the status of a volume stands, given what stands under the plain name.
///
/// The volumes of a pod never change, so an object of the same pod with another target is of
/// another volume that is still there. An object of an earlier pod of the same name is its
/// remains, and is taken over.
pub(super) fn place(
    existing: Option<&SecretProviderClassPodStatus>,
    report: &VolumeReport,
) -> Place {
    let Some(existing) = existing else { return Place::Plain };
    let status = &existing.status;
    let is_ours = |is: Option<&str>, ours: &str| is.is_none_or(|is| is == ours);
    let same_pod = is_ours(status.pod_name.as_deref(), &report.pod.name)
        && is_ours(status.secret_provider_class_name.as_deref(), &report.class_name);
    let owners = existing.metadata.owner_references.iter().flatten();
    let same_uid = owners.into_iter().any(|owner| owner.uid == report.pod.uid);
    let target = report.target.to_string_lossy();
    let same_target = is_ours(status.target_path.as_deref(), &target);
    if same_pod && (same_target || !same_uid) { Place::Plain } else { Place::Beside }
}

/// The patch that removes what applying leaves behind: owners that others gave.
pub(super) fn leftovers(
    applied: &SecretProviderClassPodStatus,
    desired: &SecretProviderClassPodStatus,
) -> Option<Value> {
    if has_the_same_owners(applied, desired) {
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
    use crate::provider::ObjectVersion;
    use lanyard_api::ObjectFacts;

    fn object(id: &str, version: &str) -> ObjectVersion {
        ObjectVersion { id: id.to_owned(), version: version.to_owned() }
    }

    fn report(uid: &str, target: &str) -> VolumeReport {
        VolumeReport {
            pod: Pod {
                namespace: "n".to_owned(),
                name: "p".to_owned(),
                uid: uid.to_owned(),
                service_account: "sa".to_owned(),
            },
            class_name: "c".to_owned(),
            target: PathBuf::from(target),
            objects: vec![object("secret/b", "2"), object("secret/a", "1")],
            facts: VolumeFacts::default(),
        }
    }

    fn facts() -> VolumeFacts {
        VolumeFacts {
            last_good_hop: Some("file".to_owned()),
            objects: vec![ObjectFacts {
                id: "secret/a".to_owned(),
                version: "1".to_owned(),
                not_after: Some(Timestamp::UNIX_EPOCH),
                ..ObjectFacts::default()
            }],
            ..VolumeFacts::default()
        }
    }

    fn desired(report: &VolumeReport) -> SecretProviderClassPodStatus {
        desired_pod_status(report, "p-n-c", "node")
    }

    #[test]
    fn the_object_is_that_of_upstream_with_the_facts_beside() {
        let with_facts = VolumeReport { facts: facts(), ..report("u", "/t") };
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
    fn an_object_is_the_same_whatever_others_say_on_it() {
        let should = desired(&report("u", "/t"));
        let mut is = should.clone();
        is.metadata.resource_version = Some("7".to_owned());
        is.metadata.labels.get_or_insert_default().insert("team".to_owned(), "x".to_owned());
        is.unknown.insert("extra".to_owned(), Value::Null);
        assert!(is_same(&is, &should));
        assert_eq!(leftovers(&is, &should), None);
    }

    #[test]
    fn every_difference_of_ours_is_one() {
        let should = desired(&VolumeReport { facts: facts(), ..report("u", "/t") });
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
            assert!(!is_same(&is, &should), "change {number}");
        }
    }

    #[test]
    fn facts_of_the_past_are_removed_by_a_report_without_any() {
        let is = desired(&VolumeReport { facts: facts(), ..report("u", "/t") });
        assert!(!is_same(&is, &desired(&report("u", "/t"))));
    }

    #[test]
    fn the_second_volume_of_a_pod_with_the_same_class_stands_beside_the_first() {
        let first = desired(&report("u", "/one"));
        assert_eq!(place(None, &report("u", "/one")), Place::Plain);
        assert_eq!(place(Some(&first), &report("u", "/one")), Place::Plain);
        assert_eq!(place(Some(&first), &report("u", "/two")), Place::Beside);
    }

    #[test]
    fn the_remains_of_a_former_pod_of_the_same_name_are_taken_over() {
        let former = desired(&report("old", "/one"));
        let now = report("new", "/two");
        assert_eq!(place(Some(&former), &now), Place::Plain);
        let mut applied = desired(&now);
        applied.metadata.resource_version = Some("7".to_owned());
        let former = former.metadata.owner_references.unwrap();
        applied.metadata.owner_references.get_or_insert_default().extend(former);
        let patch = leftovers(&applied, &desired(&now)).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let owners = patch["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(owners.iter().map(|it| &it["uid"]).collect::<Vec<_>>(), ["new"]);
    }

    #[test]
    fn another_pod_that_comes_to_the_same_name_is_left_alone() {
        let mut other = desired(&report("other", "/one"));
        other.status.pod_name = Some("p-n".to_owned());
        assert_eq!(place(Some(&other), &report("u", "/two")), Place::Beside);
    }

    proptest! {
        #[test]
        fn the_order_of_the_objects_does_not_matter(
            mut objects in prop::collection::vec(("[a-z]{1,3}", "[0-9]{1,3}"), 0..6),
            turn in 0_usize..6,
        ) {
            let of = |objects: &[(String, String)]| VolumeReport {
                objects: objects.iter().map(|(id, version)| object(id, version)).collect(),
                ..report("u", "/t")
            };
            let before = of(&objects);
            let turn = turn.min(objects.len());
            objects.rotate_left(turn);
            let after = of(&objects);
            prop_assert_eq!(fingerprint(&before), fingerprint(&after));
            prop_assert!(is_same(&desired(&before), &desired(&after)));
        }
    }
}
