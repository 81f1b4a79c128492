//! The page that a monitoring system reads.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// Every metric of the process, as text.
#[derive(Clone)]
pub struct MetricsPage(Arc<Registry>);

impl MetricsPage {
    /// The type of [`MetricsPage::render`], for an HTTP header.
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// A page of what `register` registers. Its content is fixed from then on; values change.
    pub fn build(register: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::default();
        register(&mut registry);
        Self(Arc::new(registry))
    }

    /// The current values, in the `OpenMetrics` text format 1.0.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Only a collector that fails to write into memory could fail here.
        text::encode(&mut text, &self.0).unwrap_or_default();
        text
    }
}

impl fmt::Debug for MetricsPage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MetricsPage").finish_non_exhaustive()
    }
}
