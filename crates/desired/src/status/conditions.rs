//! The conditions that sum up how the identities are.
//!
//! None of them gates anything: what cannot be told is `Unknown`, and reconciliation goes on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lanyard_api::canary_facts::ProbeFacts;
use lanyard_api::hosted_cluster_identities::{DriftStatus, IdentityStatus};
use lanyard_api::{CanaryFacts, whole_second};
use lanyard_vocabulary::Component;

use super::account::NOT_REPORTED;
use super::identity::counts;
use super::observed::{ClusterState, Observed, ObservedPod};
use super::{AS_EXPECTED, FALSE, TRUE, UNKNOWN};
use crate::forecast::{Verdict, forecast_identity};
use crate::problem::Severity;
use crate::told::{one_line, reason};

/// Whether every identity works.
pub const VALID_IDENTITIES: &str = "ValidAzureIdentities";
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
    observed: &Observed<'_>,
    identities: &[IdentityStatus],
    drift: &[DriftStatus],
) -> Vec<Condition> {
    [
        (VALID_IDENTITIES, valid_identities(observed, identities)),
        (VALID_KMS_CONFIG, valid_kms_config(observed)),
        (VALID_NETWORK, valid_network(observed)),
        (CREDENTIALS_RENEWED, credentials_renewed(observed, identities)),
        (IDENTITIES_IN_STEP, in_step(drift)),
        (ADVISED_CONFIGURATION, advised(observed)),
    ]
    .into_iter()
    .map(|(kind, said)| said.condition(kind, observed))
    .collect()
}

/// What a condition says.
struct Said {
    status: &'static str,
    reason: String,
    message: String,
}

impl Said {
    fn new(status: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), message: message.into() }
    }

    fn well() -> Self {
        Self::new(TRUE, AS_EXPECTED, ALL_IS_WELL)
    }

    /// The time of a transition is that of a change of the status, and of nothing else.
    fn condition(self, kind: &str, observed: &Observed<'_>) -> Condition {
        let previous = observed.previous.into_iter().flat_map(|previous| &previous.conditions);
        let mut previous = previous.filter(|it| it.type_ == kind && it.status == self.status);
        let changed = Time(whole_second(observed.now));
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason,
            message: one_line(&self.message, MOST_MESSAGE),
            observed_generation: observed.generation,
            last_transition_time: previous
                .next()
                .map_or(changed, |it| it.last_transition_time.clone()),
        }
    }
}

fn valid_identities(observed: &Observed<'_>, identities: &[IdentityStatus]) -> Said {
    if let ClusterState::Invalid(problems) = observed.cluster {
        let message = format!("the HostedCluster cannot be used: {problems}");
        return Said::new(FALSE, "InvalidHostedCluster", message);
    }
    let of = |ready: &'static str| identities.iter().filter(move |it| it.ready == ready);
    if let Some(first) = of(FALSE).next() {
        let one_reason = of(FALSE).all(|it| it.reason == first.reason);
        let reason = if one_reason { first.reason.as_str() } else { "IdentitiesBroken" };
        return Said::new(FALSE, reason, listing(of(FALSE).map(broken_line)));
    }
    if let Some(first) = of(UNKNOWN).next() {
        let one_reason = of(UNKNOWN).all(|it| it.reason == first.reason);
        let reason = if one_reason { first.reason.as_str() } else { NOT_REPORTED };
        return Said::new(UNKNOWN, reason, listing(of(UNKNOWN).map(line)));
    }
    Said::well()
}

fn broken_line(identity: &IdentityStatus) -> String {
    let hop = identity.failed_hop.as_deref().unwrap_or("an unknown hop");
    format!("{} at {hop}: {}: {}", identity.component, identity.reason, identity.message)
}

fn line(identity: &IdentityStatus) -> String {
    format!("{}: {}", identity.component, identity.message)
}

/// The lines in one text, each of them cut, so that the last identity is named as the first is.
fn listing(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| one_line(&line, MOST_LINE)).collect::<Vec<_>>().join(" | ")
}

/// Every row of the reference's table; none of them asks anybody.
fn valid_kms_config(observed: &Observed<'_>) -> Said {
    let ClusterState::Valid(cluster) = observed.cluster else {
        return Said::new(UNKNOWN, STATUS_UNKNOWN, "the HostedCluster cannot be used");
    };
    let Some(encryption) = &cluster.encryption else {
        return Said::new(UNKNOWN, STATUS_UNKNOWN, "Azure KMS is not configured");
    };
    if cluster.azure.cloud.endpoints().is_none() {
        let message = format!("the names of vaults in `{}` are not known", cluster.azure.cloud);
        return Said::new(FALSE, INVALID_CREDENTIALS, message);
    }
    // A private vault is reached from the API server's pod alone, through the private router.
    let witnesses: &[_] = if encryption.private_access {
        &[Component::Kms]
    } else {
        &[Component::Kms, Component::ControlPlaneOperator]
    };
    let probes: Vec<_> =
        witnesses.iter().flat_map(|it| probes(observed, *it, ProbeFacts::ENCRYPTION)).collect();
    if let Some(probe) = speaker(&probes) {
        return said_by(probe, AZURE_ERROR);
    }
    kept(observed, VALID_KMS_CONFIG, witnesses).unwrap_or_else(|| {
        let missing = if encryption.private_access {
            "Private Key Vault endpoint is not reachable from the management cluster"
        } else {
            "no canary has told whether the key encrypts"
        };
        Said::new(UNKNOWN, STATUS_UNKNOWN, missing)
    })
}

