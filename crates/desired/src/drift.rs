//! What is not as it was rendered, or not in use as it is mounted.
//!
//! Pure. What is different for a moment is no drift: nodes look one after another, and processes
//! need a while to load what was mounted. So [`find`] is given a [`DriftHistory`] of since when things
//! are different, and gives the next one; at the start it is resumed from the status as it stands,
//! so that a restart neither forgets a finding nor finds it anew.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_api::{CanaryStatusReport, ObjectStatusReport, truncate_to_second};
use lanyard_vocabulary::Component;

use crate::diff::ObjectChange;
use crate::forecast::PropagationDelay;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::problem::ValidationProblem;
use crate::status::{ObservedPod, ObservedVolume};

#[cfg(test)]
mod tests;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Drift {
    /// An object is not as it was rendered.
    ObjectChanged {
        /// The object, such as `SecretProviderClass clusters-harbour/managed-azure-cpo`.
        object: String,
        /// The paths that differ.
        paths: Vec<String>,
    },
    /// A pod mounts something else than the vault's secret that the cluster names.
    UnexpectedObjectMounted {
        /// The component.
        component: Component,
        /// The pod.
        pod: String,
        /// The id of what the cluster names.
        expected_id: String,
    },
    /// A pod mounts an older version than another pod does.
    StaleMount {
        /// The component.
        component: Component,
        /// The pod.
        pod: String,
        /// The version that it mounts.
        mounted_version: String,
        /// The newest version that any pod mounts.
        newest_version: String,
    },
    /// A process goes on with an older certificate than the one that is mounted for it.
    OldCertificateInUse {
        /// The component.
        component: Component,
        /// The pod.
        pod: String,
        /// The SHA-256 thumbprint of the certificate in use.
        thumbprint: String,
        /// The version that is mounted.
        mounted_version: String,
    },
    /// Another hosted cluster has its credential in the same secret.
    SharedCredential {
        /// The field of the HostedCluster.
        field: String,
        /// What is shared with whom.
        message: String,
    },
    /// A kind of the management cluster is refused: its objects are left out, or what is known of
    /// them is old.
    KindForbidden(UnavailableKind),
    /// A kind is not served by the management cluster, and its objects are left out.
    KindNotServed(UnavailableKind),
}

/// A kind that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnavailableKind {
    /// The kind, such as `SecretProviderClass`.
    pub kind: String,
    /// What was tried, and what came back.
    pub message: String,
    /// What to do next.
    pub hint: &'static str,
}

/// A drift, and since when it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftFinding {
    /// What.
    pub drift: Drift,
    /// Since when.
    pub since: Timestamp,
}

/// An object that differs from what was rendered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedObject {
    /// The object, such as `SecretProviderClass clusters-harbour/managed-azure-cpo`.
    pub object: String,
    /// The paths that differ.
    pub paths: Vec<String>,
}

impl ChangedObject {
    /// What a change would undo; nothing where it changes nothing that is there.
    pub fn from_change(change: &ObjectChange) -> Option<Self> {
        let ObjectChange::Apply { object, differing_fields: why, unowned_fields: foreign, .. } =
            change
        else {
            return None;
        };
        let paths = why.iter().chain(foreign).map(ToString::to_string).collect();
        Some(Self { object: object.key.to_string(), paths })
    }
}

/// What drift is looked for in.
#[derive(Debug, Clone, Copy)]
pub struct DriftInputs<'a> {
    /// The cluster.
    pub cluster: &'a ValidatedHostedCluster,
    /// The time.
    pub now: Timestamp,
    /// The pods in the namespace of the control plane.
    pub pods: &'a [ObservedPod],
    /// The pod statuses there.
    pub volumes: &'a [ObservedVolume],
    /// The objects that differ from what was rendered, and are left as they are.
    pub changed_objects: &'a [ChangedObject],
    /// What [`lint_shared_credentials`](crate::lint_shared_credentials) found for this cluster.
    pub shared_credentials: &'a [ValidationProblem],
    /// Kinds that cannot be used: each a [`Drift::KindForbidden`] or [`Drift::KindNotServed`].
    pub unavailable_kinds: &'a [Drift],
    /// How long a rotation may take to reach every pod.
    pub propagation_delay: PropagationDelay,
}

/// Since when what is different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriftHistory(BTreeMap<(String, String), Timestamp>);

impl DriftHistory {
    /// What a status remembers.
    pub fn from_status(status: Option<&HostedClusterIdentitiesStatus>) -> Self {
        let drift = status.into_iter().flat_map(|status| &status.drift);
        Self(drift.map(|it| ((it.kind.clone(), it.subject.clone()), it.since)).collect())
    }

    /// When [`find`] comes to something else though nothing new is reported: a difference that is
    /// remembered has then lasted long enough.
    pub fn next_finding_at(&self, now: Timestamp, reach: PropagationDelay) -> Option<Timestamp> {
        let waits = [reach.total(), RELOAD_GRACE_PERIOD];
        let due = self.0.values().flat_map(|since| waits.map(|wait| add_saturating(*since, wait)));
        due.filter(|due| *due > now).min()
    }
}

