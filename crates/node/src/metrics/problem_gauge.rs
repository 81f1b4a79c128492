//! What is amiss though the node does its work.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;

/// 1 while something is amiss, else 0: asks whoever knows when the page is read. It is not on the
/// page while there is nobody to ask.
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

    /// Asks this from now on.
    pub(super) fn watch(&self, look: impl Fn() -> bool + Send + Sync + 'static) {
        // There is one to ask in a process; a second one is not told.
        drop(self.check.set(Box::new(look)));
    }
}

impl Collector for ProblemGauge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(look) = self.check.get() else { return Ok(()) };
        let metric = encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(look())).encode(metric)
    }
}

impl fmt::Debug for ProblemGauge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Problem").field("name", &self.name).finish_non_exhaustive()
    }
}
