//! What a canary counts.
//!
//! Every name begins with `lanyard_canary_`. Labels are bounded by their types; the one exception,
//! the thumbprint and client id of the loaded certificate, is a single series that changes with a
//! rotation. What can be read from the credential is read when the page is, so that a scrape between
//! two rounds sees how it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_credential::ReloadingCertificateCredential;
use lanyard_telemetry::label_values;
use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric,
};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::counter::{ConstCounter, Counter};
use lanyard_telemetry::prometheus_client::metrics::family::Family;
use lanyard_telemetry::prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use lanyard_telemetry::prometheus_client::metrics::info::Info;
use lanyard_telemetry::prometheus_client::registry::Registry;
use lanyard_vocabulary::{Component, Hop};
use parking_lot::Mutex;

use crate::credential::thumbprint;
use crate::identity::IdentityState;
use crate::probe::ProbeKind;

label_values! {
    /// What became of the granted call.
    pub(crate) enum CallResult {
        /// It was granted.
        Granted = "granted",
        /// The role does not grant it (403).
        Refused = "refused",
        /// The token was not taken (401).
        Unauthenticated = "unauthenticated",
        /// There was no token to send.
        NoToken = "no-token",
        /// The service asked to be left alone.
        Throttled = "throttled",
        /// No answer came.
        Unreachable = "unreachable",
        /// Another answer.
        Failed = "failed",
    }
}

label_values! {
    /// What became of a probe.
    pub(crate) enum ProbeResult {
        /// All is as expected.
        Good = "good",
        /// Something is not.
        Bad = "bad",
        /// Trouble on the way says nothing.
        Inconclusive = "inconclusive",
    }
}