/// What drifted, sorted, and what to remember until the next time.
///
/// `resumed` findings stand from the beginning: they were found before.
pub fn find_drift(
    evidence: &DriftInputs<'_>,
    memory: &DriftHistory,
) -> (Vec<DriftFinding>, DriftHistory) {
    let mut drifts: Vec<_> = std::iter::empty()
        .chain(changed_object_drift(evidence))
        .chain(mount_drift(evidence))
        .chain(shared_credential_drift(evidence))
        .chain(evidence.unavailable_kinds.iter().cloned())
        .collect();
    drifts.sort();
    drifts.dedup();
    let mut next = DriftHistory::default();
    let mut findings = Vec::new();
    for drift in drifts {
        let key = (drift.kind().to_owned(), drift.subject());
        let since = memory.0.get(&key).copied().unwrap_or_else(|| truncate_to_second(evidence.now));
        // Two objects may come to one subject; the older knowledge is kept.
        let since = next.0.get(&key).copied().map_or(since, |known: Timestamp| known.min(since));
        next.0.insert(key, since);
        let found_at = add_saturating(since, drift.grace_period(evidence.propagation_delay));
        if found_at <= evidence.now {
            findings.push(DriftFinding { drift, since });
        }
    }
    (findings, next)
}

fn changed_object_drift<'a>(evidence: &DriftInputs<'a>) -> impl Iterator<Item = Drift> + use<'a> {
    evidence.changed_objects.iter().map(|ChangedObject { object, paths }| {
        let mut paths = paths.clone();
        paths.sort();
        Drift::ObjectChanged { object: object.clone(), paths }
    })
}

fn shared_credential_drift<'a>(
    evidence: &DriftInputs<'a>,
) -> impl Iterator<Item = Drift> + use<'a> {
    evidence.shared_credentials.iter().map(|problem| Drift::SharedCredential {
        field: problem.field.clone(),
        message: problem.message.clone(),
    })
}

/// A mounted credential of a pod that counts.
struct CredentialMount<'a> {
    pod: &'a ObservedPod,
    /// What is mounted of the cluster's secret; nothing where it is something else.
    object: Option<ObjectStatusReport>,
}

fn mount_drift(evidence: &DriftInputs<'_>) -> Vec<Drift> {
    evidence
        .cluster
        .running_components()
        .flat_map(|(component, identity)| {
            let named = format!("secret/{}", identity.secret_name);
            let mounts = credential_mounts(evidence, component, &named);
            let newest = newest_mounted_object(&mounts).cloned();
            let of_mount = move |mount: CredentialMount<'_>| {
                drift_of_mount(component, &named, newest.as_ref(), &mount)
                    .into_iter()
                    .collect::<Vec<_>>()
            };
            mounts.into_iter().flat_map(of_mount).collect::<Vec<_>>()
        })
        .collect()
}

fn credential_mounts<'a>(
    evidence: &DriftInputs<'a>,
    component: Component,
    named: &str,
) -> Vec<CredentialMount<'a>> {
    let class = component.definition().secret_provider_class;
    let pods = evidence.pods.iter().filter(|pod| pod.is_ready && !pod.is_deleting);
    pods.filter_map(|pod| {
        let volume =
            evidence.volumes.iter().find(|it| it.class_name == class && it.belongs_to(pod))?;
        let mounted = volume.objects.iter().find(|(id, _)| id.eq_ignore_ascii_case(named));
        let object = mounted.map(|(id, version)| {
            let told = volume.report.parsed().map(|facts| facts.objects.as_slice());
            let known =
                told.unwrap_or_default().iter().find(|it| it.id == *id && it.version == *version);
            known.cloned().unwrap_or_else(|| ObjectStatusReport {
                id: id.clone(),
                version: version.clone(),
                ..ObjectStatusReport::default()
            })
        });
        Some(CredentialMount { pod, object })
    })
    .collect()
}

