//! The conditions that sum up how the identities are.
//!
//! None of them gates anything: what cannot be told is `Unknown`, and reconciliation goes on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanyard_api::canary_report::CanaryProbeReport;
use lanyard_api::hosted_cluster_identities::{DriftStatus, IdentityStatus};
use lanyard_api::{CanaryStatusReport, truncate_to_second};
use lanyard_vocabulary::Component;

use super::identity::check_pod_counts;
use super::inputs::{ClusterValidation, IdentityStatusInputs, ObservedPod};
use super::pod_identity::REASON_NOT_REPORTED;
use super::{CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN, REASON_AS_EXPECTED};
use crate::forecast::{RenewalState, forecast_identity_renewal};
use crate::problem::ProblemSeverity;
use crate::report_text::{single_line, valid_reason_or};

/// Whether every identity works.
pub const VALID_AZURE_IDENTITIES: &str = "ValidAzureIdentities";
/// Whether the key that encrypts secrets can be used: the condition of the reference.
///
/// Source: `ValidAzureKMSConfig` of HyperShift's control plane operator, texts included. Its probe
/// is that of the canaries, which are given their credential before they ask: the reference asks
/// without one after each start and is refused.
pub const VALID_KMS_CONFIG: &str = "ValidAzureKMSConfig";
/// Whether network, security group and resource group are there and in one region: what the
/// reference calls `ValidHostedControlPlaneConfiguration`, and stops at. Here it stops nothing.
pub const VALID_NETWORK: &str = "ValidAzureNetwork";
/// Whether every credential is renewed in time.
pub const CREDENTIALS_RENEWED: &str = "AzureCredentialsRenewed";
/// Whether everything is as rendered, and in use as mounted.
pub const IDENTITIES_IN_STEP: &str = "AzureIdentitiesInStep";
/// Whether nothing in the HostedCluster is to be looked at: what the schema takes and lints name.
pub const ADVISED_CONFIGURATION: &str = "AdvisedConfiguration";

/// All conditions, always in this order.
pub(super) fn conditions(
    observed: &IdentityStatusInputs<'_>,
    identities: &[IdentityStatus],
    drift: &[DriftStatus],
) -> Vec<Condition> {
    [
        (VALID_AZURE_IDENTITIES, valid_identities(observed, identities)),
        (VALID_KMS_CONFIG, valid_kms_config(observed)),
        (VALID_NETWORK, valid_network(observed)),
        (CREDENTIALS_RENEWED, credentials_renewed(observed, identities)),
        (IDENTITIES_IN_STEP, identities_in_step(drift)),
        (ADVISED_CONFIGURATION, advised_configuration(observed)),
    ]
    .into_iter()
    .map(|(kind, said)| said.into_condition(kind, observed))
    .collect()
}

/// What a condition says.
struct ConditionContent {
    status: &'static str,
    reason: String,
    message: String,
}

impl ConditionContent {
    fn new(status: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), message: message.into() }
    }

    fn as_expected() -> Self {
        Self::new(CONDITION_TRUE, REASON_AS_EXPECTED, AS_EXPECTED_MESSAGE)
    }

    /// The time of a transition is that of a change of the status, and of nothing else.
    fn into_condition(self, kind: &str, observed: &IdentityStatusInputs<'_>) -> Condition {
        let previous =
            observed.previous_status.into_iter().flat_map(|previous| &previous.conditions);
        let mut previous = previous.filter(|it| it.type_ == kind && it.status == self.status);
        let changed = Time(truncate_to_second(observed.now));
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason,
            message: single_line(&self.message, MAX_CONDITION_MESSAGE_BYTES),
            observed_generation: observed.generation,
            last_transition_time: previous
                .next()
                .map_or(changed, |it| it.last_transition_time.clone()),
        }
    }
}

fn valid_identities(
    observed: &IdentityStatusInputs<'_>,
    identities: &[IdentityStatus],
) -> ConditionContent {
    if let ClusterValidation::Invalid(problems) = observed.cluster {
        let message = format!("the HostedCluster cannot be used: {problems}");
        return ConditionContent::new(CONDITION_FALSE, "InvalidHostedCluster", message);
    }
    let of = |ready: &'static str| identities.iter().filter(move |it| it.ready == ready);
    if let Some(first) = of(CONDITION_FALSE).next() {
        let one_reason = of(CONDITION_FALSE).all(|it| it.reason == first.reason);
        let reason = if one_reason { first.reason.as_str() } else { "IdentitiesBroken" };
        return ConditionContent::new(
            CONDITION_FALSE,
            reason,
            join_lines(of(CONDITION_FALSE).map(broken_identity_line)),
        );
    }
    if let Some(first) = of(CONDITION_UNKNOWN).next() {
        let one_reason = of(CONDITION_UNKNOWN).all(|it| it.reason == first.reason);
        let reason = if one_reason { first.reason.as_str() } else { REASON_NOT_REPORTED };
        return ConditionContent::new(
            CONDITION_UNKNOWN,
            reason,
            join_lines(of(CONDITION_UNKNOWN).map(identity_line)),
        );
    }
    ConditionContent::as_expected()
}

