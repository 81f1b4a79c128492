//! How much memory all volumes hold together.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::gauge::ConstGauge;

use crate::publisher::NodeMemoryUsage;

/// Asks whoever has the volumes when the page is read.
#[derive(Clone, Default)]
pub(super) struct MemoryMetricsCollector(Arc<OnceLock<Box<VolumesMemoryFn>>>);

type VolumesMemoryFn = dyn Fn() -> NodeMemoryUsage + Send + Sync;

impl MemoryMetricsCollector {
    /// Asks here from now on.
    pub(super) fn watch(&self, memory: impl Fn() -> NodeMemoryUsage + Send + Sync + 'static) {
        // There is one publisher in a process; a second one is not told.
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
        let Some(look) = self.0.get() else { return Ok(()) };
        let NodeMemoryUsage { used, read_or_cached: read, limit } = look();
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
    "Bytes of memory that all volumes hold together or are about to, and that was read for them";
const READ_HELP: &str = "Bytes of it that are read and not written, or cached";
const LIMIT_HELP: &str = "Bytes of memory that all volumes may hold together";