/// The newest version that anybody mounts, as far as nodes tell since when what they mount is valid.
/// Versions themselves have no order.
fn newest_mounted_object<'a>(mounts: &'a [CredentialMount<'_>]) -> Option<&'a ObjectStatusReport> {
    let objects = mounts.iter().filter_map(|mount| mount.object.as_ref());
    objects.filter(|it| it.not_before.is_some()).max_by_key(|it| (it.not_before, &it.version))
}

fn drift_of_mount(
    component: Component,
    named: &str,
    newest: Option<&ObjectStatusReport>,
    mount: &CredentialMount<'_>,
) -> Option<Drift> {
    let pod = mount.pod.name.clone();
    let Some(object) = &mount.object else {
        return Some(Drift::UnexpectedObjectMounted {
            component,
            pod,
            expected_id: named.to_owned(),
        });
    };
    if let Some(newest) = newest
        && newest.version != object.version
        && object.not_before.is_none_or(|begin| newest.not_before > Some(begin))
    {
        let (mounted, newest) = (object.version.clone(), newest.version.clone());
        return Some(Drift::StaleMount {
            component,
            pod,
            mounted_version: mounted,
            newest_version: newest,
        });
    }
    let told_of = |it: &&CanaryStatusReport| it.component == component.name();
    let loaded = mount.pod.canary_report.parsed().filter(told_of)?.credential.as_ref()?;
    // A certificate may begin a little before the document that holds it, but not end before it.
    let is_older = object.not_before.zip(loaded.not_before).is_some_and(|(file, used)| used < file)
        && object.not_after.zip(loaded.not_after).is_none_or(|(file, used)| used < file);
    is_older.then(|| Drift::OldCertificateInUse {
        component,
        pod,
        thumbprint: loaded.thumbprint.clone(),
        mounted_version: object.version.clone(),
    })
}

impl Drift {
    /// A word for it, the same in status, metrics and events.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ObjectChanged { .. } => "ObjectChanged",
            Self::UnexpectedObjectMounted { .. } => "OtherObjectMounted",
            Self::StaleMount { .. } => "StaleMount",
            Self::OldCertificateInUse { .. } => "OldCertificateInUse",
            Self::SharedCredential { .. } => "SharedCredential",
            Self::KindForbidden(_) => "KindForbidden",
            Self::KindNotServed(_) => "KindNotServed",
        }
    }

    /// Every kind.
    pub const KINDS: [&str; 7] = [
        "KindForbidden",
        "KindNotServed",
        "ObjectChanged",
        "OldCertificateInUse",
        "OtherObjectMounted",
        "SharedCredential",
        "StaleMount",
    ];

    /// What it is about. With the kind it says whether two findings are the same.
    pub fn subject(&self) -> String {
        match self {
            Self::ObjectChanged { object, .. } => object.clone(),
            Self::UnexpectedObjectMounted { component, pod, .. }
            | Self::StaleMount { component, pod, .. }
            | Self::OldCertificateInUse { component, pod, .. } => format!("{component} in {pod}"),
            Self::SharedCredential { field, .. } => field.clone(),
            Self::KindForbidden(lacking) | Self::KindNotServed(lacking) => lacking.kind.clone(),
        }
    }

    /// What is so.
    pub fn message(&self) -> String {
        match self {
            Self::ObjectChanged { object, paths } => {
                let more = paths.len().saturating_sub(MAX_LISTED_PATHS);
                let told: Vec<_> =
                    paths.iter().take(MAX_LISTED_PATHS).map(String::as_str).collect();
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                format!("{object} is not as rendered: {}{more}", told.join(", "))
            }
            Self::UnexpectedObjectMounted { component, pod, expected_id: named } => {
                format!(
                    "pod `{pod}` does not mount `{named}`, which the cluster names for {component}"
                )
            }
            Self::StaleMount {
                component,
                pod,
                mounted_version: mounted,
                newest_version: newest,
            } => format!(
                "pod `{pod}` mounts version {mounted} for {component}, while another mounts {newest}"
            ),
            Self::OldCertificateInUse { component, pod, thumbprint, mounted_version: mounted } => {
                format!(
                    "the process in pod `{pod}` uses the older certificate {thumbprint} for {component}, though version {mounted} is mounted"
                )
            }
            Self::SharedCredential { message, .. } => message.clone(),
            Self::KindForbidden(lacking) | Self::KindNotServed(lacking) => lacking.message.clone(),
        }
    }

    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::ObjectChanged { .. } => {
                "see who wrote it (`kubectl get --show-managed-fields`), and make the change in the HostedCluster"
            }
            Self::UnexpectedObjectMounted { .. } => {
                "wait for the rollout, or restart the pod: its class was changed"
            }
            Self::StaleMount { .. } => {
                "see the node plugin on the pod's node; annotate the class with `lanyard.dev/refresh`"
            }
            Self::OldCertificateInUse { .. } => {
                "restart the pod: its process did not load the file again"
            }
            Self::SharedCredential { .. } => "give every cluster identities and secrets of its own",
            Self::KindForbidden(lacking) | Self::KindNotServed(lacking) => lacking.hint,
        }
    }

    /// How long it may be so before it is a drift.
    fn grace_period(&self, reach: PropagationDelay) -> Duration {
        match self {
            Self::StaleMount { .. } | Self::UnexpectedObjectMounted { .. } => reach.total(),
            Self::OldCertificateInUse { .. } => RELOAD_GRACE_PERIOD,
            Self::ObjectChanged { .. }
            | Self::SharedCredential { .. }
            | Self::KindForbidden(_)
            | Self::KindNotServed(_) => Duration::ZERO,
        }
    }
}

fn add_saturating(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// How long a process may take to load what was mounted, and to tell.
const RELOAD_GRACE_PERIOD: Duration = Duration::from_mins(2);
const MAX_LISTED_PATHS: usize = 5;