fn broken_identity_line(identity: &IdentityStatus) -> String {
    let hop = identity.failed_hop.as_deref().unwrap_or("an unknown hop");
    format!("{} at {hop}: {}: {}", identity.component, identity.reason, identity.message)
}

fn identity_line(identity: &IdentityStatus) -> String {
    format!("{}: {}", identity.component, identity.message)
}

/// The lines in one text, each of them cut, so that the last identity is named as the first is.
fn join_lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| single_line(&line, MAX_LINE_BYTES)).collect::<Vec<_>>().join(" | ")
}

/// Every row of the reference's table; none of them asks anybody.
fn valid_kms_config(observed: &IdentityStatusInputs<'_>) -> ConditionContent {
    let ClusterValidation::Valid(cluster) = observed.cluster else {
        return ConditionContent::new(
            CONDITION_UNKNOWN,
            REASON_STATUS_UNKNOWN,
            "the HostedCluster cannot be used",
        );
    };
    let Some(encryption) = &cluster.encryption else {
        return ConditionContent::new(
            CONDITION_UNKNOWN,
            REASON_STATUS_UNKNOWN,
            "Azure KMS is not configured",
        );
    };
    if cluster.azure.cloud.endpoints().is_none() {
        let message = format!("the names of vaults in `{}` are not known", cluster.azure.cloud);
        return ConditionContent::new(CONDITION_FALSE, REASON_INVALID_CREDENTIALS, message);
    }
    // A private vault is reached from the API server's pod alone, through the private router.
    let witnesses: &[_] = if encryption.is_private_access {
        &[Component::Kms]
    } else {
        &[Component::Kms, Component::ControlPlaneOperator]
    };
    let probes: Vec<_> = witnesses
        .iter()
        .flat_map(|it| canary_probes(observed, *it, CanaryProbeReport::ENCRYPTION_PROBE))
        .collect();
    if let Some(probe) = deciding_probe(&probes) {
        return condition_from_probe(probe, REASON_AZURE_ERROR);
    }
    previous_condition(observed, VALID_KMS_CONFIG, witnesses).unwrap_or_else(|| {
        let missing = if encryption.is_private_access {
            "Private Key Vault endpoint is not reachable from the management cluster"
        } else {
            "no canary has told whether the key encrypts"
        };
        ConditionContent::new(CONDITION_UNKNOWN, REASON_STATUS_UNKNOWN, missing)
    })
}

fn valid_network(observed: &IdentityStatusInputs<'_>) -> ConditionContent {
    let probes =
        canary_probes(observed, Component::ControlPlaneOperator, CanaryProbeReport::NETWORK_PROBE);
    if let Some(probe) = deciding_probe(&probes) {
        return condition_from_probe(probe, "InsufficientClusterCapabilities");
    }
    previous_condition(observed, VALID_NETWORK, &[Component::ControlPlaneOperator]).unwrap_or_else(
        || {
            ConditionContent::new(
                CONDITION_UNKNOWN,
                REASON_NOT_REPORTED,
                "no canary has told whether the network is there",
            )
        },
    )
}

/// The answers of the component's canaries to a probe, by pods that count and in their order.
fn canary_probes<'a>(
    observed: &IdentityStatusInputs<'a>,
    component: Component,
    name: &str,
) -> Vec<&'a CanaryProbeReport> {
    let told_of = |it: &&CanaryStatusReport| it.component == component.name();
    let mut pods: Vec<_> = observed
        .pods
        .iter()
        .filter(|pod| check_pod_counts(observed, pod).is_ok())
        .filter_map(|pod| Some((&pod.name, pod.canary_report.parsed().filter(told_of)?)))
        .collect();
    pods.sort_by_key(|(pod, _)| *pod);
    pods.into_iter().flat_map(|(_, it)| &it.probes).filter(|probe| probe.name == name).collect()
}

/// The probe that speaks for all: a bad one, or else one that nobody throttles.
fn deciding_probe<'a>(probes: &[&'a CanaryProbeReport]) -> Option<&'a CanaryProbeReport> {
    let rank = |probe: &&&CanaryProbeReport| (probe.good, probe.reason != REASON_AS_EXPECTED);
    probes.iter().min_by_key(rank).copied()
}

