//! Detection of drift: objects that differ from the rendered state, and mounted credentials that
//! are not in use.
//!
//! Pure functions. A short difference is no drift: nodes poll at different times, and processes
//! need time to load a mounted credential. [`find_drift`] therefore takes a [`DriftHistory`] with
//! the time at which each difference was first seen, and returns the next history. At startup the
//! operator rebuilds the history from the stored status, so a restart neither loses a finding nor
//! reports it again.

use std::borrow::Cow;
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

/// A difference from the desired state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Drift {
    /// An object differs from the rendered state.
    ObjectChanged {
        /// The object, such as `SecretProviderClass clusters-harbour/managed-azure-cpo`.
        object: String,
        /// The paths that differ.
        paths: Vec<String>,
    },
    /// A pod mounts another object than the vault secret that the HostedCluster names.
    UnexpectedObjectMounted {
        component: Component,
        pod: String,
        /// The id of the vault secret that the HostedCluster names.
        expected_id: String,
    },
    /// A pod mounts an older version than another pod does.
    StaleMount {
        component: Component,
        pod: String,
        /// The version that the pod mounts.
        mounted_version: String,
        /// The newest version that any pod mounts.
        newest_version: String,
    },
    /// A process uses an older certificate than the mounted one.
    OldCertificateInUse {
        component: Component,
        pod: String,
        /// The SHA-256 thumbprint of the certificate in use.
        thumbprint: String,
        mounted_version: String,
    },
    /// Another hosted cluster uses the same vault secret for a credential.
    SharedCredential {
        /// The field of the HostedCluster.
        field: String,
        /// The shared secret and the other cluster.
        message: String,
    },
    /// The API server denies access to a kind: its objects are missing, or the cached ones are
    /// outdated.
    KindForbidden(UnavailableKind),
    /// The management cluster does not serve a kind, so its objects are missing.
    KindNotServed(UnavailableKind),
}

/// A kind that the operator cannot list or watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnavailableKind {
    /// The kind, such as `SecretProviderClass`.
    pub kind: String,
    /// The attempted operation and the response.
    pub message: String,
    /// The suggested next step.
    pub hint: Cow<'static, str>,
}

/// A drift with the time at which it was first seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftFinding {
    pub drift: Drift,
    /// The time at which the difference was first seen.
    pub since: Timestamp,
}

/// An object that differs from the rendered state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedObject {
    /// The object, such as `SecretProviderClass clusters-harbour/managed-azure-cpo`.
    pub object: String,
    /// The paths that differ.
    pub paths: Vec<String>,
}

impl ChangedObject {
    /// Returns the differences that applying `change` would revert; `None` if it changes no
    /// existing object.
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

/// The inputs of [`find_drift`].
#[derive(Debug, Clone, Copy)]
pub struct DriftInputs<'a> {
    pub cluster: &'a ValidatedHostedCluster,
    /// The current time.
    pub now: Timestamp,
    /// The pods in the namespace of the control plane.
    pub pods: &'a [ObservedPod],
    /// The `SecretProviderClassPodStatus`es in the namespace of the control plane.
    pub volumes: &'a [ObservedVolume],
    /// The objects that differ from the rendered state and that the operator does not correct.
    pub changed_objects: &'a [ChangedObject],
    /// The findings of [`lint_shared_credentials`](crate::lint_shared_credentials) for this
    /// cluster.
    pub shared_credentials: &'a [ValidationProblem],
    /// The kinds that the operator cannot list or watch: each a [`Drift::KindForbidden`] or
    /// [`Drift::KindNotServed`].
    pub unavailable_kinds: &'a [Drift],
    /// The maximum time until a rotation reaches every pod.
    pub propagation_delay: PropagationDelay,
}

/// The time at which each current difference was first seen, by kind and subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriftHistory(BTreeMap<(String, String), Timestamp>);

impl DriftHistory {
    /// Rebuilds the history from a stored status.
    pub fn from_status(status: Option<&HostedClusterIdentitiesStatus>) -> Self {
        let drift = status.into_iter().flat_map(|status| &status.drift);
        Self(drift.map(|it| ((it.kind.clone(), it.subject.clone()), it.since)).collect())
    }

    /// Returns the time at which a remembered difference becomes a finding without any new report,
    /// because it has lasted longer than its grace period.
    pub fn next_finding_at(&self, now: Timestamp, reach: PropagationDelay) -> Option<Timestamp> {
        let waits = [reach.total(), RELOAD_GRACE_PERIOD];
        let due = self.0.values().flat_map(|since| waits.map(|wait| add_saturating(*since, wait)));
        due.filter(|due| *due > now).min()
    }
}

