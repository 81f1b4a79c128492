//! Probes, which check more than the hops: that the network exists and that the key encrypts.
//!
//! Each probe runs in a task of its own, one attempt at a time. Its result stays in the report
//! until the next attempt. The status of the response determines the delay until then
//! ([`retry_delay_for_status`]).

pub(crate) mod encryption;
pub(crate) mod network;

use std::path::PathBuf;
use std::time::Duration;

use lanyard_api::canary_report::CanaryProbeReport;
use lanyard_azure::AzureCallError;
use lanyard_clock::{period_with_jitter, requested_delay_with_jitter};

use self::encryption::KeyUrl;
use self::network::NetworkProbeTarget;
use crate::proof_error::{ProofError, THROTTLED_CODE};

/// A probe and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeSettings {
    /// Checks that the virtual network, its security group and the resource group exist in one
    /// region.
    Network(NetworkProbeTarget),
    /// Checks that the key encrypts.
    Encryption {
        key: KeyUrl,
        /// The credential file to use, if it is not the canary's own.
        credential_file: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// [`ProbeSettings::Encryption`].
    Encryption,
    /// [`ProbeSettings::Network`].
    Network,
}

impl ProbeKind {
    /// The reason of a successful probe.
    pub(crate) const GOOD: &str = "AsExpected";
    /// The reason of an error of Azure or of the connection to it.
    pub(crate) const AZURE_ERROR: &str = "AzureError";
    /// The reason of an error of the identity.
    pub(crate) const INVALID_CREDENTIALS: &str = "InvalidAzureCredentials";

    /// The name in reports and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encryption => CanaryProbeReport::ENCRYPTION_PROBE,
            Self::Network => CanaryProbeReport::NETWORK_PROBE,
        }
    }
}

impl ProbeSettings {
    pub(crate) const fn kind(&self) -> ProbeKind {
        match self {
            Self::Network(_) => ProbeKind::Network,
            Self::Encryption { .. } => ProbeKind::Encryption,
        }
    }
}

/// The outcome of a probe: a message on success, or an error whose code is the reason of a
/// condition.
pub(crate) type ProbeOutcome = Result<String, ProofError>;

/// An attempt of a probe, with the delay until the next one if it failed.
#[derive(Debug)]
pub(crate) struct ProbeAttempt {
    pub(crate) outcome: ProbeOutcome,
    pub(crate) retry_delay: Option<Duration>,
}

impl ProbeAttempt {
    pub(crate) const fn good(message: String) -> Self {
        Self { outcome: Ok(message), retry_delay: None }
    }

    /// The result of a call that Azure rejected or did not answer.
    pub(crate) fn from_call_error(error: &AzureCallError) -> Self {
        let proof_error = ProofError::of_call(error);
        let pause = proof_error
            .throttle_delay(ALWAYS_LONGEST)
            .unwrap_or_else(|| retry_delay_for_status(error.status()));
        if proof_error.is_throttled() {
            // Throttling by Azure or by Entra proves nothing about the probed resource.
            let proof_error =
                proof_error.into_inconclusive_if_throttled().with_reason(THROTTLED_CODE);
            return Self { outcome: Err(proof_error), retry_delay: Some(pause) };
        }
        let reason = match error {
            AzureCallError::Token { .. } | AzureCallError::Unauthorized { .. } => {
                ProbeKind::INVALID_CREDENTIALS
            }
            _ => ProbeKind::AZURE_ERROR,
        };
        Self { outcome: Err(proof_error.with_reason(reason)), retry_delay: Some(pause) }
    }

    /// The result of a probe whose credential file cannot be opened.
    pub(crate) fn without_credential(error: ProofError) -> Self {
        let error = error.with_reason(ProbeKind::INVALID_CREDENTIALS);
        Self { outcome: Err(error), retry_delay: Some(DEFAULT_RETRY_DELAY) }
    }

    /// The result of a probe that exceeded its time limit.
    pub(crate) fn timed_out(error: ProofError) -> Self {
        let error = error.with_reason(ProbeKind::AZURE_ERROR);
        Self { outcome: Err(error), retry_delay: Some(DEFAULT_RETRY_DELAY) }
    }

    /// The delay until the next attempt.
    pub(crate) fn next_delay(&self, interval: Duration, chance: f64) -> Duration {
        match self.retry_delay {
            Some(delay) => requested_delay_with_jitter(delay, chance),
            None => period_with_jitter(interval, chance),
        }
    }
}

/// The retry delay after this HTTP status: a role assignment takes minutes to become effective, a
/// conflict resolves soon. Source: the back-off classes of HyperShift's control plane operator.
const fn retry_delay_for_status(status: Option<u16>) -> Duration {
    match status {
        Some(403) => Duration::from_mins(10),
        Some(409) => Duration::from_secs(30),
        _ => DEFAULT_RETRY_DELAY,
    }
}

/// Probes are rare, so a throttled probe uses the longest back-off immediately.
const ALWAYS_LONGEST: u32 = u32::MAX;
const DEFAULT_RETRY_DELAY: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests;