fn valid_network(observed: &Observed<'_>) -> Said {
    let probes = probes(observed, Component::ControlPlaneOperator, ProbeFacts::NETWORK);
    if let Some(probe) = speaker(&probes) {
        return said_by(probe, "InsufficientClusterCapabilities");
    }
    kept(observed, VALID_NETWORK, &[Component::ControlPlaneOperator]).unwrap_or_else(|| {
        Said::new(UNKNOWN, NOT_REPORTED, "no canary has told whether the network is there")
    })
}

/// The answers of the component's canaries to a probe, by pods that count and in their order.
fn probes<'a>(observed: &Observed<'a>, component: Component, name: &str) -> Vec<&'a ProbeFacts> {
    let told_of = |it: &&CanaryFacts| it.component == component.name();
    let mut pods: Vec<_> = observed
        .pods
        .iter()
        .filter(|pod| counts(observed, pod).is_ok())
        .filter_map(|pod| Some((&pod.name, pod.canary.told().filter(told_of)?)))
        .collect();
    pods.sort_by_key(|(pod, _)| *pod);
    pods.into_iter().flat_map(|(_, it)| &it.probes).filter(|probe| probe.name == name).collect()
}

/// The probe that speaks for all: a bad one, or else one that nobody throttles.
fn speaker<'a>(probes: &[&'a ProbeFacts]) -> Option<&'a ProbeFacts> {
    let rank = |probe: &&&ProbeFacts| (probe.good, probe.reason != AS_EXPECTED);
    probes.iter().min_by_key(rank).copied()
}

/// What a condition said, while the pods that would tell more are on their way.
fn kept(observed: &Observed<'_>, kind: &str, witnesses: &[Component]) -> Option<Said> {
    let is_witness = |pod: &&ObservedPod| {
        witnesses.iter().any(|it| pod.classes.contains(it.facts().secret_provider_class))
    };
    let mut witnesses = observed.pods.iter().filter(is_witness);
    let is_awaited =
        observed.is_ending || witnesses.any(|pod| matches!(counts(observed, pod), Err(Some(_))));
    let previous = observed.previous.filter(|_| is_awaited)?;
    let previous = previous.conditions.iter().find(|it| it.type_ == kind)?;
    let status = [TRUE, FALSE].into_iter().find(|status| *status == previous.status)?;
    Some(Said::new(status, previous.reason.clone(), previous.message.clone()))
}

fn said_by(probe: &ProbeFacts, otherwise: &str) -> Said {
    match (probe.good, probe.reason.as_str()) {
        (true, AS_EXPECTED) => return Said::well(),
        (true, word) => return Said::new(TRUE, reason(word, AS_EXPECTED), probe.message.clone()),
        (false, _) => {}
    }
    let message = match probe.hint.trim() {
        "" => probe.message.clone(),
        hint => format!("{}; next: {hint}", probe.message.trim_end_matches('.')),
    };
    Said::new(FALSE, reason(&probe.reason, otherwise), message)
}

fn credentials_renewed(observed: &Observed<'_>, identities: &[IdentityStatus]) -> Said {
    let forecasts: Vec<_> = identities
        .iter()
        .map(|identity| (identity, forecast_identity(identity, observed.policy, observed.now)))
        .collect();
    let lines = |verdicts: fn(Verdict) -> bool| {
        let told = forecasts.iter().filter(move |(_, forecast)| verdicts(forecast.verdict));
        told.map(|(identity, it)| format!("{}: {}", identity.component, it.sentence()))
    };
    let worst = forecasts.iter().map(|(_, forecast)| forecast).max_by_key(|it| it.verdict);
    match worst.filter(|worst| worst.verdict.is_alarming()) {
        Some(worst) => Said::new(FALSE, worst.reason(), listing(lines(Verdict::is_alarming))),
        None if lines(Verdict::is_unknown).next().is_some() => {
            Said::new(UNKNOWN, NOT_REPORTED, listing(lines(Verdict::is_unknown)))
        }
        None => Said::well(),
    }
}

fn in_step(drift: &[DriftStatus]) -> Said {
    let Some(first) = drift.first() else { return Said::well() };
    let one_kind = drift.iter().all(|it| it.kind == first.kind);
    let reason = if one_kind { first.kind.as_str() } else { "Drifted" };
    let lines = drift.iter().map(|it| format!("{}: {}", it.subject, it.message));
    Said::new(FALSE, reason, listing(lines))
}

/// Of a cluster that cannot be used the errors are told elsewhere, and the lints here.
fn advised(observed: &Observed<'_>) -> Said {
    let problems = match observed.cluster {
        ClusterState::Valid(_) => observed.lints,
        ClusterState::Invalid(problems) => problems,
    };
    let lints = problems.iter().filter(|it| it.severity == Severity::Lint);
    let lines: Vec<_> = lints
        .map(|lint| match &lint.hint {
            Some(hint) => format!("{lint}; next: {hint}"),
            None => lint.to_string(),
        })
        .collect();
    if lines.is_empty() {
        return Said::well();
    }
    // What to do stands at the end of a line, and there are few.
    let lines: Vec<_> = lines.iter().map(|line| one_line(line, MOST_LINT)).collect();
    Said::new(FALSE, "Linted", lines.join(" | "))
}

const ALL_IS_WELL: &str = "All is well";
const STATUS_UNKNOWN: &str = "StatusUnknown";
const INVALID_CREDENTIALS: &str = "InvalidAzureCredentials";
const AZURE_ERROR: &str = "AzureError";
/// Nine lines and more of them fit into a message.
const MOST_LINE: usize = 300;
const MOST_LINT: usize = 800;
const MOST_MESSAGE: usize = 4_000;