/// Returns the findings, sorted, and the history for the next call.
///
/// Findings that `resumed` contains are reported immediately, because an earlier call has already
/// found them.
pub fn find_drift(
    inputs: &DriftInputs<'_>,
    memory: &DriftHistory,
) -> (Vec<DriftFinding>, DriftHistory) {
    let mut drifts: Vec<_> = std::iter::empty()
        .chain(changed_object_drift(inputs))
        .chain(mount_drift(inputs))
        .chain(shared_credential_drift(inputs))
        .chain(inputs.unavailable_kinds.iter().cloned())
        .collect();
    drifts.sort();
    drifts.dedup();
    let mut next = DriftHistory::default();
    let mut findings = Vec::new();
    for drift in drifts {
        let key = (drift.kind().to_owned(), drift.subject());
        let since = memory.0.get(&key).copied().unwrap_or_else(|| truncate_to_second(inputs.now));
        // Two differences may have the same kind and subject; keep the earlier time.
        let since = next.0.get(&key).copied().map_or(since, |known: Timestamp| known.min(since));
        next.0.insert(key, since);
        let found_at = add_saturating(since, drift.grace_period(inputs.propagation_delay));
        if found_at <= inputs.now {
            findings.push(DriftFinding { drift, since });
        }
    }
    (findings, next)
}

fn changed_object_drift<'a>(inputs: &DriftInputs<'a>) -> impl Iterator<Item = Drift> + use<'a> {
    inputs.changed_objects.iter().map(|ChangedObject { object, paths }| {
        let mut paths = paths.clone();
        paths.sort();
        Drift::ObjectChanged { object: object.clone(), paths }
    })
}

fn shared_credential_drift<'a>(inputs: &DriftInputs<'a>) -> impl Iterator<Item = Drift> + use<'a> {
    inputs.shared_credentials.iter().map(|problem| Drift::SharedCredential {
        field: problem.field.clone(),
        message: problem.message.clone(),
    })
}

/// A mounted credential of a ready pod.
struct CredentialMount<'a> {
    pod: &'a ObservedPod,
    /// The mounted object, if it is the vault secret that the HostedCluster names.
    object: Option<ObjectStatusReport>,
}

fn mount_drift(inputs: &DriftInputs<'_>) -> Vec<Drift> {
    inputs
        .cluster
        .running_components()
        .flat_map(|(component, identity)| {
            let named = format!("secret/{}", identity.secret_name);
            let mounts = credential_mounts(inputs, component, &named);
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
    inputs: &DriftInputs<'a>,
    component: Component,
    named: &str,
) -> Vec<CredentialMount<'a>> {
    let class = component.definition().secret_provider_class;
    let pods = inputs.pods.iter().filter(|pod| pod.is_ready && !pod.is_deleting);
    pods.filter_map(|pod| {
        let volume =
            inputs.volumes.iter().find(|it| it.class_name == class && it.belongs_to(pod))?;
        let mounted = volume.objects.iter().find(|(id, _)| id.eq_ignore_ascii_case(named));
        let object = mounted.map(|(id, version)| {
            let reported = volume.report.parsed().map(|facts| facts.objects.as_slice());
            let known = reported
                .unwrap_or_default()
                .iter()
                .find(|it| it.id == *id && it.version == *version);
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

/// Returns the newest mounted version, among the mounts whose validity start was reported. Version
/// names have no order.
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
    // A certificate may become valid slightly before its credential document does, but does not
    // expire before it.
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
    /// Returns the name of the kind of drift, as used in status, metrics and events.
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

    /// All kinds of drift.
    pub const KINDS: [&str; 7] = [
        "KindForbidden",
        "KindNotServed",
        "ObjectChanged",
        "OldCertificateInUse",
        "OtherObjectMounted",
        "SharedCredential",
        "StaleMount",
    ];

    /// Returns the affected component, pod or object. Kind and subject together identify a finding.
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

    pub fn message(&self) -> String {
        match self {
            Self::ObjectChanged { object, paths } => {
                let more = paths.len().saturating_sub(MAX_LISTED_PATHS);
                let listed: Vec<_> =
                    paths.iter().take(MAX_LISTED_PATHS).map(String::as_str).collect();
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                format!("{object} is not as rendered: {}{more}", listed.join(", "))
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

    /// Returns the suggested next step.
    pub fn hint(&self) -> &str {
        match self {
            Self::ObjectChanged { .. } => {
                "check the writer with `kubectl get --show-managed-fields`, and make the change in the HostedCluster"
            }
            Self::UnexpectedObjectMounted { .. } => {
                "wait for the rollout, or restart the pod: its class was changed"
            }
            Self::StaleMount { .. } => {
                "check the log of the node plugin on the pod's node; annotate the class with `lanyard.dev/refresh`"
            }
            Self::OldCertificateInUse { .. } => {
                "restart the pod: its process did not reload the file"
            }
            Self::SharedCredential { .. } => "use separate identities and secrets for each cluster",
            Self::KindForbidden(lacking) | Self::KindNotServed(lacking) => &lacking.hint,
        }
    }

    /// Returns how long the difference may last before it is reported.
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

/// The maximum time for a process to load a mounted credential and to report it.
const RELOAD_GRACE_PERIOD: Duration = Duration::from_mins(2);
const MAX_LISTED_PATHS: usize = 5;
