//! The canary task: it runs proof rounds and publishes their results.

mod probe_task;
mod proof_loop;

use std::sync::Arc;
use std::time::Duration;

use lanyard_api::canary_report::{CanaryProbeReport, CanaryStatusReport};
use lanyard_azure::{AuthenticatedClient, AzureTransport, RetryPolicy};
use lanyard_clock::{SharedClock, period_with_jitter};
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
use crate::credential::WatchedCredential;
use crate::credential_location::CredentialFileLocation;
use crate::identity::IdentityState;
use crate::metrics::CanaryMetrics;
use crate::probe::ProbeSettings;

/// Which identity a canary checks, with which calls, and how often.
#[derive(Debug, Clone)]
pub struct CanarySettings {
    /// The component whose identity is checked.
    pub component: Component,
    /// The endpoints of the cloud.
    pub endpoints: &'static CloudEndpoints,
    /// How the component finds its credential file.
    pub credential_location: CredentialFileLocation,
    /// A call that the component's role allows. Without it, a round ends once Entra has issued a
    /// token for Azure Resource Manager.
    pub call: Option<GrantedCall>,
    /// Probes that run in addition to the proof rounds.
    pub probes: Vec<ProbeSettings>,
    /// The time between two granted calls.
    pub interval: Duration,
    /// How often the canary requests a new token from Entra, even if the cached token is still
    /// valid.
    pub token_interval: Duration,
    /// The time between two successful probes.
    pub probe_interval: Duration,
    /// When the canary reports a transient error.
    pub failure_threshold: FailureThreshold,
}

/// The clock, transports and metrics that a canary uses.
#[derive(Debug, Clone)]
pub struct CanaryDependencies {
    /// The source of time.
    pub clock: SharedClock,
    /// The transport to Azure; build it with [`CanaryDependencies::RETRY`].
    pub transport: AzureTransport,
    /// The transport to Entra; build it with [`CanaryDependencies::token_retry`].
    pub token_transport: TokenTransport,
    /// The metrics that the canary updates.
    pub metrics: CanaryMetrics,
}

impl CanaryDependencies {
    /// The retry policy for the transport to Azure: no retries. The next round is the retry, and a
    /// round does not wait until a host stops throttling.
    pub const RETRY: RetryPolicy =
        RetryPolicy { retries: 0, base: Duration::from_secs(1), cap: Duration::from_secs(1) };

    /// The retry settings for the transport to Entra: one token request per round, for the same
    /// reason as [`CanaryDependencies::RETRY`].
    pub fn token_retry() -> RetrySettings {
        let mut settings = RetrySettings::default();
        settings.attempts = 1;
        settings
    }
}

/// Checks the identity of one component until it is dropped.
#[derive(Debug)]
pub struct IdentityCanary {
    settings: CanarySettings,
    dependencies: CanaryDependencies,
    publisher: Option<FactsPublisher>,
}

impl IdentityCanary {
    /// Creates a canary that reports to metrics and the log.
    pub const fn new(settings: CanarySettings, dependencies: CanaryDependencies) -> Self {
        Self { settings, dependencies, publisher: None }
    }

    /// Also publishes the status report with this publisher.
    #[must_use]
    pub fn with_publisher(mut self, publisher: FactsPublisher) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// Runs proof rounds and probes until the future is dropped. An identity that does not work is
    /// reported and never ends the run.
    pub async fn run(self) {
        let Self { settings, dependencies, publisher } = self;
        // Dropping the set aborts the tasks, so they end with this future.
        let mut tasks = JoinSet::new();
        let (facts_sender, facts) = watch::channel(None);
        if let Some(publisher) = publisher {
            tasks.spawn(publisher.publish_changes(facts));
        }
        let mut reporter = IdentityReporter::new(&settings, dependencies.clone(), facts_sender);
        let watched = reporter.open_credential(&settings).await;
        dependencies.metrics.observe_credential(Arc::clone(&watched.credential), &settings.scope());
        let (sender, probed) = mpsc::channel(PROBE_QUEUE_SIZE);
        for probe in &settings.probes {
            let task = ProbeTask::new(probe.clone(), &settings, &dependencies);
            tasks.spawn(task.run(watched.clone(), sender.clone()));
        }
        drop(sender);
        ProofLoop::new(&settings, dependencies, watched).run(&mut reporter, probed).await;
    }
}

