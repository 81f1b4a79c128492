//! Walking the hops of one component: each is timed, and after a failed one none is reached.

use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_vocabulary::{Component, Hop};

use crate::report::{ComponentReport, Failure, HopReport};

/// What a good hop yields: a value for the next one, and a line for the report.
#[derive(Debug)]
pub(crate) struct Found<T> {
    pub(crate) value: T,
    pub(crate) detail: String,
}

impl<T> Found<T> {
    pub(crate) fn new(value: T, detail: impl Into<String>) -> Self {
        Self { value, detail: detail.into() }
    }
}

/// The hops of one component, as far as they were walked.
#[derive(Debug)]
pub(crate) struct Walk {
    component: Component,
    clock: SharedClock,
    hops: Vec<HopReport>,
}

/// A hop failed: the walk ends, and its report says why.
#[derive(Debug)]
pub(crate) struct Stopped;

impl Walk {
    pub(crate) fn new(component: Component, clock: SharedClock) -> Self {
        Self { component, clock, hops: Vec::with_capacity(Hop::ALL.len()) }
    }

    /// Walks one hop.
    pub(crate) async fn hop<T>(
        &mut self,
        name: Hop,
        work: impl Future<Output = Result<Found<T>, Failure>>,
    ) -> Result<T, Stopped> {
        let began = self.clock.monotonic();
        let result = work.await;
        let took = self.clock.monotonic().saturating_sub(began);
        match result {
            Ok(Found { value, detail }) => {
                self.hops.push(HopReport::good(name, took, detail));
                Ok(value)
            }
            Err(failure) => {
                self.hops.push(HopReport::failed(name, took, failure));
                Err(Stopped)
            }
        }
    }

    /// The report of a component whose task panicked, which is reported at the first hop.
    pub(crate) fn panicked(mut self) -> ComponentReport {
        let failure =
            Failure::new("the task of this component panicked", "report the panic in the log");
        self.hops.push(HopReport::failed(Hop::HostedCluster, Duration::ZERO, failure));
        self.finish()
    }

    /// The report: hops that were not walked say so.
    pub(crate) fn finish(mut self) -> ComponentReport {
        for hop in Hop::ALL {
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
    use lanyard_vocabulary::Outcome;

    use super::*;

    #[tokio::test]
    async fn hops_after_a_failed_one_are_not_reached() {
        let mut walk = Walk::new(Component::Disk, SystemClock::shared());
        let first = walk.hop(Hop::HostedCluster, async { Ok(Found::new(7, "named")) }).await;
        assert_eq!(first.unwrap(), 7);
        let second: Result<(), _> = walk
            .hop(Hop::SecretProviderClass, async { Err(Failure::new("gone", "render it")) })
            .await;
        assert!(second.is_err());

        let report = walk.finish();
        let outcomes: Vec<_> = report.hops.iter().map(|hop| hop.outcome).collect();
        assert_eq!(outcomes[..2], [Outcome::Good, Outcome::Failed]);
        assert!(outcomes[2..].iter().all(|outcome| *outcome == Outcome::NotReached));
        assert_eq!(report.hops.len(), Hop::ALL.len());
        assert_eq!(report.blamed().map(|hop| hop.name), Some(Hop::SecretProviderClass));
    }
}
