//! The progress events and the timings of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_vocabulary::format_error_chain;
use parking_lot::Mutex;

use crate::progress::{ProgressEvent, ProgressObserver, ProgressPhase, ResourceTiming};
use crate::resource_error::ResourceError;
use crate::resource_key::ResourceKey;
use crate::run_context::RunContext;

/// The progress of a run since its beginning.
pub(crate) struct RunProgress<'a> {
    observer: &'a dyn ProgressObserver,
    clock: &'a SharedClock,
    began: Duration,
    timings: Mutex<BTreeMap<ResourceKey, ResourceTiming>>,
}

/// The progress of the work on one resource.
pub(crate) struct StepProgress<'a> {
    run: &'a RunProgress<'a>,
    key: &'a ResourceKey,
    started: Duration,
}

impl<'a> RunProgress<'a> {
    pub(crate) fn begin<A>(context: RunContext<'a, A>) -> Self {
        let RunContext { progress: observer, clock, .. } = context;
        Self { observer, clock, began: clock.monotonic(), timings: Mutex::default() }
    }

    /// Begins the work on a resource. `write` is its name in progress events.
    pub(crate) fn start<'b>(
        &'b self,
        key: &'b ResourceKey,
        write: &'static str,
    ) -> StepProgress<'b> {
        let step = StepProgress { run: self, key, started: self.elapsed() };
        step.report(ProgressPhase::Started { write });
        step
    }

    /// When each write began and ended.
    pub(crate) fn into_timings(self) -> BTreeMap<ResourceKey, ResourceTiming> {
        self.timings.into_inner()
    }

    fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.began)
    }
}

impl StepProgress<'_> {
    pub(crate) fn report(&self, phase: ProgressPhase) {
        let (elapsed, key) = (self.run.elapsed(), self.key.clone());
        self.run.observer.observe(&ProgressEvent { elapsed, key, phase });
    }

    /// Ends the work with its result.
    pub(crate) fn finish<T>(self, result: Result<T, ResourceError>) -> Result<T, ResourceError> {
        let (started, finished) = (self.started, self.run.elapsed());
        self.run.timings.lock().insert(self.key.clone(), ResourceTiming { started, finished });
        self.report(match &result {
            Ok(_) => ProgressPhase::Succeeded,
            Err(error) => ProgressPhase::Failed { reason: format_error_chain(error) },
        });
        result
    }
}
