//! The metrics of a canary.
//!
//! Every name begins with `lanyard_canary_`. The types of the labels bound their values, except for
//! the thumbprint and client id of the loaded certificate: a single series that changes with a
//! rotation. A scrape reads the state of the credential itself, so that it is current between two
//! rounds, too.

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
    /// The result of a granted call.
    pub(crate) enum CallResult {
        /// The role allows the call.
        Granted = "granted",
        /// The role does not allow the call (403).
        Refused = "refused",
        /// The service rejected the token (401).
        Unauthenticated = "unauthenticated",
        /// There was no token for the call.
        NoToken = "no-token",
        /// The service throttled the call.
        Throttled = "throttled",
        /// The service did not answer.
        Unreachable = "unreachable",
        /// The service gave another answer.
        Failed = "failed",
    }
}

label_values! {
    pub(crate) enum ProbeResult {
        /// The resources are as expected.
        Good = "good",
        /// The probe failed with a definitive error.
        Bad = "bad",
        /// A transient error or throttling proves nothing.
        Inconclusive = "inconclusive",
    }
}

label_values! {
    /// The result of publishing the status report.
    pub(crate) enum AnnotationWriteResult {
        /// The annotation was written.
        Written = "written",
        /// The annotation contains this report already.
        Unchanged = "unchanged",
        /// The write failed.
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

/// The metrics of a canary. Clones share their values.
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

/// The credential whose state a scrape reads.
#[derive(Debug)]
struct ObservedCredential {
    credential: Arc<ReloadingCertificateCredential>,
    scope: String,
    is_token_rejected: bool,
}

impl CanaryMetrics {
    /// Creates the metrics with all counters at zero.
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
        // Create the series now, so that the first failure is an increase and not a new series.
        for result in CallResult::ALL {
            drop(families.calls.get_or_create(&CanaryCallLabels { result: *result }));
        }
        for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
            drop(families.failures.get_or_create(&CanaryHopLabels { hop: hop.name() }));
        }
        Self(Arc::new(families))
    }

    /// Registers the metrics.
    #[rustfmt::skip]
    pub fn register(&self, registry: &mut Registry) {
        let it = &self.0;
        let component = Info::new(vec![("component", it.component.name())]);
        registry.register("lanyard_canary", "The component whose identity the canary checks", component);
        registry.register("lanyard_canary_lapses", "How often the canary lost a valid and accepted token", it.lapses.clone());
        registry.register("lanyard_canary_calls", "Granted calls, by result", it.calls.clone());
        registry.register("lanyard_canary_failures", "Failed tries by hop, including failures that are not reported yet", it.failures.clone());
        registry.register("lanyard_canary_rotations", "Newer credentials that the canary loaded", it.rotations.clone());
        registry.register("lanyard_canary_last_success_timestamp_seconds", "Time of the last round in which every hop succeeded", it.last_success.clone());
        registry.register("lanyard_canary_hop_good", "Whether a hop works (1) or fails (0); absent while unknown", it.hop_good.clone());
        registry.register("lanyard_canary_probe_good", "Whether a probe succeeds (1) or fails (0); absent while unknown", it.probe_good.clone());
        registry.register("lanyard_canary_probes", "Probes, by result", it.probes.clone());
        registry.register("lanyard_canary_annotation_writes", "Writes of the status report to the pod's annotation, by result", it.annotation_writes.clone());
        registry.register_collector(Box::new(CanaryStateCollector(self.clone())));
    }

    /// Sets the credential whose state scrapes read from now on.
    pub(crate) fn observe_credential(
        &self,
        credential: Arc<ReloadingCertificateCredential>,
        scope: &str,
    ) {
        let observed =
            ObservedCredential { credential, scope: scope.to_owned(), is_token_rejected: false };
        *self.0.observed_credential.lock() = Some(observed);
    }

    /// Records whether the service accepted the token of the last call.
    pub(crate) fn record_token_acceptance(&self, accepted: bool) {
        if let Some(observed) = self.0.observed_credential.lock().as_mut() {
            observed.is_token_rejected = !accepted;
        }
    }

    /// Whether a token is cached, and the service did not reject it when it was last sent.
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

    /// Updates the gauges from the state of the identity.
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
            tokens.scopes.iter().any(|token| token.scope == scope && token.seconds_left > 0)
        };
        !self.is_token_rejected && is_held(&self.scope)
    }
}

/// Converts to seconds since the Unix epoch.
fn unix_seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

/// Reads the state of the credential when metrics are scraped.
struct CanaryStateCollector(CanaryMetrics);

impl fmt::Debug for CanaryStateCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("CanaryStateCollector").finish_non_exhaustive()
    }
}

impl Collector for CanaryStateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let observed = self.0.0.observed_credential.lock();
        let authenticated = observed.as_ref().is_some_and(ObservedCredential::is_authenticated);
        encode_gauge(
            &mut encoder,
            "lanyard_canary_authenticated",
            "Whether the canary has a valid token that the service accepted when it was last sent",
            if authenticated { 1.0 } else { 0.0 },
        )?;
        let Some(observed) = observed.as_ref() else { return Ok(()) };
        observed.encode(&mut encoder)
    }
}

impl ObservedCredential {
    #[rustfmt::skip]
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let health = self.credential.health();
        let generation = self.credential.generation();
        encode_counter(encoder, "lanyard_canary_tokens", "Tokens that Entra issued", health.tokens.counts.issued)?;
        let token = health.tokens.scopes.iter().find(|token| token.scope == self.scope);
        if let Some(token) = token {
            encode_gauge(encoder, "lanyard_canary_token_expiry_timestamp_seconds", "When the cached token expires", unix_seconds(token.expires_on))?;
        }
        encode_gauge(encoder, "lanyard_canary_credential_not_before_seconds", "Start of the validity of the loaded credential", unix_seconds(generation.not_before()))?;
        encode_gauge(encoder, "lanyard_canary_credential_not_after_seconds", "When the loaded credential expires", unix_seconds(generation.expires_at()))?;
        if let Some(renew) = generation.timestamps().renew_after {
            encode_gauge(encoder, "lanyard_canary_credential_renew_after_seconds", "Time after which a newer credential is expected", unix_seconds(renew))?;
        }
        let (client_id, thumbprint) = (generation.client_id().to_string(), thumbprint(&generation));
        let labels = [("client_id", client_id.as_str()), ("thumbprint", thumbprint.as_str())];
        let help = "The loaded certificate: client id and x5t#S256";
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
