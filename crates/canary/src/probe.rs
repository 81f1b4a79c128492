//! What is found out beyond the hops: that the network is there, that the key encrypts.
//!
//! Each probe has one task of its own, so it is made once at a time however many want to know, and
//! its result is the facts until the next one. When it is made again follows from what came back
//! ([`retry_delay_for_status`]).

pub(crate) mod encryption;
pub(crate) mod network;

use std::path::PathBuf;
use std::time::Duration;

use lanyard_api::canary_report::CanaryProbeReport;
use lanyard_azure::AzureCallError;

use self::encryption::KeyUrl;
use self::network::NetworkProbeTarget;
use crate::delays::with_jitter;
use crate::proof_error::{ProofError, THROTTLED_CODE};

/// A probe to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeSettings {
    /// The virtual network, its security group and the resource group are there, in one region.
    Network(NetworkProbeTarget),
    /// The key encrypts.
    Encryption {
        /// The key.
        key: KeyUrl,
        /// The credential file to ask with, where it is not the canary's own.
        credential_file: Option<PathBuf>,
    },
}

/// Which probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// [`ProbeSettings::KmsEncryption`].
    Encryption,
    /// [`ProbeSettings::Network`].
    Network,
}

impl ProbeKind {
    /// The reason of a good probe.
    pub(crate) const GOOD: &str = "AsExpected";
    /// The reason where Azure, or the way to it, is to blame.
    pub(crate) const AZURE_ERROR: &str = "AzureError";
    /// The reason where the identity is to blame.
    pub(crate) const INVALID_CREDENTIALS: &str = "InvalidAzureCredentials";

    /// The name in facts and metrics.
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

/// What a probe came to: words for what is good, or what is wrong with the reason as its code.
pub(crate) type ProbeOutcome = Result<String, ProofError>;

/// A probe that was made, with when it may be made again.
#[derive(Debug)]
pub(crate) struct ProbeAttempt {
    pub(crate) outcome: ProbeOutcome,
    pub(crate) retry_delay: Option<Duration>,
}

impl ProbeAttempt {
    pub(crate) const fn good(message: String) -> Self {
        Self { outcome: Ok(message), retry_delay: None }
    }

    /// Azure said no, or nothing.
    pub(crate) fn from_call_error(error: &AzureCallError) -> Self {
        let trouble = ProofError::of_call(error);
        let pause = trouble
            .throttle_delay(ALWAYS_LONGEST)
            .unwrap_or_else(|| retry_delay_for_status(error.status()));
        if trouble.is_throttled() {
            // Be it Azure or Entra: nobody answered what was asked, so nobody is to blame.
            let trouble = trouble.as_inconclusive_if_throttled().with_reason(THROTTLED_CODE);
            return Self { outcome: Err(trouble), retry_delay: Some(pause) };
        }
        let reason = match error {
            AzureCallError::Token { .. } | AzureCallError::Unauthorized { .. } => {
                ProbeKind::INVALID_CREDENTIALS
            }
            _ => ProbeKind::AZURE_ERROR,
        };
        Self { outcome: Err(trouble.with_reason(reason)), retry_delay: Some(pause) }
    }

    /// There is nothing to ask with.
    pub(crate) fn without_credential(trouble: ProofError) -> Self {
        let trouble = trouble.with_reason(ProbeKind::INVALID_CREDENTIALS);
        Self { outcome: Err(trouble), retry_delay: Some(DEFAULT_RETRY_DELAY) }
    }

    /// Nobody answered in time.
    pub(crate) fn timed_out(trouble: ProofError) -> Self {
        let trouble = trouble.with_reason(ProbeKind::AZURE_ERROR);
        Self { outcome: Err(trouble), retry_delay: Some(DEFAULT_RETRY_DELAY) }
    }

    /// When the probe is made again.
    pub(crate) fn next_delay(&self, interval: Duration, chance: f64) -> Duration {
        self.retry_delay
            .map_or_else(|| with_jitter(interval, chance), |pause| lengthened(pause, chance))
    }
}

/// A pause that somebody asked for is never shortened.
fn lengthened(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(1.0 + 0.1 * chance.clamp(0.0, 1.0))
}

/// How long a refused probe waits, by the status that came back: a role assignment takes minutes to
/// work, a conflict passes soon. Source: the back-off classes of HyperShift's control plane operator.
const fn retry_delay_for_status(status: Option<u16>) -> Duration {
    match status {
        Some(403) => Duration::from_mins(10),
        Some(409) => Duration::from_secs(30),
        _ => DEFAULT_RETRY_DELAY,
    }
}

/// A probe is made rarely, so one that is throttled waits at once as long as it ever does.
const ALWAYS_LONGEST: u32 = u32::MAX;
const DEFAULT_RETRY_DELAY: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests;
