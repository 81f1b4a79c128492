//! What a verdict is made from: what was read out of the management cluster.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_api::{CanaryStatusReport, SecretProviderClassPodStatus, VolumeStatusReport};
use serde::de::DeserializeOwned;

use crate::drift::DriftFinding;
use crate::forecast::RenewalPolicy;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::credential_injection::{CLASS_NAME_ATTRIBUTE, CSI_DRIVER};
use crate::problem::ValidationProblems;
use crate::workload::CanaryCalls;

/// Everything that the status of a hosted cluster's identities is made from. The order of pods and
/// of volumes does not matter.
#[derive(Debug, Clone, Copy)]
pub struct IdentityStatusInputs<'a> {
    /// The hosted cluster.
    pub cluster: ClusterValidation<'a>,
    /// `metadata.generation` of the HostedCluster.
    pub generation: Option<i64>,
    /// The time. It shows only in what changes.
    pub now: Timestamp,
    /// The SecretProviderClasses in the namespace of the control plane.
    pub classes: ObservedClasses<'a>,
    /// The pods in the namespace of the control plane.
    pub pods: &'a [ObservedPod],
    /// The pod statuses in the namespace of the control plane.
    pub volumes: &'a [ObservedVolume],
    /// What the canaries call, and so how far they walk.
    pub canary_calls: CanaryCalls<'a>,
    /// What renewals and rotations are measured by.
    pub renewal_policy: &'a RenewalPolicy,
    /// What somebody should look at in the HostedCluster, though it can be used.
    pub lints: &'a ValidationProblems,
    /// Whether the HostedCluster is being deleted: its pods go, and what was known last stands.
    pub is_deleting: bool,
    /// What [`crate::drift::find`] found.
    pub drift_findings: &'a [DriftFinding],
    /// The status as it stands.
    pub previous_status: Option<&'a HostedClusterIdentitiesStatus>,
}

/// What became of the HostedCluster's validation.
#[derive(Debug, Clone, Copy)]
pub enum ClusterValidation<'a> {
    /// It can be used.
    Valid(&'a ValidatedHostedCluster),
    /// It cannot be used. What still runs is told, of the generation before.
    Invalid(&'a ValidationProblems),
}

/// The SecretProviderClasses that are there.
#[derive(Debug, Clone, Copy)]
pub enum ObservedClasses<'a> {
    /// They could not be read: the kind is not served, or not to us.
    Unknown,
    /// The names of all.
    Listed(&'a BTreeSet<String>),
}

impl ObservedClasses<'_> {
    pub(super) fn contains(self, name: &str) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Listed(names) => Some(names.contains(name)),
        }
    }
}

/// What an annotation said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReportAnnotation<T> {
    /// There is no annotation.
    #[default]
    Absent,
    /// It cannot be read: its writer is of another version, or somebody else wrote it.
    Unreadable,
    /// It said this.
    Parsed(T),
}

impl<T: DeserializeOwned> ReportAnnotation<T> {
    fn parse(annotation: Option<&String>) -> Self {
        annotation.map_or(Self::Absent, |text| {
            serde_json::from_str(text).map_or(Self::Unreadable, Self::Parsed)
        })
    }
}

impl<T> ReportAnnotation<T> {
    /// What was said.
    pub const fn parsed(&self) -> Option<&T> {
        match self {
            Self::Parsed(facts) => Some(facts),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// A pod of the control plane: as much of it as the verdict needs, so that whoever watches pods
/// need not keep more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Option<String>,
    /// The deployment that it belongs to, where that can be seen.
    pub deployment: Option<String>,
    /// The classes that its CSI volumes name.
    pub class_names: BTreeSet<String>,
    /// Whether it runs and is ready.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// By when it is gone, where it is being deleted.
    pub deletion_deadline: Option<Timestamp>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When the youngest of its containers began to run.
    pub started_at: Option<Timestamp>,
    /// How often the container that was restarted most often was.
    pub restarts: u32,
    /// What its canary told.
    pub canary_report: ReportAnnotation<CanaryStatusReport>,
}

impl ObservedPod {
    /// What a pod shows.
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
            canary_report: ReportAnnotation::parse(
                annotations.and_then(|all| all.get(CanaryStatusReport::REPORT_ANNOTATION)),
            ),
        }
    }
}

fn running_since(container: &ContainerStatus) -> Option<Timestamp> {
    Some(container.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

/// A deployment's ReplicaSet is named after it and after the hash of its template.
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

/// A mounted volume, as its pod status tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedVolume {
    /// The pod.
    pub pod_name: String,
    /// The uid of the pod, by the owner of the pod status.
    pub pod_uid: Option<String>,
    /// The class.
    pub class_name: String,
    /// Whether it is mounted.
    pub is_mounted: bool,
    /// The mounted objects: id and version.
    pub objects: Vec<(String, String)>,
    /// What the node told beyond that; the driver of the Secrets Store tells nothing.
    pub report: ReportAnnotation<VolumeStatusReport>,
}

impl ObservedVolume {
    /// What a pod status shows; nothing where it names no pod or no class.
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
            report: ReportAnnotation::parse(annotations.and_then(|all| all.get(annotation))),
        })
    }

    /// Whether it is a volume of this very pod, and not of an earlier one of its name.
    pub(crate) fn belongs_to(&self, pod: &ObservedPod) -> bool {
        let same_uid = match (&self.pod_uid, &pod.uid) {
            (Some(told), Some(uid)) => told == uid,
            _ => true,
        };
        self.pod_name == pod.name && same_uid
    }
}
