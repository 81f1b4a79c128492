//! The task of one probe.

use std::sync::Arc;
use std::time::Duration;

use lanyard_azure::{ArmClient, AuthenticatedClient};
use tokio::sync::mpsc;

use super::{CanaryDependencies, CanarySettings};
use crate::credential::FollowedCredential;
use crate::credential_location::CredentialFileLocation;
use crate::metrics::ProbeResult;
use crate::probe::{ProbeAttempt, ProbeKind, ProbeOutcome, ProbeSettings};
use crate::proof_error::{ProofError, ProofErrorKind};
use crate::timeout::with_timeout;

/// What a probe came to.
#[derive(Debug)]
pub(super) struct ProbeReport {
    pub(super) kind: ProbeKind,
    pub(super) outcome: ProbeOutcome,
}

impl ProbeReport {
    pub(super) fn result(&self) -> ProbeResult {
        match &self.outcome {
            Ok(_) => ProbeResult::Good,
            Err(trouble) if trouble.kind != ProofErrorKind::Definitive => ProbeResult::Inconclusive,
            Err(_) => ProbeResult::Bad,
        }
    }
}

/// Makes one probe again and again.
#[derive(Debug)]
pub(super) struct ProbeTask {
    probe: ProbeSettings,
    endpoints: &'static lanyard_vocabulary::cloud::CloudEndpoints,
    interval: Duration,
    parts: CanaryDependencies,
}

impl ProbeTask {
    pub(super) fn new(
        probe: ProbeSettings,
        settings: &CanarySettings,
        parts: &CanaryDependencies,
    ) -> Self {
        let (endpoints, interval) = (settings.endpoints, settings.probe_interval);
        Self { probe, endpoints, interval, parts: parts.clone() }
    }

    /// Probes until nobody wants to know. `own` is the credential of the canary.
    pub(super) async fn run(self, own: FollowedCredential, told: mpsc::Sender<ProbeReport>) {
        let kind = self.probe.kind();
        let mut followed = None;
        loop {
            let made = match self.open_credential(&own, &mut followed).await {
                Ok(credential) => self.run_probe(&credential).await,
                Err(trouble) => ProbeAttempt::without_credential(trouble),
            };
            let pause = made.next_delay(self.interval, fastrand::f64());
            let is_bad = made.outcome.is_err();
            if told.send(ProbeReport { kind, outcome: made.outcome }).await.is_err() {
                return;
            }
            let sleep = self.parts.clock.sleep(pause);
            match &mut followed {
                // A new credential may be what was missing.
                Some(followed) if is_bad => {
                    tokio::select! {
                        () = sleep => {}
                        Ok(()) = followed.load_status.changed() => {}
                    }
                }
                _ => sleep.await,
            }
        }
    }

    /// The credential to ask with: opened once, where it is not the canary's own.
    async fn open_credential(
        &self,
        own: &FollowedCredential,
        followed: &mut Option<FollowedCredential>,
    ) -> Result<FollowedCredential, ProofError> {
        if let Some(followed) = followed {
            followed.load_status.mark_unchanged();
            return Ok(followed.clone());
        }
        let opened = match &self.probe {
            ProbeSettings::Encryption { credential_file: Some(path), .. } => {
                let place = CredentialFileLocation::File(path.clone());
                FollowedCredential::open(&place, &self.parts.token_transport).await?
            }
            _ => own.clone(),
        };
        Ok(followed.insert(opened).clone())
    }

    async fn run_probe(&self, followed: &FollowedCredential) -> ProbeAttempt {
        let credential = Arc::clone(&followed.credential);
        let transport = &self.parts.transport;
        let made = match &self.probe {
            ProbeSettings::Network(place) => {
                let arm = ArmClient::new(self.endpoints, credential, transport);
                with_timeout(&self.parts.clock, PROBE_TIMEOUT, place.probe_locations(&arm)).await
            }
            ProbeSettings::Encryption { key, .. } => {
                let caller =
                    AuthenticatedClient::new(key.scope().to_owned(), credential, transport);
                with_timeout(&self.parts.clock, PROBE_TIMEOUT, key.encrypt(&caller)).await
            }
        };
        let silent = || ProbeAttempt::timed_out(ProofError::timed_out("Azure", PROBE_TIMEOUT));
        made.unwrap_or_else(silent)
    }
}

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_mins(2);
