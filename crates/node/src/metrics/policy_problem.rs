//! Whether the policy file is the policy in use.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;

use crate::policy::PolicyKeeper;

/// Asks whoever has the policy when the page is read.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicyProblem(Arc<OnceLock<Arc<PolicyKeeper>>>);

impl PolicyProblem {
    /// Asks here from now on.
    pub(super) fn watch(&self, keeper: Arc<PolicyKeeper>) {
        // There is one policy in a process; a second one is not told.
        drop(self.0.set(keeper));
    }
}

impl Collector for PolicyProblem {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(keeper) = self.0.get() else { return Ok(()) };
        let metric = encoder.encode_descriptor(NAME, HELP, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(keeper.problem().is_some())).encode(metric)
    }
}

const NAME: &str = "lanyard_node_policy_problem";
const HELP: &str = "1 while the policy file cannot be used and the one before it is in use, else 0";
