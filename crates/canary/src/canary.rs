//! The canary: rounds of proof, and who hears of them.

mod probe_task;
mod proof_loop;

use std::sync::Arc;
use std::time::Duration;

use lanyard_api::canary_report::{CanaryProbeReport, CanaryStatusReport};
use lanyard_azure::{AuthenticatedClient, AzureTransport, RetryPolicy};
use lanyard_clock::SharedClock;
use lanyard_credential::{RetrySettings, TokenTransport};
use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{Component, Hop};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::probe_task::{ProbeReport, ProbeTask};
use self::proof_loop::ProofLoop;
use crate::annotation::FactsPublisher;
use crate::call::GrantedCall;
use crate::check_tracker::{ClockReading, FailureThreshold};
use crate::credential::FollowedCredential;
use crate::credential_location::CredentialFileLocation;
use crate::delays::with_jitter;
use crate::identity::IdentityState;
use crate::metrics::CanaryMetrics;
use crate::probe::ProbeSettings;

/// What a canary proves, and how often.
#[derive(Debug, Clone)]
pub struct CanarySettings {
    /// Whose identity.
    pub component: Component,
    /// The cloud.
    pub endpoints: &'static CloudEndpoints,
    /// How the credential file is found.
    pub credential_location: CredentialFileLocation,
    /// What the role grants; without it the proof ends with a token for Azure Resource Manager.
    pub call: Option<GrantedCall>,
    /// What is probed beyond that.
    pub probes: Vec<ProbeSettings>,
    /// The time between two calls.
    pub interval: Duration,
    /// After what time Entra is asked for a new token though the held one lives on.
    pub token_interval: Duration,
    /// The time between two probes that are good.
    pub probe_interval: Duration,
    /// When trouble on the way is told.
    pub failure_threshold: FailureThreshold,
}

/// What a canary works with.
#[derive(Debug, Clone)]
pub struct CanaryDependencies {
    /// The time.
    pub clock: SharedClock,
    /// The way to Azure, best with [`CanaryDependencies::RETRY`].
    pub transport: AzureTransport,
    /// The way to Entra, best with [`CanaryDependencies::token_retry`].
    pub token_transport: TokenTransport,
    /// Who counts.
    pub metrics: CanaryMetrics,
}

impl CanaryDependencies {
    /// How the way to Azure retries: not at all. The next round is the retry, and a host that wants
    /// to be left alone is not waited for.
    pub const RETRY: RetryPolicy =
        RetryPolicy { retries: 0, base: Duration::from_secs(1), cap: Duration::from_secs(1) };

    /// How the way to Entra retries, for the same reason: one request for a token.
    pub fn token_retry() -> RetrySettings {
        let mut settings = RetrySettings::default();
        settings.attempts = 1;
        settings
    }
}

/// Keeps proving the identity of one component.
#[derive(Debug)]
pub struct IdentityCanary {
    settings: CanarySettings,
    dependencies: CanaryDependencies,
    publisher: Option<FactsPublisher>,
}

impl IdentityCanary {
    /// A canary that tells metrics and the log.
    pub const fn new(settings: CanarySettings, dependencies: CanaryDependencies) -> Self {
        Self { settings, dependencies, publisher: None }
    }

    /// The same, which tells its facts too.
    #[must_use]
    pub fn with_publisher(mut self, telling: FactsPublisher) -> Self {
        self.publisher = Some(telling);
        self
    }

    /// Proves until it is dropped. A broken identity is no reason to end: it is what a canary is for.
    pub async fn run(self) {
        let Self { settings, dependencies: parts, publisher: telling } = self;
        // They end with this set, and so with this future.
        let mut tasks = JoinSet::new();
        let (told, facts) = watch::channel(None);
        if let Some(telling) = telling {
            tasks.spawn(telling.publish_changes(facts));
        }
        let mut board = IdentityReporter::new(&settings, parts.clone(), told);
        let followed = board.open_credential(&settings).await;
        parts.metrics.observe_credential(Arc::clone(&followed.credential), &settings.scope());
        let (sender, probed) = mpsc::channel(PROBE_QUEUE_SIZE);
        for probe in &settings.probes {
            let prober = ProbeTask::new(probe.clone(), &settings, &parts);
            tasks.spawn(prober.run(followed.clone(), sender.clone()));
        }
        drop(sender);
        ProofLoop::new(&settings, parts, followed).run(&mut board, probed).await;
    }
}

impl CanarySettings {
    /// The scope of the token that is kept.
    fn scope(&self) -> String {
        self.call.as_ref().map_or_else(
            || lanyard_azure::ArmClient::scope(self.endpoints),
            |call| call.scope().to_owned(),
        )
    }

