//! Metrics per SecretProviderClass: age and expiry of the content of its volumes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeMetric,
};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;

use crate::publisher::VolumeSnapshot;

/// Collects the state of every mounted volume per class, when the metrics are scraped. It stores nothing and
/// reads the states from the publisher.
#[derive(Clone)]
pub(super) struct ClassMetricsCollector {
    volumes: Arc<OnceLock<Box<VolumeStatesFn>>>,
    clock: SharedClock,
}

type VolumeStatesFn = dyn Fn() -> Vec<Arc<VolumeSnapshot>> + Send + Sync;

/// The metrics of one class: the worst values of its volumes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ClassMetricsRow {
    volumes: i64,
    failing: i64,
    memory: i64,
    age: Option<f64>,
    expires_in: Option<f64>,
}

impl ClassMetricsCollector {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { volumes: Arc::default(), clock }
    }

    /// Sets the function that returns the states of the volumes.
    pub(super) fn watch(
        &self,
        volumes: impl Fn() -> Vec<Arc<VolumeSnapshot>> + Send + Sync + 'static,
    ) {
        // A process has one publisher; a second one is ignored.
        drop(self.volumes.set(Box::new(volumes)));
    }

    /// Returns the rows by namespace and class. A node has room for some hundred pods; classes beyond the
    /// limit are merged into one row.
    fn rows(&self) -> BTreeMap<(String, String), ClassMetricsRow> {
        let now = self.clock.now();
        let mut rows = BTreeMap::new();
        let states = self.volumes.get().map(|volumes| volumes()).unwrap_or_default();
        for state in states {
            let mut key = (state.pod.namespace.clone(), state.class_name.clone());
            if rows.len() >= MAX_CLASSES && !rows.contains_key(&key) {
                key = (String::new(), OTHER.to_owned());
            }
            let row = ClassMetricsRow::of(&state, now);
            rows.entry(key)
                .and_modify(|it: &mut ClassMetricsRow| *it = it.merge_worst(row))
                .or_insert(row);
        }
        rows
    }
}

impl ClassMetricsRow {
    fn of(state: &VolumeSnapshot, now: Timestamp) -> Self {
        let ends = state.objects.iter().filter_map(|object| object.timestamps.not_after);
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
        Self {
            volumes: 1,
            failing: state.last_error.is_some().into(),
            memory: state.memory.try_into().unwrap_or(i64::MAX),
            age: state
                .history
                .last_success_started_at()
                .map(|checked| seconds(checked, now).max(0.0)),
            expires_in: ends.min().map(|end| seconds(now, end)),
        }
    }

    fn merge_worst(self, other: Self) -> Self {
        let ends = self.expires_in.into_iter().chain(other.expires_in);
        Self {
            volumes: self.volumes + other.volumes,
            failing: self.failing + other.failing,
            memory: self.memory.saturating_add(other.memory),
            age: self.age.into_iter().chain(other.age).reduce(f64::max),
            expires_in: ends.reduce(f64::min),
        }
    }
}

impl fmt::Debug for ClassMetricsCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Classes").finish_non_exhaustive()
    }
}

impl Collector for ClassMetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.rows();
        let mut page = GaugeEncoder { encoder: &mut encoder, rows: &rows };
        page.gauge("lanyard_node_content_age_seconds", AGE_HELP, |row| row.age)?;
        page.gauge("lanyard_node_expires_in_seconds", EXPIRES_HELP, |row| row.expires_in)?;
        page.gauge("lanyard_node_volumes", "Mounted volumes", |row| Some(row.volumes))?;
        page.gauge("lanyard_node_volumes_failing", FAILING_HELP, |row| Some(row.failing))?;
        page.gauge("lanyard_node_volumes_memory_bytes", MEMORY_HELP, |row| Some(row.memory))
    }
}

struct GaugeEncoder<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    rows: &'a BTreeMap<(String, String), ClassMetricsRow>,
}

impl GaugeEncoder<'_, '_> {
    fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: impl Fn(&ClassMetricsRow) -> Option<V>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((namespace, class), row) in self.rows {
            let Some(value) = value(row) else { continue };
            let labels = [("namespace", namespace.as_str()), ("class", class.as_str())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

const AGE_HELP: &str = "Seconds since the last successful poll of the volumes of a class";
const EXPIRES_HELP: &str = "Seconds until the earliest expiry of the content of a class";
const FAILING_HELP: &str = "Mounted volumes whose last poll for newer content failed";
const MEMORY_HELP: &str = "Bytes of memory used by the mounted volumes of a class";
const MAX_CLASSES: usize = 500;
const OTHER: &str = "other";
