//! Runs the hops of one component, measures each, and skips all hops after a failed one.

use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_vocabulary::{Component, Hop};

use crate::report::{ComponentReport, HopReport, StepFailure};

/// The output of a successful hop: a value for the next hop, and a line for the report.
#[derive(Debug)]
pub(crate) struct HopOutput<T> {
    pub(crate) value: T,
    pub(crate) detail: String,
}

impl<T> HopOutput<T> {
    pub(crate) fn new(value: T, detail: impl Into<String>) -> Self {
        Self { value, detail: detail.into() }
    }
}

/// Records the results of one component's hops.
#[derive(Debug)]
pub(crate) struct HopRecorder {
    component: Component,
    clock: SharedClock,
    hops: Vec<HopReport>,
}

/// A hop failed, so the remaining hops are skipped. The report contains the reason.
#[derive(Debug)]
pub(crate) struct HopFailed;

impl HopRecorder {
    pub(crate) fn new(component: Component, clock: SharedClock) -> Self {
        Self { component, clock, hops: Vec::with_capacity(Hop::CERTIFICATE_PATH.len()) }
    }

    /// Runs one hop and records its result and duration.
    pub(crate) async fn run_hop<T>(
        &mut self,
        name: Hop,
        work: impl Future<Output = Result<HopOutput<T>, StepFailure>>,
    ) -> Result<T, HopFailed> {
        let began = self.clock.monotonic();
        let result = work.await;
        let took = self.clock.monotonic().saturating_sub(began);
        match result {
            Ok(HopOutput { value, detail }) => {
                self.hops.push(HopReport::passed(name, took, detail));
                Ok(value)
            }
            Err(failure) => {
                self.hops.push(HopReport::failed(name, took, failure));
                Err(HopFailed)
            }
        }
    }

    /// The report of a component whose task panicked. The first hop reports the panic.
    pub(crate) fn panicked_report(mut self) -> ComponentReport {
        let failure =
            StepFailure::new("the task of this component panicked", "report the panic in the log");
        self.hops.push(HopReport::failed(Hop::HostedCluster, Duration::ZERO, failure));
        self.into_report()
    }

    /// Completes the report: hops that did not run are reported as not reached.
    pub(crate) fn into_report(mut self) -> ComponentReport {
        for hop in Hop::CERTIFICATE_PATH {
            if !self.hops.iter().any(|walked| walked.name == hop) {
                self.hops.push(HopReport::not_reached(hop));
            }
        }
        ComponentReport { name: self.component, hops: self.hops }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;
    use lanyard_vocabulary::HopOutcome;

    use super::*;

    #[tokio::test]
    async fn hops_after_a_failed_one_are_not_reached() {
        let mut recorder = HopRecorder::new(Component::Disk, SystemClock::shared());
        let first =
            recorder.run_hop(Hop::HostedCluster, async { Ok(HopOutput::new(7, "named")) }).await;
        assert_eq!(first.unwrap(), 7);
        let second: Result<(), _> = recorder
            .run_hop(Hop::SecretProviderClass, async { Err(StepFailure::new("gone", "render it")) })
            .await;
        assert!(second.is_err());

        let report = recorder.into_report();
        let outcomes: Vec<_> = report.hops.iter().map(|hop| hop.outcome).collect();
        assert_eq!(outcomes[..2], [HopOutcome::Succeeded, HopOutcome::Failed]);
        assert!(outcomes[2..].iter().all(|outcome| *outcome == HopOutcome::NotReached));
        assert_eq!(report.hops.len(), Hop::CERTIFICATE_PATH.len());
        assert_eq!(report.failed_hop().map(|hop| hop.name), Some(Hop::SecretProviderClass));
    }
}
