//! The metric of dropped pod events.

use std::fmt;

use lanyard_telemetry::prometheus_client::collector::Collector;
use lanyard_telemetry::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use lanyard_telemetry::prometheus_client::metrics::MetricType;
use lanyard_telemetry::prometheus_client::metrics::counter::ConstCounter;

use super::NodeMetrics;

/// Exposes the counter of the event queue.
#[derive(Debug)]
pub(super) struct DroppedEventsCollector(pub(super) NodeMetrics);

impl Collector for DroppedEventsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(events) = self.0.0.events.get() else { return Ok(()) };
        let (name, help) = ("lanyard_node_events_dropped", "Pod events that were dropped");
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(events.dropped_events()).encode(metric)
    }
}
