//! How old the content of each class is, and how long it stays valid.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeMetric,
};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;
use parking_lot::Mutex;

use crate::reporter::VolumeReport;

/// The times of what one volume holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct VolumeTimes {
    namespace: String,
    class: String,
    /// When it was last known to hold the newest content.
    checked: Option<Timestamp>,
    /// When the first of what it holds ends to be valid.
    not_after: Option<Timestamp>,
    /// Whether the last look failed.
    failing: bool,
}

/// The times of every mounted volume, told for each class when the page is read.
#[derive(Debug, Clone)]
pub(super) struct Classes {
    volumes: Arc<Mutex<BTreeMap<PathBuf, VolumeTimes>>>,
    clock: SharedClock,
}

/// What the page tells about one class: the worst of its volumes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ClassRow {
    volumes: i64,
    failing: i64,
    age: Option<f64>,
    expires_in: Option<f64>,
}

impl Classes {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { volumes: Arc::default(), clock }
    }

    /// The volume holds the newest content.
    pub(super) fn checked(&self, target: &Path, namespace: &str, class: &str) {
        let now = self.clock.now();
        self.update(target, (namespace, class), |times| times.checked = Some(now));
    }

    pub(super) fn reported(&self, report: &VolumeReport) {
        let objects = &report.facts.objects;
        let not_after = objects.iter().filter_map(|object| object.not_after).min();
        let failing = report.facts.outcome.is_some();
        self.update(&report.target, (&report.pod.namespace, &report.class_name), |times| {
            times.not_after = not_after;
            times.failing = failing;
        });
    }

    fn update(
        &self,
        target: &Path,
        (namespace, class): (&str, &str),
        change: impl FnOnce(&mut VolumeTimes),
    ) {
        let mut volumes = self.volumes.lock();
        let times = volumes.entry(target.to_owned()).or_default();
        namespace.clone_into(&mut times.namespace);
        class.clone_into(&mut times.class);
        change(times);
    }

    pub(super) fn remove(&self, target: &Path) {
        self.volumes.lock().remove(target);
    }

    /// The rows by namespace and class. A node has room for some hundred pods; should there be
    /// more classes than that, the rest are one row.
    fn rows(&self) -> BTreeMap<(String, String), ClassRow> {
        let now = self.clock.now();
        let mut rows = BTreeMap::new();
        for times in self.volumes.lock().values() {
            let mut key = (times.namespace.clone(), times.class.clone());
            if rows.len() >= MOST_CLASSES && !rows.contains_key(&key) {
                key = (String::new(), OTHER.to_owned());
            }
            let row = ClassRow::of(times, now);
            rows.entry(key).and_modify(|it: &mut ClassRow| *it = it.worse(row)).or_insert(row);
        }
        rows
    }
}

impl ClassRow {
    fn of(times: &VolumeTimes, now: Timestamp) -> Self {
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
        Self {
            volumes: 1,
            failing: times.failing.into(),
            age: times.checked.map(|checked| seconds(checked, now).max(0.0)),
            expires_in: times.not_after.map(|end| seconds(now, end)),
        }
    }

    fn worse(self, other: Self) -> Self {
        let ends = self.expires_in.into_iter().chain(other.expires_in);
        Self {
            volumes: self.volumes + other.volumes,
            failing: self.failing + other.failing,
            age: self.age.into_iter().chain(other.age).reduce(f64::max),
            expires_in: ends.reduce(f64::min),
        }
    }
}

impl Collector for Classes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.rows();
        let mut page = Page { encoder: &mut encoder, rows: &rows };
        page.gauge("lanyard_node_content_age_seconds", AGE_HELP, |row| row.age)?;
        page.gauge("lanyard_node_expires_in_seconds", EXPIRES_HELP, |row| row.expires_in)?;
        page.gauge("lanyard_node_volumes", "Mounted volumes", |row| Some(row.volumes))?;
        page.gauge("lanyard_node_volumes_failing", FAILING_HELP, |row| Some(row.failing))
    }
}

struct Page<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    rows: &'a BTreeMap<(String, String), ClassRow>,
}

impl Page<'_, '_> {
    fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: impl Fn(&ClassRow) -> Option<V>,
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

const AGE_HELP: &str = "Seconds since the volumes of a class were known to hold the newest content";
const EXPIRES_HELP: &str = "Seconds until the first content of a class ends to be valid";
const FAILING_HELP: &str = "Mounted volumes whose last look for newer content failed";
const MOST_CLASSES: usize = 500;
const OTHER: &str = "other";