/// What a condition said, while the pods that would tell more are on their way.
fn previous_condition(
    observed: &IdentityStatusInputs<'_>,
    kind: &str,
    witnesses: &[Component],
) -> Option<ConditionContent> {
    let is_witness = |pod: &&ObservedPod| {
        witnesses.iter().any(|it| pod.class_names.contains(it.definition().secret_provider_class))
    };
    let mut witnesses = observed.pods.iter().filter(is_witness);
    let is_awaited = observed.is_deleting
        || witnesses.any(|pod| matches!(check_pod_counts(observed, pod), Err(Some(_))));
    let previous = observed.previous_status.filter(|_| is_awaited)?;
    let previous = previous.conditions.iter().find(|it| it.type_ == kind)?;
    let status =
        [CONDITION_TRUE, CONDITION_FALSE].into_iter().find(|status| *status == previous.status)?;
    Some(ConditionContent::new(status, previous.reason.clone(), previous.message.clone()))
}

fn condition_from_probe(probe: &CanaryProbeReport, otherwise: &str) -> ConditionContent {
    match (probe.good, probe.reason.as_str()) {
        (true, REASON_AS_EXPECTED) => return ConditionContent::as_expected(),
        (true, word) => {
            return ConditionContent::new(
                CONDITION_TRUE,
                valid_reason_or(word, REASON_AS_EXPECTED),
                probe.message.clone(),
            );
        }
        (false, _) => {}
    }
    let message = match probe.hint.trim() {
        "" => probe.message.clone(),
        hint => format!("{}; next: {hint}", probe.message.trim_end_matches('.')),
    };
    ConditionContent::new(CONDITION_FALSE, valid_reason_or(&probe.reason, otherwise), message)
}

fn credentials_renewed(
    observed: &IdentityStatusInputs<'_>,
    identities: &[IdentityStatus],
) -> ConditionContent {
    let forecasts: Vec<_> = identities
        .iter()
        .map(|identity| {
            (identity, forecast_identity_renewal(identity, observed.renewal_policy, observed.now))
        })
        .collect();
    let lines = |verdicts: fn(RenewalState) -> bool| {
        let told = forecasts.iter().filter(move |(_, forecast)| verdicts(forecast.verdict));
        told.map(|(identity, it)| format!("{}: {}", identity.component, it.summary()))
    };
    let worst = forecasts.iter().map(|(_, forecast)| forecast).max_by_key(|it| it.verdict);
    match worst.filter(|worst| worst.verdict.requires_action()) {
        Some(worst) => ConditionContent::new(
            CONDITION_FALSE,
            worst.reason(),
            join_lines(lines(RenewalState::requires_action)),
        ),
        None if lines(RenewalState::is_unknown).next().is_some() => ConditionContent::new(
            CONDITION_UNKNOWN,
            REASON_NOT_REPORTED,
            join_lines(lines(RenewalState::is_unknown)),
        ),
        None => ConditionContent::as_expected(),
    }
}

fn identities_in_step(drift: &[DriftStatus]) -> ConditionContent {
    let Some(first) = drift.first() else { return ConditionContent::as_expected() };
    let one_kind = drift.iter().all(|it| it.kind == first.kind);
    let reason = if one_kind { first.kind.as_str() } else { "Drifted" };
    let lines = drift.iter().map(|it| format!("{}: {}", it.subject, it.message));
    ConditionContent::new(CONDITION_FALSE, reason, join_lines(lines))
}

/// Of a cluster that cannot be used the errors are told elsewhere, and the lints here.
fn advised_configuration(observed: &IdentityStatusInputs<'_>) -> ConditionContent {
    let problems = match observed.cluster {
        ClusterValidation::Valid(_) => observed.lints,
        ClusterValidation::Invalid(problems) => problems,
    };
    let lints = problems.iter().filter(|it| it.severity == ProblemSeverity::Lint);
    let lines: Vec<_> = lints
        .map(|lint| match &lint.hint {
            Some(hint) => format!("{lint}; next: {hint}"),
            None => lint.to_string(),
        })
        .collect();
    if lines.is_empty() {
        return ConditionContent::as_expected();
    }
    // What to do stands at the end of a line, and there are few.
    let lines: Vec<_> = lines.iter().map(|line| single_line(line, MAX_LINT_BYTES)).collect();
    ConditionContent::new(CONDITION_FALSE, "Linted", lines.join(" | "))
}

const AS_EXPECTED_MESSAGE: &str = "All is well";
const REASON_STATUS_UNKNOWN: &str = "StatusUnknown";
const REASON_INVALID_CREDENTIALS: &str = "InvalidAzureCredentials";
const REASON_AZURE_ERROR: &str = "AzureError";
/// Nine lines and more of them fit into a message.
const MAX_LINE_BYTES: usize = 300;
const MAX_LINT_BYTES: usize = 800;
const MAX_CONDITION_MESSAGE_BYTES: usize = 4_000;
