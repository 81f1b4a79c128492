//! How the identities of a hosted cluster are, from what nodes and canaries told.
//!
//! Pure: [`identities_status`] folds what was [`IdentityStatusInputs`] to the status that
//! [`HostedClusterIdentities`](lanyard_api::HostedClusterIdentities) holds, [`transitions`] says
//! what is news in it, [`next_look`] when time alone changes it. Equal facts give equal bytes,
//! whatever their order: times are carried over from the status as it stands, so a settled status
//! is never written again.
//!
//! # What an identity comes to
//!
//! A pod **counts** if it is ready and not being deleted. One that began within the last two minutes
//! does not count as long as it is silent, nor after its third restart. While no pod of a consumer
//! counts and one is on its way (made within the last two minutes, silent so far, or still going),
//! the identity stays as it stands, as long as its credential lasts and no other pod says that it is
//! broken. So neither a rollout nor a crash loop makes the status flap. While a cluster ends and its
//! pods are gone, what was known last stands.
//!
//! | of a pod that counts | ready |
//! |---|---|
//! | its class is gone | `False` at `spc` |
//! | the node says what only somebody can mend ([`RecoveryMode::Never`](lanyard_vocabulary::RecoveryMode)) | `False` at the hop of the code, though the mounted credential may still serve: a pod that starts now gets none |
//! | what it loaded has ended | `False` at `credential`, or at the hop that kept a newer one away |
//! | its canary names a hop | `False` at that hop |
//! | its canary came as far as canaries walk | `True`; with the node's code as the reason while something is wrong that may heal by itself, and with the canary's while a service throttles it |
//! | its canary is throttled before it came so far, and the identity stands as `True` with the credential that it loaded | `True` still: a rollout in a storm takes nothing back |
//! | the file is mounted, and no canary told more | `Unknown`, `NotProven` |
//! | nothing is told | `Unknown`, `NotReported` |
//!
//! Of several pods (a rollout, replicas, the two consumers of KMS) **the worst speaks**: `False`
//! before `Unknown` before `True`, and of several that are broken the one that is broken first. The
//! version and the stamps are those of the oldest credential among them, and the version is that of
//! what is loaded: one that is mounted and not loaded yet does not count. A consumer none of whose
//! pods counts is `Unknown`. The second consumer of KMS runs the canary of another identity; it
//! vouches for its file only.

mod conditions;
mod credential;
mod identity;
mod inputs;
mod pod_identity;
#[cfg(test)]
mod tests;
mod transitions;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::{DriftStatus, HostedClusterIdentitiesStatus};
use lanyard_vocabulary::Component;

pub use conditions::{
    ADVISED_CONFIGURATION, CREDENTIALS_RENEWED, IDENTITIES_IN_STEP, VALID_AZURE_IDENTITIES,
    VALID_KMS_CONFIG, VALID_NETWORK,
};
pub use inputs::{
    ClusterValidation, IdentityStatusInputs, ObservedClasses, ObservedPod, ObservedVolume,
    ReportAnnotation,
};
pub use transitions::{EventType, StatusTransition, status_transitions};

use crate::forecast::forecast_identity_renewal;
use crate::report_text::single_line;

/// `status` of a condition, and `ready` of an identity.
pub const CONDITION_TRUE: &str = "True";
/// The same.
pub const CONDITION_FALSE: &str = "False";
/// The same: nobody reported.
pub const CONDITION_UNKNOWN: &str = "Unknown";
/// The reason where all is well.
pub const REASON_AS_EXPECTED: &str = "AsExpected";

/// The status of a hosted cluster's identities.
pub fn identities_status(observed: &IdentityStatusInputs<'_>) -> HostedClusterIdentitiesStatus {
    let identities: Vec<_> = reported_components(observed)
        .into_iter()
        .map(|component| identity::identity_status(observed, component))
        .collect();
    let drift: Vec<_> = observed
        .drift_findings
        .iter()
        .map(|finding| DriftStatus {
            kind: finding.drift.kind().to_owned(),
            subject: single_line(&finding.drift.subject(), MAX_SUBJECT_BYTES),
            message: single_line(
                &format!("{}; next: {}", finding.drift.message(), finding.drift.hint()),
                MAX_MESSAGE_BYTES,
            ),
            since: finding.since,
        })
        .take(MAX_DRIFT_ENTRIES)
        .collect();
    let conditions = conditions::conditions(observed, &identities, &drift);
    HostedClusterIdentitiesStatus {
        observed_generation: observed.generation,
        identities,
        conditions,
        drift,
    }
}

/// When the status changes though nobody reports anything new: a pod has settled, or a credential
/// has come to the next moment of its forecast. Nothing where it does not.
pub fn next_status_change_at(
    observed: &IdentityStatusInputs<'_>,
    status: &HostedClusterIdentitiesStatus,
) -> Option<Timestamp> {
    let settled =
        observed.pods.iter().filter_map(|pod| identity::check_pod_counts(observed, pod).err()?);
    let moments = status.identities.iter().filter_map(|identity| {
        forecast_identity_renewal(identity, observed.renewal_policy, observed.now).next_change_at()
    });
    settled.chain(moments).filter(|moment| *moment > observed.now).min()
}

/// Whether a canary of the component says that its identity fails, whatever else is wrong with it.
pub(crate) fn canary_reports_failure(
    observed: &IdentityStatusInputs<'_>,
    component: Component,
) -> bool {
    identity::canary_reports_failure(observed, component)
}

/// The components that have an identity. Of a cluster that cannot be used, those that were told of
/// before or whose class is there.
fn reported_components(observed: &IdentityStatusInputs<'_>) -> Vec<Component> {
    match observed.cluster {
        ClusterValidation::Valid(cluster) => {
            cluster.running_components().map(|(component, _)| component).collect()
        }
        ClusterValidation::Invalid(_) => Component::ALL
            .into_iter()
            .filter(|component| {
                let class = component.definition().secret_provider_class;
                let previous = observed.previous_status.map(|it| it.identities.as_slice());
                observed.classes.contains(class) == Some(true)
                    || previous
                        .unwrap_or_default()
                        .iter()
                        .any(|it| it.component == component.name())
            })
            .collect(),
    }
}

/// The longest text of an identity, and the longest of an event.
const MAX_MESSAGE_BYTES: usize = 1_000;
const MAX_SUBJECT_BYTES: usize = 253;
const MAX_DRIFT_ENTRIES: usize = 50;
