//! What the operator counts. Every label is bounded: an error is its category, never its text.

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

/// The numbers of the operator. Clones count together.
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
    /// How something is written.
    pub(crate) enum WriteVerb {
        /// It was not there.
        Create = "create",
        /// It was otherwise.
        Apply = "apply",
        /// It was too much.
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
    /// Puts every number on a page.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let it = &self.0;
        registry.register(
            "lanyard_operator_reconciles",
            "Looks at hosted clusters, by what they came to",
            it.reconciles.clone(),
        );
        registry.register(
            "lanyard_operator_reconcile_duration_seconds",
            "Seconds of a look at a hosted cluster",
            it.reconcile_duration.clone(),
        );
        registry.register(
            "lanyard_operator_writes",
            "Writes to the Kubernetes API, by what they came to",
            it.writes.clone(),
        );
        registry.register(
            "lanyard_operator_watch_failures",
            "Watches that broke or could not begin",
            it.watch_failures.clone(),
        );
        registry.register(
            "lanyard_operator_lists",
            "Lists of everything of a kind: at the start, and where a watch cannot go on",
            it.lists.clone(),
        );
        registry.register(
            "lanyard_operator_events_dropped",
            "Events that were too many to be told",
            it.events_dropped.clone(),
        );
    }

    /// A look at a cluster ended with this: `good`, or the category of the error.
    pub(crate) fn record_reconcile(&self, result: &'static str, took: Duration) {
        self.0.reconciles.get_or_create(&ReconcileResultLabels { result }).inc();
        self.0.reconcile_duration.observe(took.as_secs_f64());
    }

    /// Something was written, or was to be.
    pub(crate) fn record_write(
        &self,
        kind: &'static str,
        verb: WriteVerb,
        error: Option<&ApiError>,
    ) {
        let result = error.map_or("good", error_category);
        self.0.writes.get_or_create(&ApiWriteLabels { kind, verb, result }).inc();
    }

    /// A watch broke, or could not begin.
    pub(crate) fn record_watch_failure(&self, kind: &'static str) {
        self.0.watch_failures.get_or_create(&WatchedKindLabels { kind }).inc();
    }

    /// Everything of a kind is listed.
    pub(crate) fn record_list(&self, kind: &'static str) {
        self.0.lists.get_or_create(&WatchedKindLabels { kind }).inc();
    }

    /// An event was not told.
    pub(crate) fn record_dropped_event(&self) {
        self.0.events_dropped.inc();
    }
}

/// What the operator knows, told when the page is read. Clusters that another replica leads are
/// told by that one.
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
                "Hosted clusters that are known",
                count(self.stores.clusters().len()),
            ),
            (
                "lanyard_operator_shards_led",
                "Shards that this replica leads",
                count(self.lease_terms.led_count()),
            ),
            (
                "lanyard_operator_content_bytes",
                "Bytes of objects that are kept to be compared",
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
            ("lanyard_operator_kind_usable", "Whether a kind is served to the operator");
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
            let told = self.stores.identities(&key).and_then(|told| told.status);
            let samples = told.map(|status| identity_samples(&status, &self.policy, now));
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
        formatter.debug_struct("Knowledge").finish_non_exhaustive()
    }
}

/// From a look at what is settled to a look that makes everything.
const DURATION_BUCKETS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
