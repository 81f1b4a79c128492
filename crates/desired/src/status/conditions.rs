//! The conditions that summarize the state of the identities.
//!
//! No condition blocks reconciliation: unknown states are `Unknown`, and reconciliation continues.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanyard_api::canary_report::CanaryProbeReport;
use lanyard_api::hosted_cluster_identities::{DriftStatus, IdentityStatus};
use lanyard_api::{CanaryStatusReport, truncate_to_second};
use lanyard_vocabulary::Component;

use super::identity::check_pod_counts;
use super::inputs::{ClusterValidation, IdentityStatusInputs};
use super::observed_pods::ObservedPod;
use super::pod_identity::REASON_NOT_REPORTED;
use super::{
    CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN, MAX_MESSAGE_BYTES, REASON_AS_EXPECTED,
};
use crate::forecast::{RenewalState, forecast_identity_renewal};
use crate::hosted_cluster::key_rotation::{DATA_ENCRYPTION_UP_TO_DATE, DataEncryption};
use crate::problem::{ProblemSeverity, ValidationProblem};
use crate::report_text::{single_line, single_line_with_scope, valid_reason_or};

/// Condition: every identity works.
pub const VALID_AZURE_IDENTITIES: &str = "ValidAzureIdentities";
/// Condition: the key that encrypts secrets works. The name is HyperShift's.
///
/// Source: `ValidAzureKMSConfig` of HyperShift's control plane operator, texts included. lanyard's
/// canaries run the probe and have their credential before they do; HyperShift's operator probes
/// without a credential after each start and is denied.
pub const VALID_KMS_CONFIG: &str = "ValidAzureKMSConfig";
/// Condition: the network, the security group and the resource group exist in one region.
/// HyperShift calls it `ValidHostedControlPlaneConfiguration` and stops reconciliation if it is
/// false; lanyard continues.
pub const VALID_NETWORK: &str = "ValidAzureNetwork";
/// Condition: every credential is renewed in time.
pub const CREDENTIALS_RENEWED: &str = "AzureCredentialsRenewed";
/// Condition: no object differs from the rendered state, and all mounted credentials are in use.
pub const IDENTITIES_IN_STEP: &str = "AzureIdentitiesInStep";
/// Condition: the HostedCluster has no lints (values that the schema accepts and that need
/// attention).
pub const ADVISED_CONFIGURATION: &str = "AdvisedConfiguration";

/// Returns all conditions, always in this order. [`DATA_ENCRYPTION_UP_TO_DATE`] is absent unless this
/// operator keeps the key record.
pub(super) fn conditions(
    inputs: &IdentityStatusInputs<'_>,
    identities: &[IdentityStatus],
    drift: &[DriftStatus],
) -> Vec<Condition> {
    let always = [
        (VALID_AZURE_IDENTITIES, valid_identities(inputs, identities)),
        (VALID_KMS_CONFIG, valid_kms_config(inputs)),
        (VALID_NETWORK, valid_network(inputs)),
        (CREDENTIALS_RENEWED, credentials_renewed(inputs, identities)),
        (IDENTITIES_IN_STEP, identities_in_step(drift)),
        (ADVISED_CONFIGURATION, advised_configuration(inputs)),
    ];
    let data_encryption = data_encryption(inputs).map(|it| (DATA_ENCRYPTION_UP_TO_DATE, it));
    always
        .into_iter()
        .chain(data_encryption)
        .map(|(kind, content)| content.into_condition(kind, inputs))
        .collect()
}

/// The status, reason and message of a condition.
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

    /// Builds the condition. `lastTransitionTime` changes only with the status.
    fn into_condition(self, kind: &str, inputs: &IdentityStatusInputs<'_>) -> Condition {
        let previous = inputs.previous_status.into_iter().flat_map(|previous| &previous.conditions);
        let mut previous = previous.filter(|it| it.type_ == kind && it.status == self.status);
        let changed = Time(truncate_to_second(inputs.now));
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason,
            message: single_line(&self.message, MAX_CONDITION_MESSAGE_BYTES),
            observed_generation: inputs.generation,
            last_transition_time: previous
                .next()
                .map_or(changed, |it| it.last_transition_time.clone()),
        }
    }
}

