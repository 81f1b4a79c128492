//! The metrics page for a monitoring system.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::process_metrics::{BuildInfo, ProcessMetrics};

/// All metrics of the process in text format.
#[derive(Clone)]
pub struct MetricsPage(Arc<Registry>);

impl MetricsPage {
    /// The content type of [`MetricsPage::render`].
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Builds a page of the metrics that `register` registers. The set of metrics is fixed; their
    /// values change.
    pub fn build(register: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::default();
        register(&mut registry);
        Self(Arc::new(registry))
    }

    /// Builds a page that also has the metrics of the process and the version of the program.
    pub fn of_process(version: &'static str, register: impl FnOnce(&mut Registry)) -> Self {
        Self::build(|registry| {
            register(registry);
            ProcessMetrics.register(registry);
            BuildInfo { version }.register(registry);
        })
    }

    /// The current values, in the `OpenMetrics` text format 1.0.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Encoding fails only if a collector returns an error.
        text::encode(&mut text, &self.0).unwrap_or_default();
        text
    }
}

impl fmt::Debug for MetricsPage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MetricsPage").finish_non_exhaustive()
    }
}
