//! The identity status of a hosted cluster, computed from the reports of nodes and canaries.
//!
//! Pure functions: [`identities_status`] computes the status in
//! [`HostedClusterIdentities`](lanyard_api::HostedClusterIdentities) from
//! [`IdentityStatusInputs`], [`status_transitions`] returns the changes to report as events, and
//! [`next_status_change_at`] returns the next time at which the status changes without a new
//! report. Equal inputs in any order give equal bytes: times are copied from the stored status, so
//! an unchanged status is never written again.
//!
//! # How the state of an identity is determined
//!
//! A pod **counts** if it is ready and not being deleted. A pod that started within the last two
//! minutes does not count before its first report, nor after its third restart. While no pod of a
//! consumer counts and one is starting or stopping (created within the last two minutes, without a
//! report, or within its deletion grace period), the identity keeps its status, as long as its
//! credential is valid and no other pod reports a failure. Rollouts and crash loops therefore do
//! not make the status flap. While a cluster is being deleted and its pods are gone, identities
//! keep their last status.
//!
//! | state of a pod that counts | `ready` |
//! |---|---|
//! | its class does not exist | `False` at `spc` |
//! | the node reports a failure that needs manual action ([`RecoveryMode::Never`](lanyard_vocabulary::RecoveryMode)) | `False` at the hop of the code, even if the mounted credential is still valid: a new pod gets none |
//! | the loaded credential has expired | `False` at `credential`, or at the hop that prevented the renewal |
//! | its canary reports a failed hop | `False` at that hop |
//! | its canary has reached its final hop | `True`; the reason is the node's code during a failure that may recover by itself, and the canary's code while a service throttles it |
//! | its canary is throttled before its final hop, and the identity is already `True` with the same credential | `True`: throttling during a rollout does not change the status |
//! | the file is mounted, and no canary has reported further hops | `Unknown`, `NotProven` |
//! | there is no report | `Unknown`, `NotReported` |
//!
//! Of several pods (a rollout, replicas, the two consumers of KMS) **the worst one decides**:
//! `False` before `Unknown` before `True`, and of several broken pods the one with the earliest
//! failed hop. Version and timestamps are those of the oldest credential in use; a mounted
//! credential that is not loaded yet does not count. A consumer without pods that count is
//! `Unknown`. The second consumer of KMS runs the canary of another component and proves only its
//! file.

mod conditions;
mod credential;
mod identity;
mod inputs;
mod observed_pods;
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
pub use inputs::{ClusterValidation, IdentityStatusInputs, ObservedClasses};
pub use observed_pods::{ObservedPod, ObservedVolume, StatusReportAnnotation};
pub use transitions::{EventType, StatusTransition, status_transitions};

use crate::forecast::forecast_identity_renewal;
use crate::report_text::single_line;

/// The value `True` of a condition's `status` and of an identity's `ready`.
pub const CONDITION_TRUE: &str = "True";
/// The value `False` of a condition's `status` and of an identity's `ready`.
pub const CONDITION_FALSE: &str = "False";
/// The value `Unknown` of a condition's `status` and of an identity's `ready`.
pub const CONDITION_UNKNOWN: &str = "Unknown";
/// The reason for success.
pub const REASON_AS_EXPECTED: &str = "AsExpected";

/// Returns the identity status of a hosted cluster.
pub fn identities_status(inputs: &IdentityStatusInputs<'_>) -> HostedClusterIdentitiesStatus {
    let identities: Vec<_> = reported_components(inputs)
        .into_iter()
        .map(|component| identity::identity_status(inputs, component))
        .collect();
    let drift: Vec<_> = inputs
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
    let conditions = conditions::conditions(inputs, &identities, &drift);
    HostedClusterIdentitiesStatus {
        observed_generation: inputs.generation,
        identities,
        conditions,
        drift,
    }
}

/// Returns the next time at which the status changes without a new report: a pod settles, or a
/// credential reaches the next milestone of its forecast. `None` if there is no such time.
pub fn next_status_change_at(
    inputs: &IdentityStatusInputs<'_>,
    status: &HostedClusterIdentitiesStatus,
) -> Option<Timestamp> {
    let settled =
        inputs.pods.iter().filter_map(|pod| identity::check_pod_counts(inputs, pod).err()?);
    let moments = status.identities.iter().filter_map(|identity| {
        forecast_identity_renewal(identity, inputs.renewal_policy, inputs.now).next_change_at()
    });
    settled.chain(moments).filter(|moment| *moment > inputs.now).min()
}

/// Returns whether a canary of the component reports a failure of its identity.
pub(crate) fn canary_reports_failure(
    inputs: &IdentityStatusInputs<'_>,
    component: Component,
) -> bool {
    identity::canary_reports_failure(inputs, component)
}

/// Returns the components that have an identity. For an invalid cluster: those in the previous
/// status and those whose class exists.
fn reported_components(inputs: &IdentityStatusInputs<'_>) -> Vec<Component> {
    match inputs.cluster {
        ClusterValidation::Valid(cluster) => {
            cluster.running_components().map(|(component, _)| component).collect()
        }
        ClusterValidation::Invalid(_) => Component::ALL
            .into_iter()
            .filter(|component| {
                let class = component.definition().secret_provider_class;
                let previous = inputs.previous_status.map(|it| it.identities.as_slice());
                inputs.classes.contains(class) == Some(true)
                    || previous
                        .unwrap_or_default()
                        .iter()
                        .any(|it| it.component == component.name())
            })
            .collect(),
    }
}

/// The maximum length of an identity's message.
const MAX_MESSAGE_BYTES: usize = 1_000;
const MAX_SUBJECT_BYTES: usize = 253;
const MAX_DRIFT_ENTRIES: usize = 50;
