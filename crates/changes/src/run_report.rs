//! The result of apply, destroy and roll-back.

use std::collections::BTreeMap;

use crate::graph_run::NodeResult;
use crate::live_state::LiveState;
use crate::progress::ResourceTiming;
use crate::resource_error::ResourceError;
use crate::resource_key::ResourceKey;

/// The result of apply, destroy or a roll-back.
#[derive(Debug)]
pub struct RunReport {
    /// The result of each resource.
    pub outcomes: BTreeMap<ResourceKey, ResourceOutcome>,
    /// When each write began and ended.
    pub timings: BTreeMap<ResourceKey, ResourceTiming>,
    /// The live resources after the run; empty after a removal.
    pub live: LiveState,
}

/// The result of one resource.
#[derive(Debug)]
pub enum ResourceOutcome {
    /// The resource was as desired.
    Unchanged,
    /// The resource was created.
    Created,
    /// The resource was changed in place.
    Updated,
    /// The resource was deleted and created.
    Replaced,
    /// The resource was deleted.
    Deleted,
    /// The resource belongs to another client, so it was not deleted. The journal does not record it as lanyard's any
    /// more.
    Kept,
    /// The write failed.
    Failed(ResourceError),
    /// The resource was skipped, because this resource failed.
    Blocked(ResourceKey),
}

impl From<NodeResult<Self, ResourceError>> for ResourceOutcome {
    fn from(result: NodeResult<Self, ResourceError>) -> Self {
        match result {
            NodeResult::Done(outcome) => outcome,
            NodeResult::Failed(error) => Self::Failed(error),
            NodeResult::Blocked(by) => Self::Blocked(by),
        }
    }
}

impl RunReport {
    /// Whether every resource is as desired.
    pub fn succeeded(&self) -> bool {
        let failed = |outcome: &ResourceOutcome| {
            matches!(outcome, ResourceOutcome::Failed(_) | ResourceOutcome::Blocked(_))
        };
        !self.outcomes.values().any(failed)
    }

    /// The report of two runs of which this is the second: what an earlier run changed counts as changed.
    #[must_use]
    pub fn after(mut self, earlier: Self) -> Self {
        let end = earlier.timings.values().map(|it| it.finished).max().unwrap_or_default();
        for timing in self.timings.values_mut() {
            timing.started = timing.started.saturating_add(end);
            timing.finished = timing.finished.saturating_add(end);
        }
        let changed = |outcome: &ResourceOutcome| !matches!(outcome, ResourceOutcome::Unchanged);
        self.outcomes.extend(earlier.outcomes.into_iter().filter(|(_, it)| changed(it)));
        self.timings.extend(earlier.timings);
        self
    }
}