fn valid_identities(
    inputs: &IdentityStatusInputs<'_>,
    identities: &[IdentityStatus],
) -> ConditionContent {
    if let ClusterValidation::Invalid(problems) = inputs.cluster {
        let errors = problems.iter().filter(|it| it.severity == ProblemSeverity::Error);
        let message = format!("the HostedCluster cannot be used: {}", join_problems(errors));
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

/// Joins the lines into one text. Each line is shortened, so that the last identity is named, too; few lines may be
/// long. The action and the scope of a missing permission stay complete.
fn join_lines(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<_> = lines.collect();
    let limit = MAX_CONDITION_MESSAGE_BYTES / lines.len().max(1) - LINE_SEPARATOR.len();
    let limit = limit.clamp(MIN_LINE_BYTES, MAX_LINE_BYTES);
    let lines: Vec<_> = lines.iter().map(|line| single_line_with_scope(line, limit)).collect();
    lines.join(LINE_SEPARATOR)
}

/// Implements every row of HyperShift's table, without requests to Azure.
fn valid_kms_config(inputs: &IdentityStatusInputs<'_>) -> ConditionContent {
    let ClusterValidation::Valid(cluster) = inputs.cluster else {
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
    // Only the API server's pod reaches a private vault, through the private router.
    let probing_components: &[_] = if encryption.is_private_access {
        &[Component::Kms]
    } else {
        &[Component::Kms, Component::ControlPlaneOperator]
    };
    let probes: Vec<_> = probing_components
        .iter()
        .flat_map(|it| canary_probes(inputs, *it, CanaryProbeReport::ENCRYPTION_PROBE))
        .collect();
    if let Some(probe) = deciding_probe(&probes) {
        return condition_from_probe(probe, REASON_AZURE_ERROR);
    }
    previous_condition(inputs, VALID_KMS_CONFIG, probing_components).unwrap_or_else(|| {
        let missing = if encryption.is_private_access {
            "Private Key Vault endpoint is not reachable from the management cluster"
        } else {
            "no canary has reported whether the key encrypts"
        };
        ConditionContent::new(CONDITION_UNKNOWN, REASON_STATUS_UNKNOWN, missing)
    })
}

fn valid_network(inputs: &IdentityStatusInputs<'_>) -> ConditionContent {
    if let ClusterValidation::Valid(cluster) = inputs.cluster {
        let ids =
            [("vnetID", &cluster.azure.vnet), ("securityGroupID", &cluster.azure.security_group)];
        if let Some((field, _)) = ids.into_iter().find(|(_, id)| id.is_none()) {
            return ConditionContent::new(
                CONDITION_FALSE,
                REASON_INSUFFICIENT_CAPABILITIES,
                format!("`spec.platform.azure.{field}` is not the id of such a resource"),
            );
        }
    }
    let probes =
        canary_probes(inputs, Component::ControlPlaneOperator, CanaryProbeReport::NETWORK_PROBE);
    if let Some(probe) = deciding_probe(&probes) {
        return condition_from_probe(probe, REASON_INSUFFICIENT_CAPABILITIES);
    }
    previous_condition(inputs, VALID_NETWORK, &[Component::ControlPlaneOperator]).unwrap_or_else(
        || {
            ConditionContent::new(
                CONDITION_UNKNOWN,
                REASON_NOT_REPORTED,
                "no canary has reported whether the network exists",
            )
        },
    )
}

/// Returns the results of a probe by the component's canaries in ready pods, in the order of the
/// pods.
fn canary_probes<'a>(
    inputs: &IdentityStatusInputs<'a>,
    component: Component,
    name: &str,
) -> Vec<&'a CanaryProbeReport> {
    let told_of = |it: &&CanaryStatusReport| it.component == component.name();
    let mut pods: Vec<_> = inputs
        .pods
        .iter()
        .filter(|pod| check_pod_counts(inputs, pod).is_ok())
        .filter_map(|pod| Some((&pod.name, pod.canary_report.parsed().filter(told_of)?)))
        .collect();
    pods.sort_by_key(|(pod, _)| *pod);
    pods.into_iter().flat_map(|(_, it)| &it.probes).filter(|probe| probe.name == name).collect()
}

/// Returns the probe that decides: a failed one first, then one that is not throttled.
fn deciding_probe<'a>(probes: &[&'a CanaryProbeReport]) -> Option<&'a CanaryProbeReport> {
    let rank = |probe: &&&CanaryProbeReport| (probe.good, probe.reason != REASON_AS_EXPECTED);
    probes.iter().min_by_key(rank).copied()
}

