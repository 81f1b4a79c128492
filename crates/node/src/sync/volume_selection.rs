//! Selects the volume that a pod status refers to. Pure.
//!
//! A client that may write a pod status can write any path into it, and the files that are read become
//! Secrets that others may read (CVE-2020-8568). Therefore the path is never taken from the status: it is
//! built from the pod, which the API server vouches for. The status only selects one of the pod's volumes.

use std::path::{Path, PathBuf};

use lanyard_api::SecretProviderClassPodStatus;

use super::partial_pod::{PartialPod, PartialPodVolume};
use crate::volume_attribute::CLASS;

/// The location of the volumes of this driver on the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriverVolumesLocation<'a> {
    /// The kubelet's root directory.
    pub(super) kubelet_directory: &'a Path,
    /// The name of the driver.
    pub(super) driver: &'a str,
}

/// The reason why a `SecretProviderClassPodStatus` is not processed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectVolumeError {
    #[error("the pod is terminating")]
    PodTerminating,
    /// The pod of that name is a newer one.
    #[error("the pod status is of an earlier pod of the same name")]
    PodReplaced,
    /// The pod has no such volume, or the path in the status was tampered with.
    #[error("the pod has no volume of this driver and class at the path of the pod status")]
    NoSuchVolume,
}

/// Returns the path of the volume that the pod status refers to, relative to the kubelet's directory.
pub(super) fn select_volume(
    status: &SecretProviderClassPodStatus,
    pod: &PartialPod,
    location: DriverVolumesLocation<'_>,
) -> Result<PathBuf, SelectVolumeError> {
    let uid = pod.metadata.uid.as_deref().ok_or(SelectVolumeError::PodReplaced)?;
    let mut owners = status.metadata.owner_references.iter().flatten();
    if !owners.any(|owner| owner.kind == "Pod" && owner.uid == uid) {
        return Err(SelectVolumeError::PodReplaced);
    }
    let phase = pod.status.phase.as_deref();
    if pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")) {
        return Err(SelectVolumeError::PodTerminating);
    }
    let class = status.status.secret_provider_class_name.as_deref();
    let stated = status.status.target_path.as_deref().map(Path::new);
    let is_of_class = |volume: &&PartialPodVolume| {
        volume.csi.as_ref().is_some_and(|csi| {
            let attributes = csi.volume_attributes.as_ref();
            let named = attributes.and_then(|it| it.get(CLASS));
            csi.driver == location.driver && class.is_some() && named.map(String::as_str) == class
        })
    };
    pod.spec
        .volumes
        .iter()
        .filter(is_of_class)
        .filter_map(|volume| volume_path(uid, &volume.name))
        .find(|path| stated == Some(&location.kubelet_directory.join(path)))
        .ok_or(SelectVolumeError::NoSuchVolume)
}

/// Returns the path at which the kubelet publishes a volume, relative to its directory.
fn volume_path(uid: &str, volume: &str) -> Option<PathBuf> {
    let is_component =
        |text: &str| !text.is_empty() && text != "." && text != ".." && !text.contains('/');
    let path = || Path::new("pods").join(uid).join("volumes/kubernetes.io~csi").join(volume);
    (is_component(uid) && is_component(volume)).then(|| path().join("mount"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TARGET: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/creds/mount";

    fn pod(change: impl FnOnce(&mut Value)) -> PartialPod {
        let volume = |name: &str, driver: &str, class: &str| {
            let attributes = json!({"secretProviderClass": class});
            json!({"name": name, "csi": {"driver": driver, "volumeAttributes": attributes}})
        };
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "volumes": [
                    {"name": "tmp", "emptyDir": {}},
                    volume("creds", "secrets-store.csi.k8s.io", "c"),
                    volume("again", "secrets-store.csi.k8s.io", "c"),
                    volume("other", "secrets-store.csi.k8s.io", "d"),
                    volume("foreign", "example.com", "c"),
                ],
                "containers": [{"name": "x"}],
            },
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn status(target: &str) -> SecretProviderClassPodStatus {
        serde_json::from_value(json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
            ]},
            "status": {"podName": "p", "secretProviderClassName": "c", "targetPath": target},
        }))
        .unwrap()
    }

    fn select(
        status: &SecretProviderClassPodStatus,
        pod: &PartialPod,
    ) -> Result<PathBuf, SelectVolumeError> {
        let location = DriverVolumesLocation {
            kubelet_directory: Path::new("/var/lib/kubelet"),
            driver: "secrets-store.csi.k8s.io",
        };
        select_volume(status, pod, location)
    }

    #[test]
    fn volume_at_the_target_path_of_the_status_is_selected() {
        let pod = pod(|_| ());
        let path = |volume: &str| format!("pods/u/volumes/kubernetes.io~csi/{volume}/mount");
        for volume in ["creds", "again"] {
            let target = format!("/var/lib/kubelet/{}", path(volume));
            assert_eq!(select(&status(&target), &pod), Ok(path(volume).into()));
        }
    }

    #[test]
    fn no_other_path_is_ever_selected() {
        let pod = pod(|_| ());
        let below =
            |path: &str| format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/{path}");
        for target in [
            "/etc",
            "",
            &below("other/mount"),
            &below("foreign/mount"),
            &below("tmp/mount"),
            &below("creds/mount/../../../../../../etc"),
            &below("creds"),
            &TARGET.replace("/u/", "/v/"),
            &format!("/host{TARGET}"),
        ] {
            assert_eq!(
                select(&status(target), &pod),
                Err(SelectVolumeError::NoSuchVolume),
                "{target}"
            );
        }
    }

    #[test]
    fn terminating_or_replaced_pod_is_rejected() {
        let judged = |pointer: [&str; 2], value: Value| {
            select(&status(TARGET), &pod(|pod| pod[pointer[0]][pointer[1]] = value))
        };
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(
                judged(["status", "phase"], json!(phase)),
                Err(SelectVolumeError::PodTerminating)
            );
        }
        let ending = judged(["metadata", "deletionTimestamp"], json!("2026-11-21T12:00:00Z"));
        assert_eq!(ending, Err(SelectVolumeError::PodTerminating));
        assert_eq!(judged(["metadata", "uid"], json!("v")), Err(SelectVolumeError::PodReplaced));
    }

    #[test]
    fn path_traversal_names_are_rejected() {
        assert_eq!(volume_path("..", "v"), None);
        assert_eq!(volume_path("u", "a/b"), None);
        assert_eq!(volume_path("", "v"), None);
    }
}
