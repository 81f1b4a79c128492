//! Reports load results as metrics.

use std::sync::Arc;

use crate::file::LoadObserver;
use crate::generation::CredentialGeneration;
use crate::loader::KeepReason;
use crate::metrics::MetricsHook;

/// Reports load results to the metrics hook and to the caller's observer.
#[derive(Debug)]
pub(super) struct MetricsLoadObserver {
    pub(super) metrics: Arc<dyn MetricsHook>,
    pub(super) next: Option<Arc<dyn LoadObserver>>,
}

impl LoadObserver for MetricsLoadObserver {
    fn generation_published(&self, generation: &CredentialGeneration) {
        self.metrics.generation_loaded(generation.number());
        if let Some(next) = &self.next {
            next.generation_published(generation);
        }
    }

    fn generation_kept(&self, reason: &KeepReason) {
        self.metrics.generation_refused(reason.metric_label());
        if let Some(next) = &self.next {
            next.generation_kept(reason);
        }
    }
}
