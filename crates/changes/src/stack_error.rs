//! Why the stacks of a command cannot be planned, changed or removed.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::format_error_chain;

use crate::destroy_plan::UnrecordedResource;
use crate::effect_error::EffectError;
use crate::journal::{JournalError, JournalLocation};
use crate::live_read::ReadError;
use crate::resource_error::ResourceError;
use crate::roll_back_plan::NothingToRollBack;

/// The stacks of a command cannot be planned, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// Live resources cannot be read.
    #[error("{}", lines(.0.iter().map(|error| format_error_chain(error))))]
    Read(Vec<ReadError>),
    /// A check before the first write failed.
    #[error("the checks before the first write failed")]
    Check(#[source] EffectError),
    /// A write of an interrupted run has not ended.
    #[error("a write of an interrupted run has not ended")]
    Interrupted(#[source] ResourceError),
    /// The journal cannot be used.
    #[error("the journal cannot be used")]
    Journal(#[from] JournalError),
    /// There is no journal.
    #[error("there is no journal in {0}")]
    NoJournal(JournalLocation),
    /// The resources in the groups to delete cannot be listed.
    #[error("listing the resources of the groups failed")]
    Listing(#[source] EffectError),
    /// The groups to delete contain other resources.
    #[error(
        "the resource groups to delete also contain resources that are not part of this removal; nothing in Azure was removed:\n{}",
        lines(.resources.iter().map(|it| it.id.clone()))
    )]
    Unrecorded {
        /// The other resources.
        resources: Vec<UnrecordedResource>,
        /// What to do next.
        hint: &'static str,
    },
    /// The locks of the resources to delete cannot be listed.
    #[error("listing the locks of the subscription failed")]
    Locks(#[source] EffectError),
    /// The service would reject deletions, for these reasons.
    #[error("{}; nothing in Azure was removed", .0.join("\n"))]
    Locked(Vec<String>),
    /// The journal has no interrupted run of the stacks.
    #[error(transparent)]
    NothingToRollBack(#[from] NothingToRollBack),
    /// The principals of the journal, to which the roll-back would give roles again, cannot be read.
    #[error("the roll-back failed: reading the managed identities of the journal failed")]
    Principals(#[source] EffectError),
    /// The journal could not be written during the roll-back.
    #[error("the roll-back failed")]
    RollBack(#[source] JournalError),
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

impl ErrorHint for StackError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Read(errors) => match errors.first() {
                Some(first) => first.source.hint(),
                None => Some("run the command again".into()),
            },
            Self::Check(error)
            | Self::Listing(error)
            | Self::Locks(error)
            | Self::Principals(error) => error.hint(),
            Self::Interrupted(error) => error.hint(),
            Self::Journal(error) | Self::RollBack(error) => error.hint(),
            Self::NoJournal(_) => Some("name its directory or container with --state; for a cluster of another tool, run `lanyard import azure` first".into()),
            Self::Unrecorded { hint, .. } => Some((*hint).into()),
            Self::Locked(_) => Some("remove the lock, or ask the person who set it; then run the command again".into()),
            Self::NothingToRollBack(error) => error.hint(),
        }
    }

    fn is_invalid_input(&self) -> bool {
        matches!(self, Self::NoJournal(_) | Self::Unrecorded { .. } | Self::NothingToRollBack(_))
    }
}