/// Returns the previous condition while the pods that could change it are starting or stopping.
fn previous_condition(
    inputs: &IdentityStatusInputs<'_>,
    kind: &str,
    probing_components: &[Component],
) -> Option<ConditionContent> {
    let is_probing_pod = |pod: &&ObservedPod| {
        probing_components
            .iter()
            .any(|it| pod.class_names.contains(it.definition().secret_provider_class))
    };
    let mut probing_pods = inputs.pods.iter().filter(is_probing_pod);
    let is_awaited = inputs.is_deleting
        || probing_pods.any(|pod| matches!(check_pod_counts(inputs, pod), Err(Some(_))));
    let previous = inputs.previous_status.filter(|_| is_awaited)?;
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
    inputs: &IdentityStatusInputs<'_>,
    identities: &[IdentityStatus],
) -> ConditionContent {
    let forecasts: Vec<_> = identities
        .iter()
        .map(|identity| {
            (identity, forecast_identity_renewal(identity, inputs.renewal_policy, inputs.now))
        })
        .collect();
    let lines = |verdicts: fn(RenewalState) -> bool| {
        let selected = forecasts.iter().filter(move |(_, forecast)| verdicts(forecast.verdict));
        selected.map(|(identity, it)| format!("{}: {}", identity.component, it.summary()))
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

/// The key record of an invalid cluster stays as it is.
fn data_encryption(inputs: &IdentityStatusInputs<'_>) -> Option<ConditionContent> {
    if let ClusterValidation::Invalid(_) = inputs.cluster {
        let mut previous = inputs.previous_status?.conditions.iter();
        let previous = previous.find(|it| it.type_ == DATA_ENCRYPTION_UP_TO_DATE)?;
        let status =
            if previous.status == CONDITION_TRUE { CONDITION_TRUE } else { CONDITION_FALSE };
        return Some(ConditionContent::new(status, &*previous.reason, &*previous.message));
    }
    let DataEncryption { is_up_to_date, reason, message } = inputs.data_encryption?;
    let status = if *is_up_to_date { CONDITION_TRUE } else { CONDITION_FALSE };
    Some(ConditionContent::new(status, *reason, message))
}

/// For a valid cluster, this condition reports all problems: an error of a valid cluster costs only
/// the objects that need the value. For an invalid cluster, other conditions report the errors and
/// this one the lints.
fn advised_configuration(inputs: &IdentityStatusInputs<'_>) -> ConditionContent {
    let (problems, with_errors) = match inputs.cluster {
        ClusterValidation::Valid(_) => (inputs.problems, true),
        ClusterValidation::Invalid(problems) => (problems, false),
    };
    let errors = problems.iter().filter(|it| with_errors && it.severity == ProblemSeverity::Error);
    let lints = problems.iter().filter(|it| it.severity == ProblemSeverity::Lint);
    let reason = if errors.clone().next().is_some() { "ObjectsNotRendered" } else { "Linted" };
    let message = join_problems(errors.chain(lints));
    if message.is_empty() {
        return ConditionContent::as_expected();
    }
    ConditionContent::new(CONDITION_FALSE, reason, message)
}

/// Joins problems and their suggested fixes into one text. Each line has a higher limit than the
/// lines of several identities, because the suggested fix is at its end.
fn join_problems<'a>(problems: impl Iterator<Item = &'a ValidationProblem>) -> String {
    let lines = problems.map(|it| single_line(&it.line_with_hint(), MAX_PROBLEM_BYTES));
    lines.collect::<Vec<_>>().join(LINE_SEPARATOR)
}

const AS_EXPECTED_MESSAGE: &str = "All is well";
const REASON_STATUS_UNKNOWN: &str = "StatusUnknown";
const REASON_INVALID_CREDENTIALS: &str = "InvalidAzureCredentials";
const REASON_AZURE_ERROR: &str = "AzureError";
const REASON_INSUFFICIENT_CAPABILITIES: &str = "InsufficientClusterCapabilities";
const LINE_SEPARATOR: &str = " | ";
const MIN_LINE_BYTES: usize = 300;
/// As the message of an identity.
const MAX_LINE_BYTES: usize = MAX_MESSAGE_BYTES;
const MAX_PROBLEM_BYTES: usize = 800;
/// The share of each of nine identities holds the longest scope of a secret in a vault.
const MAX_CONDITION_MESSAGE_BYTES: usize = 4_096;
