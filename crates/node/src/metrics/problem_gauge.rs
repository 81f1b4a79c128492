//! Gauges for problems that do not stop the node.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;

/// A gauge that is 1 while a problem exists, else 0, evaluated when the metrics are scraped. It is absent
/// until a check is set.
#[derive(Clone)]
pub(super) struct ProblemGauge {
    name: &'static str,
    help: &'static str,
    check: Arc<OnceLock<Box<ProblemCheckFn>>>,
}

type ProblemCheckFn = dyn Fn() -> bool + Send + Sync;

impl ProblemGauge {
    pub(super) fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, check: Arc::default() }
    }

    /// Sets the check.
    pub(super) fn watch(&self, check: impl Fn() -> bool + Send + Sync + 'static) {
        // A process has one check; a second one is ignored.
        drop(self.check.set(Box::new(check)));
    }
}

impl Collector for ProblemGauge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(check) = self.check.get() else { return Ok(()) };
        let metric = encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(check())).encode(metric)
    }
}

impl fmt::Debug for ProblemGauge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Problem").field("name", &self.name).finish_non_exhaustive()
    }
}
