//! The task of one probe.

use std::sync::Arc;
use std::time::Duration;

use lanyard_azure::{ArmClient, Caller};
use tokio::sync::mpsc;

use super::{CanaryParts, CanarySettings};
use crate::credential::Followed;
use crate::deadline::within;
use crate::metrics::ProbeResult;
use crate::place::CredentialPlace;
use crate::probe::{Made, ProbeKind, ProbeOutcome, ProbeSettings};
use crate::trouble::{Nature, Trouble};

/// What a probe came to.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) kind: ProbeKind,
    pub(super) outcome: ProbeOutcome,
}

impl Probing {
    pub(super) fn result(&self) -> ProbeResult {
        match &self.outcome {
            Ok(_) => ProbeResult::Good,
            Err(trouble) if trouble.nature != Nature::Final => ProbeResult::Inconclusive,
            Err(_) => ProbeResult::Bad,
        }
    }
}

/// Makes one probe again and again.
#[derive(Debug)]
pub(super) struct Prober {
    probe: ProbeSettings,
    endpoints: &'static lanyard_vocabulary::cloud::Endpoints,
    interval: Duration,
    parts: CanaryParts,
}

impl Prober {
    pub(super) fn new(
        probe: ProbeSettings,
        settings: &CanarySettings,
        parts: &CanaryParts,
    ) -> Self {
        let (endpoints, interval) = (settings.endpoints, settings.probe_interval);
        Self { probe, endpoints, interval, parts: parts.clone() }
    }

    /// Probes until nobody wants to know. `own` is the credential of the canary.
    pub(super) async fn run(self, own: Followed, told: mpsc::Sender<Probing>) {
        let kind = self.probe.kind();
        let mut followed = None;
        loop {
            let made = match self.credential(&own, &mut followed).await {
                Ok(credential) => self.make(&credential).await,
                Err(trouble) => Made::without_credential(trouble),
            };
            let pause = made.next_in(self.interval, fastrand::f64());
            let is_bad = made.outcome.is_err();
            if told.send(Probing { kind, outcome: made.outcome }).await.is_err() {
                return;
            }
            let sleep = self.parts.clock.sleep(pause);
            match &mut followed {
                // A new credential may be what was missing.
                Some(followed) if is_bad => {
                    tokio::select! {
                        () = sleep => {}
                        Ok(()) = followed.loads.changed() => {}
                    }
                }
                _ => sleep.await,
            }
        }
    }

    /// The credential to ask with: opened once, where it is not the canary's own.
    async fn credential(
        &self,
        own: &Followed,
        followed: &mut Option<Followed>,
    ) -> Result<Followed, Trouble> {
        if let Some(followed) = followed {
            followed.loads.mark_unchanged();
            return Ok(followed.clone());
        }
        let opened = match &self.probe {
            ProbeSettings::Encryption { credential_file: Some(path), .. } => {
                let place = CredentialPlace::File(path.clone());
                Followed::open(&place, &self.parts.token_transport).await?
            }
            _ => own.clone(),
        };
        Ok(followed.insert(opened).clone())
    }

    async fn make(&self, followed: &Followed) -> Made {
        let credential = Arc::clone(&followed.credential);
        let transport = &self.parts.transport;
        let made = match &self.probe {
            ProbeSettings::Network(place) => {
                let arm = ArmClient::new(self.endpoints, credential, transport);
                within(&self.parts.clock, PROBE_LIMIT, place.look(&arm)).await
            }
            ProbeSettings::Encryption { key, .. } => {
                let caller = Caller::new(key.scope().to_owned(), credential, transport);
                within(&self.parts.clock, PROBE_LIMIT, key.encrypt(&caller)).await
            }
        };
        let silent = || Made::silent(Trouble::of_silence("Azure", PROBE_LIMIT));
        made.unwrap_or_else(silent)
    }
}

/// How long a probe may take.
const PROBE_LIMIT: Duration = Duration::from_mins(2);