    /// The hops that are walked.
    fn hops_to_prove(&self) -> Vec<Hop> {
        let call = self.call.as_ref().map(|_| Hop::Granted);
        [Hop::Credential, Hop::EntraToken].into_iter().chain(call).collect()
    }

    fn caller(
        &self,
        followed: &FollowedCredential,
        transport: &AzureTransport,
    ) -> AuthenticatedClient {
        let credential = Arc::clone(&followed.credential);
        AuthenticatedClient::new(self.scope(), credential, transport)
    }
}

/// What is known, and how it is published.
#[derive(Debug)]
struct IdentityReporter {
    identity: IdentityState,
    dependencies: CanaryDependencies,
    facts_sender: watch::Sender<Option<CanaryStatusReport>>,
}

impl IdentityReporter {
    fn new(
        settings: &CanarySettings,
        dependencies: CanaryDependencies,
        facts_sender: watch::Sender<Option<CanaryStatusReport>>,
    ) -> Self {
        let identity = IdentityState::new(
            settings.component,
            &settings.hops_to_prove(),
            settings.failure_threshold,
        );
        Self { identity, dependencies, facts_sender }
    }

    fn now(&self) -> ClockReading {
        let clock = &self.dependencies.clock;
        ClockReading { wall: clock.now(), monotonic: clock.monotonic() }
    }

    /// Opens the credential file, however long it takes until it can be.
    async fn open_credential(&mut self, settings: &CanarySettings) -> FollowedCredential {
        loop {
            match FollowedCredential::open(
                &settings.credential_location,
                &self.dependencies.token_transport,
            )
            .await
            {
                Ok(followed) => return followed,
                Err(trouble) => {
                    self.dependencies.metrics.record_hop_failure(Hop::Credential);
                    let now = self.now();
                    self.identity.record_hop(Hop::Credential, Err(trouble), now);
                    self.publish_facts();
                }
            }
            let pause = settings.interval.min(MAX_FILE_POLL_INTERVAL);
            self.dependencies.clock.sleep(with_jitter(pause, fastrand::f64())).await;
        }
    }

    /// What one of the probes came to.
    fn record_probe(&mut self, probing: ProbeReport) {
        self.dependencies.metrics.record_probe(probing.kind, probing.result());
        let now = self.now();
        self.identity.record_probe(probing.kind, probing.outcome, now);
        self.publish_facts();
    }

    /// Publishes what is known where it is something new.
    fn publish_facts(&self) {
        self.dependencies.metrics.update_gauges(&self.identity);
        let facts = self.identity.facts();
        self.facts_sender.send_if_modified(|told| {
            if told.as_ref() == Some(&facts) {
                return false;
            }
            log_changes(told.as_ref(), &facts);
            *told = Some(facts);
            true
        });
    }
}

/// Says in the log what changed for the worse or the better.
fn log_changes(before: Option<&CanaryStatusReport>, now: &CanaryStatusReport) {
    let last_good_hop = now.last_good_hop.as_deref();
    match (&now.failure, before.and_then(|it| it.failure.as_ref())) {
        (Some(failure), before) if before != Some(failure) => {
            let (hop, code, hint) = (&failure.hop, &failure.code, &failure.hint);
            tracing::warn!(hop, code, hint, last_good_hop, "{}", failure.message);
        }
        (None, Some(healed)) => {
            tracing::info!(hop = healed.hop, last_good_hop, "what was wrong is over");
        }
        _ if before.and_then(|it| it.last_good_hop.as_deref()) != last_good_hop => {
            tracing::info!(last_good_hop, "what is proven of the identity has changed");
        }
        _ => {}
    }
    match (&now.throttled, before.and_then(|it| it.throttled.as_ref())) {
        (Some(throttled), None) => {
            let (hop, code, message) = (&throttled.hop, &throttled.code, &throttled.message);
            tracing::warn!(hop, code, last_good_hop, "nobody may ask: {message}");
        }
        (None, Some(ended)) => tracing::info!(hop = ended.hop, "it is throttled no more"),
        _ => {}
    }
    for probe in &now.probes {
        let is_same = |it: &CanaryProbeReport| it == probe;
        if before.is_some_and(|it| it.probes.iter().any(is_same)) {
            continue;
        }
        let (name, reason) = (&probe.name, &probe.reason);
        if probe.good {
            tracing::info!(probe = name, "{}", probe.message);
        } else {
            tracing::warn!(probe = name, reason, hint = probe.hint, "{}", probe.message);
        }
    }
}

/// How long it takes at most until a file that was not there is noticed.
const MAX_FILE_POLL_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_QUEUE_SIZE: usize = 4;

#[cfg(test)]
mod tests;