impl CanarySettings {
    /// The scope of the token that the canary keeps.
    fn scope(&self) -> String {
        self.call.as_ref().map_or_else(
            || lanyard_azure::ArmClient::scope(self.endpoints),
            |call| call.scope().to_owned(),
        )
    }

    /// The hops that a round proves.
    fn hops_to_prove(&self) -> Vec<Hop> {
        let call = self.call.as_ref().map(|_| Hop::Granted);
        [Hop::Credential, Hop::EntraToken].into_iter().chain(call).collect()
    }

    fn caller(
        &self,
        watched: &WatchedCredential,
        transport: &AzureTransport,
    ) -> AuthenticatedClient {
        let credential = Arc::clone(&watched.credential);
        AuthenticatedClient::new(self.scope(), credential, transport)
    }
}

/// Records the results of rounds and probes, and publishes the status report when it changes.
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

    /// Opens the credential file; retries until it succeeds.
    async fn open_credential(&mut self, settings: &CanarySettings) -> WatchedCredential {
        loop {
            match WatchedCredential::open(
                &settings.credential_location,
                &self.dependencies.token_transport,
            )
            .await
            {
                Ok(watched) => return watched,
                Err(error) => {
                    self.dependencies.metrics.record_hop_failure(Hop::Credential);
                    let now = self.now();
                    self.identity.record_hop(Hop::Credential, Err(error), now);
                    self.publish_facts();
                }
            }
            let pause = settings.interval.min(MAX_FILE_POLL_INTERVAL);
            self.dependencies.clock.sleep(period_with_jitter(pause, fastrand::f64())).await;
        }
    }

    fn record_probe(&mut self, report: ProbeReport) {
        self.dependencies.metrics.record_probe(report.kind, report.result());
        let now = self.now();
        self.identity.record_probe(report.kind, report.outcome, now);
        self.publish_facts();
    }

    /// Updates the gauges; logs and publishes the status report if it changed.
    fn publish_facts(&self) {
        self.dependencies.metrics.update_gauges(&self.identity);
        let facts = self.identity.facts();
        self.facts_sender.send_if_modified(|published| {
            if published.as_ref() == Some(&facts) {
                return false;
            }
            log_changes(published.as_ref(), &facts);
            *published = Some(facts);
            true
        });
    }
}

/// Logs what failed, recovered or changed between two reports.
fn log_changes(before: Option<&CanaryStatusReport>, now: &CanaryStatusReport) {
    let last_good_hop = now.last_good_hop.as_deref();
    match (&now.failure, before.and_then(|it| it.failure.as_ref())) {
        (Some(failure), before) if before != Some(failure) => {
            let (hop, code, hint) = (&failure.hop, &failure.code, &failure.hint);
            tracing::warn!(hop, code, hint, last_good_hop, "{}", failure.message);
        }
        (None, Some(healed)) => {
            tracing::info!(hop = healed.hop, last_good_hop, "the failure is resolved");
        }
        _ if before.and_then(|it| it.last_good_hop.as_deref()) != last_good_hop => {
            tracing::info!(last_good_hop, "the last successful hop changed");
        }
        _ => {}
    }
    match (&now.throttled, before.and_then(|it| it.throttled.as_ref())) {
        (Some(throttled), None) => {
            let (hop, code, message) = (&throttled.hop, &throttled.code, &throttled.message);
            tracing::warn!(hop, code, last_good_hop, "the service throttles requests: {message}");
        }
        (None, Some(ended)) => {
            tracing::info!(hop = ended.hop, "the service no longer throttles requests");
        }
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

/// The longest delay between two attempts to open a missing credential file.
const MAX_FILE_POLL_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_QUEUE_SIZE: usize = 4;

#[cfg(test)]
mod tests;
