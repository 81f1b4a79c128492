//! The canary: rounds of proof, and who hears of them.

mod prober;
mod round;

use std::sync::Arc;
use std::time::Duration;

use lanyard_api::canary_facts::{CanaryFacts, ProbeFacts};
use lanyard_azure::{Caller, RetryPolicy, Transport};
use lanyard_clock::SharedClock;
use lanyard_credential::{RetrySettings, TokenTransport};
use lanyard_vocabulary::cloud::Endpoints;
use lanyard_vocabulary::{Component, Hop};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::prober::{Prober, Probing};
use self::round::Rounds;
use crate::annotation::Telling;
use crate::cadence::jittered;
use crate::call::GrantedCall;
use crate::credential::Followed;
use crate::identity::Identity;
use crate::metrics::CanaryMetrics;
use crate::place::CredentialPlace;
use crate::probe::ProbeSettings;
use crate::track::{Moment, Patience};

/// What a canary proves, and how often.
#[derive(Debug, Clone)]
pub struct CanarySettings {
    /// Whose identity.
    pub component: Component,
    /// The cloud.
    pub endpoints: &'static Endpoints,
    /// How the credential file is found.
    pub place: CredentialPlace,
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
    pub patience: Patience,
}

/// What a canary works with.
#[derive(Debug, Clone)]
pub struct CanaryParts {
    /// The time.
    pub clock: SharedClock,
    /// The way to Azure, best with [`CanaryParts::RETRY`].
    pub transport: Transport,
    /// The way to Entra, best with [`CanaryParts::token_retry`].
    pub token_transport: TokenTransport,
    /// Who counts.
    pub metrics: CanaryMetrics,
}

impl CanaryParts {
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
pub struct Canary {
    settings: CanarySettings,
    parts: CanaryParts,
    telling: Option<Telling>,
}

impl Canary {
    /// A canary that tells metrics and the log.
    pub const fn new(settings: CanarySettings, parts: CanaryParts) -> Self {
        Self { settings, parts, telling: None }
    }

    /// The same, which tells its facts too.
    #[must_use]
    pub fn telling(mut self, telling: Telling) -> Self {
        self.telling = Some(telling);
        self
    }

    /// Proves until it is dropped. A broken identity is no reason to end: it is what a canary is for.
    pub async fn run(self) {
        let Self { settings, parts, telling } = self;
        // They end with this set, and so with this future.
        let mut tasks = JoinSet::new();
        let (told, facts) = watch::channel(None);
        if let Some(telling) = telling {
            tasks.spawn(telling.follow(facts));
        }
        let mut board = Board::new(&settings, parts.clone(), told);
        let followed = board.open(&settings).await;
        parts.metrics.holds(Arc::clone(&followed.credential), &settings.scope());
        let (sender, probed) = mpsc::channel(PROBES_WAITING);
        for probe in &settings.probes {
            let prober = Prober::new(probe.clone(), &settings, &parts);
            tasks.spawn(prober.run(followed.clone(), sender.clone()));
        }
        drop(sender);
        Rounds::new(&settings, parts, followed).run(&mut board, probed).await;
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
    fn hops(&self) -> Vec<Hop> {
        let call = self.call.as_ref().map(|_| Hop::Granted);
        [Hop::Credential, Hop::EntraToken].into_iter().chain(call).collect()
    }

    fn caller(&self, followed: &Followed, transport: &Transport) -> Caller {
        let credential = Arc::clone(&followed.credential);
        Caller::new(self.scope(), credential, transport)
    }
}

/// What is known, and how it is published.
#[derive(Debug)]
struct Board {
    identity: Identity,
    parts: CanaryParts,
    told: watch::Sender<Option<CanaryFacts>>,
}

impl Board {
    fn new(
        settings: &CanarySettings,
        parts: CanaryParts,
        told: watch::Sender<Option<CanaryFacts>>,
    ) -> Self {
        let identity = Identity::new(settings.component, &settings.hops(), settings.patience);
        Self { identity, parts, told }
    }

    fn now(&self) -> Moment {
        let clock = &self.parts.clock;
        Moment { wall: clock.now(), monotonic: clock.monotonic() }
    }

    /// Opens the credential file, however long it takes until it can be.
    async fn open(&mut self, settings: &CanarySettings) -> Followed {
        loop {
            match Followed::open(&settings.place, &self.parts.token_transport).await {
                Ok(followed) => return followed,
                Err(trouble) => {
                    self.parts.metrics.failed(Hop::Credential);
                    let now = self.now();
                    self.identity.walked(Hop::Credential, Err(trouble), now);
                    self.publish();
                }
            }
            let pause = settings.interval.min(LONGEST_WAIT_FOR_FILE);
            self.parts.clock.sleep(jittered(pause, fastrand::f64())).await;
        }
    }

    /// What one of the probes came to.
    fn probed(&mut self, probing: Probing) {
        self.parts.metrics.probed(probing.kind, probing.result());
        let now = self.now();
        self.identity.probed(probing.kind, probing.outcome, now);
        self.publish();
    }

    /// Publishes what is known where it is something new.
    fn publish(&self) {
        self.parts.metrics.show(&self.identity);
        let facts = self.identity.facts();
        self.told.send_if_modified(|told| {
            if told.as_ref() == Some(&facts) {
                return false;
            }
            log(told.as_ref(), &facts);
            *told = Some(facts);
            true
        });
    }
}

/// Says in the log what changed for the worse or the better.
fn log(before: Option<&CanaryFacts>, now: &CanaryFacts) {
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
        let is_same = |it: &ProbeFacts| it == probe;
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
const LONGEST_WAIT_FOR_FILE: Duration = Duration::from_secs(10);
const PROBES_WAITING: usize = 4;

#[cfg(test)]
mod tests;
