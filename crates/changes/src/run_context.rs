//! What a run needs, and how it works.

use std::time::Duration;

use lanyard_clock::SharedClock;

use crate::accepted_write::WaitLimits;
use crate::journal::Journal;
use crate::ownership_tags::OwnershipTags;
use crate::progress::ProgressObserver;

/// How apply and destroy run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// The number of resources that are written at the same time.
    pub parallel: usize,
    /// How long a write is repeated that a service rejects for now, for example because a new principal is not yet
    /// known everywhere. Also the longest wait for a long-running operation.
    pub retry_timeout: Duration,
    /// The pause between two polls of an operation whose replies name none. Network resources are ready within
    /// seconds; Azure's SDKs poll every 30 s.
    pub poll_interval: Duration,
    /// Whether a successful apply ends the run. Otherwise the command applies a further plan to the same stacks.
    pub ends_run: bool,
    /// Whether a resource group is deleted with the resources in it that do not belong to the removal.
    pub removes_unrecorded: bool,
}

impl Default for RunOptions {
    /// Azure documents up to 10 minutes until a role assignment takes effect.
    fn default() -> Self {
        Self {
            parallel: 16,
            retry_timeout: Duration::from_mins(15),
            poll_interval: Duration::from_secs(2),
            ends_run: true,
            removes_unrecorded: false,
        }
    }
}

impl RunOptions {
    /// How long an accepted write is followed.
    pub(crate) const fn wait_limits(&self) -> WaitLimits {
        WaitLimits { interval: self.poll_interval, timeout: self.retry_timeout }
    }
}

/// What a run needs beside its journal.
#[derive(Debug, Clone, Copy)]
pub struct RunSettings<'a> {
    /// The names under which a service may record the signed-in identity as the creator of a resource.
    pub caller: &'a [String],
    /// The clock for pauses.
    pub clock: &'a SharedClock,
    /// Receives progress events.
    pub progress: &'a dyn ProgressObserver,
    /// How the run works.
    pub options: RunOptions,
}

impl<'a> RunSettings<'a> {
    /// The run with an open journal.
    pub const fn context<A>(
        self,
        access: &'a A,
        journal: &'a Journal,
        tags: &'a OwnershipTags,
    ) -> RunContext<'a, A> {
        let Self { caller, clock, progress, options } = self;
        RunContext { access, journal, tags, caller, clock, progress, options }
    }
}

/// What a run needs.
#[derive(Debug)]
pub struct RunContext<'a, A> {
    /// The access to the services.
    pub access: &'a A,
    /// The journal of the cluster.
    pub journal: &'a Journal,
    /// The tags of the resources that lanyard creates.
    pub tags: &'a OwnershipTags,
    /// The names under which a service may record the signed-in identity as the creator of a resource.
    pub caller: &'a [String],
    /// The clock for pauses.
    pub clock: &'a SharedClock,
    /// Receives progress events.
    pub progress: &'a dyn ProgressObserver,
    /// How the run works.
    pub options: RunOptions,
}

impl<A> Clone for RunContext<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for RunContext<'_, A> {}
