//! The pods of a control plane and their mounted volumes, read from the management cluster.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use lanyard_api::{CanaryStatusReport, SecretProviderClassPodStatus, VolumeStatusReport};
use serde::de::DeserializeOwned;

use crate::hosted_cluster::credential_injection::{CLASS_NAME_ATTRIBUTE, CSI_DRIVER};

/// The content of an annotation with a status report in JSON: the canary's on its pod, or the node plugin's on
/// a `SecretProviderClassPodStatus`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StatusReportAnnotation<T> {
    /// The annotation does not exist.
    #[default]
    Absent,
    /// The annotation cannot be parsed: its writer has another version or is not lanyard.
    Unreadable,
    /// The parsed report.
    Parsed(T),
}

impl<T: DeserializeOwned> StatusReportAnnotation<T> {
    fn parse(annotation: Option<&String>) -> Self {
        annotation.map_or(Self::Absent, |text| {
            serde_json::from_str(text).map_or(Self::Unreadable, Self::Parsed)
        })
    }
}

impl<T> StatusReportAnnotation<T> {
    /// Returns the parsed report.
    pub const fn parsed(&self) -> Option<&T> {
        match self {
            Self::Parsed(facts) => Some(facts),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// A pod of the control plane, reduced to the fields that the status needs, so that caches need not
/// store whole pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedPod {
    pub name: String,
    pub uid: Option<String>,
    /// The owning deployment, if it can be determined.
    pub deployment: Option<String>,
    /// The SecretProviderClasses of its CSI volumes.
    pub class_names: BTreeSet<String>,
    /// Whether the pod is running and ready.
    pub is_ready: bool,
    /// Whether the pod is being deleted.
    pub is_deleting: bool,
    /// The end of the deletion grace period, if the pod is being deleted.
    pub deletion_deadline: Option<Timestamp>,
    /// The creation time.
    pub created_at: Option<Timestamp>,
    /// The start time of the most recently started container.
    pub started_at: Option<Timestamp>,
    /// The highest restart count of its containers.
    pub restarts: u32,
    pub canary_report: StatusReportAnnotation<CanaryStatusReport>,
}

impl ObservedPod {
    /// Converts a pod.
    pub fn from_pod(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let containers =
            status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let is_ready = status
            .and_then(|status| status.conditions.as_ref())
            .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"));
        let phase = status.and_then(|status| status.phase.as_deref());
        let annotations = pod.metadata.annotations.as_ref();
        let restarts = containers.iter().map(|container| container.restart_count).max();
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone(),
            deployment: deployment_name_of(pod),
            class_names: class_names_of(pod),
            is_ready: is_ready && phase == Some("Running"),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            deletion_deadline: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            created_at: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            started_at: containers.iter().filter_map(running_since).max(),
            restarts: restarts.and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
            canary_report: StatusReportAnnotation::parse(
                annotations.and_then(|all| all.get(CanaryStatusReport::REPORT_ANNOTATION)),
            ),
        }
    }
}

fn running_since(container: &ContainerStatus) -> Option<Timestamp> {
    Some(container.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

/// Derives the deployment from the name of the ReplicaSet: the deployment's name followed by the
/// hash of the pod template.
fn deployment_name_of(pod: &Pod) -> Option<String> {
    let owner =
        pod.metadata.owner_references.as_ref()?.iter().find(|it| it.controller == Some(true))?;
    if owner.kind != "ReplicaSet" {
        return Some(owner.name.clone());
    }
    let hash = pod.metadata.labels.as_ref()?.get("pod-template-hash")?;
    Some(owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')?.to_owned())
}

fn class_names_of(pod: &Pod) -> BTreeSet<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let csi = volumes.iter().filter_map(|volume| volume.csi.as_ref());
    csi.filter(|csi| csi.driver == CSI_DRIVER)
        .filter_map(|csi| csi.volume_attributes.as_ref()?.get(CLASS_NAME_ATTRIBUTE).cloned())
        .collect()
}

/// A mounted volume, from its `SecretProviderClassPodStatus`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedVolume {
    pub pod_name: String,
    /// The uid of the pod, from the owner reference of the pod status.
    pub pod_uid: Option<String>,
    /// The name of the SecretProviderClass.
    pub class_name: String,
    /// Whether the volume is mounted.
    pub is_mounted: bool,
    /// The ids and versions of the mounted objects.
    pub objects: Vec<(String, String)>,
    /// The report of lanyard's node plugin; the Secrets Store CSI driver writes none.
    pub report: StatusReportAnnotation<VolumeStatusReport>,
}

impl ObservedVolume {
    /// Converts a pod status; `None` if it names no pod or no class.
    pub fn from_pod_status(status: &SecretProviderClassPodStatus) -> Option<Self> {
        let metadata = &status.metadata;
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        let annotation = SecretProviderClassPodStatus::VOLUME_REPORT_ANNOTATION;
        let objects = status.status.objects.iter().filter_map(|object| {
            Some((object.id.clone()?, object.version.clone().unwrap_or_default()))
        });
        Some(Self {
            pod_name: status.status.pod_name.clone()?,
            pod_uid: owners.iter().find(|it| it.kind == "Pod").map(|owner| owner.uid.clone()),
            class_name: status.status.secret_provider_class_name.clone()?,
            is_mounted: status.status.mounted == Some(true),
            objects: objects.collect(),
            report: StatusReportAnnotation::parse(annotations.and_then(|all| all.get(annotation))),
        })
    }

    /// Returns whether the volume belongs to this pod, and not to an earlier pod of the same name.
    pub(crate) fn belongs_to(&self, pod: &ObservedPod) -> bool {
        let same_uid = match (&self.pod_uid, &pod.uid) {
            (Some(owner_uid), Some(uid)) => owner_uid == uid,
            _ => true,
        };
        self.pod_name == pod.name && same_uid
    }
}
