//! The task of one probe.

use std::sync::Arc;
use std::time::Duration;

use lanyard_azure::{ArmClient, AuthenticatedClient};
use tokio::sync::mpsc;

use super::{CanaryDependencies, CanarySettings};
use crate::credential::WatchedCredential;
use crate::credential_location::CredentialFileLocation;
use crate::metrics::ProbeResult;
use crate::probe::{ProbeAttempt, ProbeKind, ProbeOutcome, ProbeSettings};
use crate::proof_error::{ProofError, ProofErrorKind};
use crate::timeout::with_timeout;

/// The outcome of one attempt of a probe.
#[derive(Debug)]
pub(super) struct ProbeReport {
    pub(super) kind: ProbeKind,
    pub(super) outcome: ProbeOutcome,
}

impl ProbeReport {
    pub(super) fn result(&self) -> ProbeResult {
        match &self.outcome {
            Ok(_) => ProbeResult::Good,
            Err(error) if error.kind != ProofErrorKind::Definitive => ProbeResult::Inconclusive,
            Err(_) => ProbeResult::Bad,
        }
    }
}

/// The task that attempts one probe repeatedly.
#[derive(Debug)]
pub(super) struct ProbeTask {
    probe: ProbeSettings,
    endpoints: &'static lanyard_vocabulary::cloud::CloudEndpoints,
    interval: Duration,
    dependencies: CanaryDependencies,
}

impl ProbeTask {
    pub(super) fn new(
        probe: ProbeSettings,
        settings: &CanarySettings,
        dependencies: &CanaryDependencies,
    ) -> Self {
        let (endpoints, interval) = (settings.endpoints, settings.probe_interval);
        Self { probe, endpoints, interval, dependencies: dependencies.clone() }
    }

    /// Attempts the probe repeatedly and sends each outcome to `reports`, until the receiver is dropped. `own`
    /// is the credential of the canary.
    pub(super) async fn run(self, own: WatchedCredential, reports: mpsc::Sender<ProbeReport>) {
        let kind = self.probe.kind();
        let mut watched = None;
        loop {
            let attempt = match self.open_credential(&own, &mut watched).await {
                Ok(credential) => self.attempt_probe(&credential).await,
                Err(error) => ProbeAttempt::without_credential(error),
            };
            let pause = attempt.next_delay(self.interval, fastrand::f64());
            let is_bad = attempt.outcome.is_err();
            if reports.send(ProbeReport { kind, outcome: attempt.outcome }).await.is_err() {
                return;
            }
            let sleep = self.dependencies.clock.sleep(pause);
            match &mut watched {
                // A new credential may resolve the failure, so the probe runs again immediately.
                Some(watched) if is_bad => {
                    tokio::select! {
                        () = sleep => {}
                        Ok(()) = watched.load_status.changed() => {}
                    }
                }
                _ => sleep.await,
            }
        }
    }

    /// The credential of the probe: its own file, opened once, or the canary's credential.
    async fn open_credential(
        &self,
        own: &WatchedCredential,
        watched: &mut Option<WatchedCredential>,
    ) -> Result<WatchedCredential, ProofError> {
        if let Some(watched) = watched {
            watched.load_status.mark_unchanged();
            return Ok(watched.clone());
        }
        let opened = match &self.probe {
            ProbeSettings::Encryption { credential_file: Some(path), .. } => {
                let location = CredentialFileLocation::File(path.clone());
                WatchedCredential::open(&location, &self.dependencies.token_transport).await?
            }
            _ => own.clone(),
        };
        Ok(watched.insert(opened).clone())
    }

    /// Makes one attempt of this task's probe with the given credential: looks up the network resources in ARM,
    /// or encrypts with the vault key. An attempt that takes longer than [`PROBE_TIMEOUT`] counts as an error.
    async fn attempt_probe(&self, watched: &WatchedCredential) -> ProbeAttempt {
        let credential = Arc::clone(&watched.credential);
        let clock = &self.dependencies.clock;
        let transport = &self.dependencies.transport;
        let attempt = match &self.probe {
            ProbeSettings::Network(target) => {
                let arm = ArmClient::new(self.endpoints, credential, transport);
                with_timeout(clock, PROBE_TIMEOUT, target.probe_locations(&arm)).await
            }
            ProbeSettings::Encryption { key, .. } => {
                let caller =
                    AuthenticatedClient::new(key.scope().to_owned(), credential, transport);
                with_timeout(clock, PROBE_TIMEOUT, key.encrypt(&caller)).await
            }
        };
        let timed_out = || ProbeAttempt::timed_out(ProofError::timed_out("Azure", PROBE_TIMEOUT));
        attempt.unwrap_or_else(timed_out)
    }
}

/// The time limit of one attempt.
const PROBE_TIMEOUT: Duration = Duration::from_mins(2);
