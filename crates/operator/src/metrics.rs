//! The metrics of the operator. All label values are bounded: an error appears as its category.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_desired::forecast::RenewalPolicy;
use lanyard_desired::metrics::{IdentityMetric, METRICS, identity_samples};
use lanyard_kubernetes::ApiError;
use lanyard_telemetry::label_values;
use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric,
};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::counter::Counter;
use lanyard_telemetry::prometheus_client::metrics::family::Family;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;
use lanyard_telemetry::prometheus_client::metrics::histogram::Histogram;
use lanyard_telemetry::prometheus_client::registry::Registry;

use crate::error::error_category;
use crate::lease::LeaseTerms;
use crate::queue::ReconcileQueue;
use crate::settings::OperatorRole;
use crate::store::{KindState, WatchStores};
use crate::watched_kinds::WatchedKind;

/// The metrics of the operator. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperatorMetrics(Arc<OperatorMetricFamilies>);

#[derive(Debug)]
struct OperatorMetricFamilies {
    reconciles: Family<ReconcileResultLabels, Counter>,
    reconcile_duration: Histogram,
    writes: Family<ApiWriteLabels, Counter>,
    watch_failures: Family<WatchedKindLabels, Counter>,
    lists: Family<WatchedKindLabels, Counter>,
    events_dropped: Counter,
}

label_values! {
    pub(crate) enum WriteVerb {
        /// The object did not exist.
        Create = "create",
        /// The object differed.
        Apply = "apply",
        /// The object is no longer desired.
        Delete = "delete",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiWriteLabels {
    kind: &'static str,
    verb: WriteVerb,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchedKindLabels {
    kind: &'static str,
}

impl Default for OperatorMetricFamilies {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            reconcile_duration: Histogram::new(DURATION_BUCKETS),
            writes: Family::default(),
            watch_failures: Family::default(),
            lists: Family::default(),
            events_dropped: Counter::default(),
        }
    }
}

impl OperatorMetrics {
    /// Registers all metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let it = &self.0;
        registry.register(
            "lanyard_operator_reconciles",
            "Reconciliations of hosted clusters, by result",
            it.reconciles.clone(),
        );
        registry.register(
            "lanyard_operator_reconcile_duration_seconds",
            "Duration of the reconciliation of a hosted cluster in seconds",
            it.reconcile_duration.clone(),
        );
        registry.register(
            "lanyard_operator_writes",
            "Writes to the Kubernetes API, by result",
            it.writes.clone(),
        );
        registry.register(
            "lanyard_operator_watch_failures",
            "Lists and watches that failed",
            it.watch_failures.clone(),
        );
        registry.register(
            "lanyard_operator_lists",
            "Full lists of a kind, at the start and when a watch cannot resume",
            it.lists.clone(),
        );
        registry.register(
            "lanyard_operator_events_dropped",
            "Events dropped because of the budget of a cluster or an API error",
            it.events_dropped.clone(),
        );
    }

    /// Counts a reconciliation with its result, `good` or the category of the error, and its duration.
    pub(crate) fn record_reconcile(&self, result: &'static str, took: Duration) {
        self.0.reconciles.get_or_create(&ReconcileResultLabels { result }).inc();
        self.0.reconcile_duration.observe(took.as_secs_f64());
    }

    /// Counts a write, successful or not.
    pub(crate) fn record_write(
        &self,
        kind: &'static str,
        verb: WriteVerb,
        error: Option<&ApiError>,
    ) {
        let result = error.map_or("good", error_category);
        self.0.writes.get_or_create(&ApiWriteLabels { kind, verb, result }).inc();
    }

    /// Counts a watch that failed or could not start.
    pub(crate) fn record_watch_failure(&self, kind: &'static str) {
        self.0.watch_failures.get_or_create(&WatchedKindLabels { kind }).inc();
    }

    /// Counts the start of a list of a kind.
    pub(crate) fn record_list(&self, kind: &'static str) {
        self.0.lists.get_or_create(&WatchedKindLabels { kind }).inc();
    }

    /// Counts an event that was not emitted.
    pub(crate) fn record_dropped_event(&self) {
        self.0.events_dropped.inc();
    }
}

/// Collects the state of the operator at scrape time. Each replica exports only the identities of the
/// clusters that it leads.
pub(crate) struct OperatorStateCollector {
    pub(crate) stores: Arc<WatchStores>,
    pub(crate) lease_terms: LeaseTerms,
    pub(crate) queue: ReconcileQueue,
    pub(crate) role: OperatorRole,
    pub(crate) policy: RenewalPolicy,
    pub(crate) clock: SharedClock,
}

impl OperatorStateCollector {
    fn gauges(&self) -> [(&'static str, &'static str, f64); 4] {
        let count = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        [
            (
                "lanyard_operator_queue_depth",
                "Hosted clusters that are due and wait for a worker",
                count(self.queue.due_count()),
            ),
            (
                "lanyard_operator_hosted_clusters",
                "Hosted clusters in the cache",
                count(self.stores.clusters().len()),
            ),
            (
                "lanyard_operator_shards_led",
                "Shards that this replica leads",
                count(self.lease_terms.led_count()),
            ),
            (
                "lanyard_operator_content_bytes",
                "Bytes of object content cached for comparison",
                count(self.stores.content_bytes()),
            ),
        ]
    }
}

impl Collector for OperatorStateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, value) in self.gauges() {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        let (name, help) =
            ("lanyard_operator_kind_usable", "Whether the operator can list and watch a kind");
        let mut usable = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for kind in WatchedKind::of(self.role) {
            let is_usable = matches!(self.stores.kind_state(kind), KindState::Listed);
            let labels = WatchedKindLabels { kind: kind.name() };
            ConstGauge::new(f64::from(u8::from(is_usable)))
                .encode(usable.encode_family(&labels)?)?;
        }
        let now = self.clock.now();
        let mut rows = Vec::new();
        for key in self.stores.clusters() {
            if self.lease_terms.fencing_token(&key).is_none() {
                continue;
            }
            let status = self.stores.identities_report(&key).and_then(|report| report.status);
            let samples = status.map(|status| identity_samples(&status, &self.policy, now));
            rows.extend(samples.into_iter().flatten().map(|sample| (key.clone(), sample)));
        }
        for metric in METRICS {
            let IdentityMetric { name, help, label, .. } = *metric;
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (key, sample) in
                rows.iter().filter(|(_, sample)| std::ptr::eq(sample.metric, metric))
            {
                let mut labels =
                    vec![("namespace", key.namespace()), ("hosted_cluster", key.name())];
                labels.extend(label.zip(sample.label.as_deref()));
                ConstGauge::new(sample.value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for OperatorStateCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OperatorStateCollector").finish_non_exhaustive()
    }
}

/// From a reconciliation of a cluster in sync to one that creates all objects.
const DURATION_BUCKETS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