label_values! {
    /// What became of telling the facts.
    pub(crate) enum AnnotationWriteResult {
        /// The annotation was written.
        Written = "written",
        /// It stood there already.
        Unchanged = "unchanged",
        /// It was not written.
        Failed = "failed",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CanaryHopLabels {
    hop: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CanaryCallLabels {
    result: CallResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    probe: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeResultLabels {
    probe: &'static str,
    result: ProbeResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnnotationWriteLabels {
    result: AnnotationWriteResult,
}

/// The numbers of a canary. Clones count together.
#[derive(Debug, Clone)]
pub struct CanaryMetrics(Arc<CanaryMetricFamilies>);

#[derive(Debug)]
struct CanaryMetricFamilies {
    component: Component,
    observed_credential: Mutex<Option<ObservedCredential>>,
    lapses: Counter,
    calls: Family<CanaryCallLabels, Counter>,
    failures: Family<CanaryHopLabels, Counter>,
    rotations: Counter,
    last_success: Gauge<f64, AtomicU64>,
    hop_good: Family<CanaryHopLabels, Gauge>,
    probe_good: Family<ProbeLabels, Gauge>,
    probes: Family<ProbeResultLabels, Counter>,
    annotation_writes: Family<AnnotationWriteLabels, Counter>,
    clock: SharedClock,
}

/// What the page reads while it is made.
#[derive(Debug)]
struct ObservedCredential {
    credential: Arc<ReloadingCertificateCredential>,
    scope: String,
    is_token_rejected: bool,
}

impl CanaryMetrics {
    /// Nothing is counted yet.
    pub fn new(component: Component, clock: SharedClock) -> Self {
        let families = CanaryMetricFamilies {
            component,
            observed_credential: Mutex::default(),
            lapses: Counter::default(),
            calls: Family::default(),
            failures: Family::default(),
            rotations: Counter::default(),
            last_success: Gauge::default(),
            hop_good: Family::default(),
            probe_good: Family::default(),
            probes: Family::default(),
            annotation_writes: Family::default(),
            clock,
        };
        // From the beginning on, so that a first failure is an increase and not a new series.
        for result in CallResult::ALL {
            drop(families.calls.get_or_create(&CanaryCallLabels { result: *result }));
        }
        for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
            drop(families.failures.get_or_create(&CanaryHopLabels { hop: hop.name() }));
        }
        Self(Arc::new(families))
    }

    /// Puts every number on a page.
    #[rustfmt::skip]
    pub fn register(&self, registry: &mut Registry) {
        let it = &self.0;
        let component = Info::new(vec![("component", it.component.name())]);
        registry.register("lanyard_canary", "Whose identity is proven", component);
        registry.register("lanyard_canary_lapses", "How often there was no token that is taken, after there had been one", it.lapses.clone());
        registry.register("lanyard_canary_calls", "Granted calls, by what became of them", it.calls.clone());
        registry.register("lanyard_canary_failures", "Tries that failed, by hop; those that are not told yet too", it.failures.clone());
        registry.register("lanyard_canary_rotations", "Newer credentials that were taken into use", it.rotations.clone());
        registry.register("lanyard_canary_last_success_timestamp_seconds", "When every hop was good last", it.last_success.clone());
        registry.register("lanyard_canary_hop_good", "Whether a hop is known to be good (1) or bad (0)", it.hop_good.clone());
        registry.register("lanyard_canary_probe_good", "Whether a probe is known to be good (1) or bad (0)", it.probe_good.clone());
        registry.register("lanyard_canary_probes", "Probes, by what became of them", it.probes.clone());
        registry.register("lanyard_canary_annotation_writes", "Facts told to the Kubernetes API", it.annotation_writes.clone());
        registry.register_collector(Box::new(CanaryStateCollector(self.clone())));
    }

    /// From now on the page reads this credential.
    pub(crate) fn observe_credential(
        &self,
        credential: Arc<ReloadingCertificateCredential>,
        scope: &str,
    ) {
        let held =
            ObservedCredential { credential, scope: scope.to_owned(), is_token_rejected: false };
        *self.0.observed_credential.lock() = Some(held);
    }

    /// Whether the service took the token that was sent last.
    pub(crate) fn record_token_acceptance(&self, taken: bool) {
        if let Some(held) = self.0.observed_credential.lock().as_mut() {
            held.is_token_rejected = !taken;
        }
    }

    /// Whether there is a token, and the service took it when it was sent last.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.0.observed_credential.lock().as_ref().is_some_and(ObservedCredential::is_authenticated)
    }

    pub(crate) fn record_lapse(&self) {
        self.0.lapses.inc();
    }

    pub(crate) fn record_call(&self, result: CallResult) {
        self.0.calls.get_or_create(&CanaryCallLabels { result }).inc();
    }

    pub(crate) fn record_hop_failure(&self, hop: Hop) {
        self.0.failures.get_or_create(&CanaryHopLabels { hop: hop.name() }).inc();
    }

    pub(crate) fn record_rotations(&self, newer: u64) {
        self.0.rotations.inc_by(newer);
    }

    pub(crate) fn record_probe(&self, kind: ProbeKind, result: ProbeResult) {
        let probe = kind.name();
        self.0.probes.get_or_create(&ProbeResultLabels { probe, result }).inc();
    }

    pub(crate) fn record_annotation_write(&self, result: AnnotationWriteResult) {
        self.0.annotation_writes.get_or_create(&AnnotationWriteLabels { result }).inc();
    }

    /// What is known now.
    pub(crate) fn update_gauges(&self, identity: &IdentityState) {
        for hop in identity.hops() {
            let labels = CanaryHopLabels { hop: hop.name() };
            match identity.is_hop_good(hop) {
                Some(good) => drop(self.0.hop_good.get_or_create(&labels).set(good.into())),
                None => drop(self.0.hop_good.remove(&labels)),
            }
        }
        for kind in [ProbeKind::Encryption, ProbeKind::Network] {
            if let Some(good) = identity.is_probe_good(kind) {
                let labels = ProbeLabels { probe: kind.name() };
                self.0.probe_good.get_or_create(&labels).set(good.into());
            }
        }
        if identity.is_proven() {
            self.0.last_success.set(unix_seconds(self.0.clock.now()));
        }
    }
}

impl ObservedCredential {
    fn is_authenticated(&self) -> bool {
        let tokens = self.credential.health().tokens;
        let is_held = |scope: &str| {
            tokens.scopes.iter().any(|held| held.scope == scope && held.seconds_left > 0)
        };
        !self.is_token_rejected && is_held(&self.scope)
    }
}

/// Seconds since the epoch, as Prometheus counts them.
fn unix_seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

/// What is read when the page is.
struct CanaryStateCollector(CanaryMetrics);

impl fmt::Debug for CanaryStateCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Page").finish_non_exhaustive()
    }
}

impl Collector for CanaryStateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let held = self.0.0.observed_credential.lock();
        let authenticated = held.as_ref().is_some_and(ObservedCredential::is_authenticated);
        encode_gauge(
            &mut encoder,
            "lanyard_canary_authenticated",
            "Whether a valid token is held, and was taken when it was sent last",
            if authenticated { 1.0 } else { 0.0 },
        )?;
        let Some(held) = held.as_ref() else { return Ok(()) };
        held.encode(&mut encoder)
    }
}

impl ObservedCredential {
    #[rustfmt::skip]
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let health = self.credential.health();
        let generation = self.credential.generation();
        encode_counter(encoder, "lanyard_canary_tokens", "Tokens that Entra issued", health.tokens.counts.issued)?;
        let token = health.tokens.scopes.iter().find(|held| held.scope == self.scope);
        if let Some(token) = token {
            encode_gauge(encoder, "lanyard_canary_token_expiry_timestamp_seconds", "When the held token expires", unix_seconds(token.expires_on))?;
        }
        encode_gauge(encoder, "lanyard_canary_credential_not_before_seconds", "From when on the loaded credential is valid", unix_seconds(generation.not_before()))?;
        encode_gauge(encoder, "lanyard_canary_credential_not_after_seconds", "When the loaded credential ends", unix_seconds(generation.expires_at()))?;
        if let Some(renew) = generation.timestamps().renew_after {
            encode_gauge(encoder, "lanyard_canary_credential_renew_after_seconds", "From when on a newer credential is to be expected", unix_seconds(renew))?;
        }
        let (client_id, thumbprint) = (generation.client_id().to_string(), thumbprint(&generation));
        let labels = [("client_id", client_id.as_str()), ("thumbprint", thumbprint.as_str())];
        let help = "The loaded certificate, by x5t#S256";
        let mut metric = encoder.encode_descriptor("lanyard_canary_credential_info", help, None, MetricType::Gauge)?;
        ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)
    }
}

fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), fmt::Error> {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn encode_counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), fmt::Error> {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(metric)
}
