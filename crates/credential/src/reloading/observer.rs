//! Tells the metrics what the credential file brings.

use std::sync::Arc;

use crate::file::LoadObserver;
use crate::generation::Generation;
use crate::loader::KeepReason;
use crate::metrics::MetricsHook;

/// Tells the metrics, and whoever else was to hear of it.
#[derive(Debug)]
pub(super) struct MetricsObserver {
    pub(super) metrics: Arc<dyn MetricsHook>,
    pub(super) next: Option<Arc<dyn LoadObserver>>,
}

impl LoadObserver for MetricsObserver {
    fn published(&self, generation: &Generation) {
        self.metrics.generation_loaded(generation.number());
        if let Some(next) = &self.next {
            next.published(generation);
        }
    }

    fn kept(&self, reason: &KeepReason) {
        self.metrics.generation_refused(reason.word());
        if let Some(next) = &self.next {
            next.kept(reason);
        }
    }
}
