//! Metrics of the memory of all volumes together.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;

use crate::publisher::NodeMemoryUsage;

/// Reads the memory usage from the publisher when the metrics are scraped.
#[derive(Clone, Default)]
pub(super) struct MemoryMetricsCollector(Arc<OnceLock<Box<VolumesMemoryFn>>>);

type VolumesMemoryFn = dyn Fn() -> NodeMemoryUsage + Send + Sync;

impl MemoryMetricsCollector {
    /// Sets the function that returns the memory usage.
    pub(super) fn watch(&self, memory: impl Fn() -> NodeMemoryUsage + Send + Sync + 'static) {
        // A process has one publisher; a second one is ignored.
        drop(self.0.set(Box::new(memory)));
    }
}

impl fmt::Debug for MemoryMetricsCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Collector for MemoryMetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(usage) = self.0.get() else { return Ok(()) };
        let NodeMemoryUsage { used, read_or_cached: read, limit } = usage();
        let rows = [
            ("lanyard_node_volumes_memory_used_bytes", USED_HELP, used),
            ("lanyard_node_volumes_memory_read_bytes", READ_HELP, read),
            ("lanyard_node_volumes_memory_limit_bytes", LIMIT_HELP, limit),
        ];
        for (name, help, bytes) in rows {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            let bytes: i64 = bytes.try_into().unwrap_or(i64::MAX);
            ConstGauge::new(bytes).encode(metric)?;
        }
        Ok(())
    }
}

const USED_HELP: &str =
    "Bytes of memory used by or reserved for all volumes, including reads and caches";
const READ_HELP: &str =
    "Bytes of the used volume memory that are held by reads in progress and caches";
const LIMIT_HELP: &str = "Limit of the memory of all volumes, in bytes";
