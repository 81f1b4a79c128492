//! The steps of a run: progress events and timings.

use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_vocabulary::format_error_chain;
use parking_lot::Mutex;

use crate::apply::{ResourceOutcome, RunContext, RunReport};
use crate::graph_run::NodeResult;
use crate::live_state::LiveState;
use crate::progress::{ProgressEvent, ProgressPhase, ResourceTiming};
use crate::resource::ResourceKey;
use crate::resource_write::ResourceError;

/// Receives the progress of the work on one resource.
pub(crate) type ProgressReporter<'a> = &'a (dyn Fn(ProgressPhase) + Sync);

/// The steps of a run that began at a time.
pub(crate) struct RunSteps<'a> {
    pub(crate) context: RunContext<'a>,
    began: Duration,
    timings: Mutex<BTreeMap<ResourceKey, ResourceTiming>>,
}

impl<'a> RunSteps<'a> {
    pub(crate) fn begin(context: RunContext<'a>) -> Self {
        Self { context, began: context.clock.monotonic(), timings: Mutex::default() }
    }

    fn elapsed(&self) -> Duration {
        self.context.clock.monotonic().saturating_sub(self.began)
    }

    /// Does the work on a resource, and reports its progress. `write` is its name in progress events.
    pub(crate) async fn run(
        &self,
        key: &ResourceKey,
        write: &'static str,
        work: impl AsyncFnOnce(ProgressReporter<'_>) -> Result<ResourceOutcome, ResourceError>,
    ) -> Result<ResourceOutcome, ResourceError> {
        let report = |phase| {
            let event = ProgressEvent { elapsed: self.elapsed(), key: key.clone(), phase };
            self.context.progress.observe(&event);
        };
        let started = self.elapsed();
        report(ProgressPhase::Started { write });
        let result = work(&report).await;
        let finished = self.elapsed();
        self.timings.lock().insert(key.clone(), ResourceTiming { started, finished });
        report(match &result {
            Ok(_) => ProgressPhase::Succeeded,
            Err(error) => ProgressPhase::Failed { reason: format_error_chain(error) },
        });
        result
    }

    /// The report of the run with these results, without live resources.
    pub(crate) fn report(
        self,
        results: BTreeMap<ResourceKey, NodeResult<ResourceOutcome, ResourceError>>,
    ) -> RunReport {
        let outcomes =
            results.into_iter().map(|(key, result)| (key, ResourceOutcome::from(result)));
        RunReport {
            outcomes: outcomes.collect(),
            timings: self.timings.into_inner(),
            live: LiveState::default(),
        }
    }
}
