//! The error of one resource in a run.

use std::borrow::Cow;
use std::time::Duration;

use lanyard_clock::ErrorHint;

use crate::effect::{EffectWriteError, UnknownValueError};
use crate::effect_error::EffectError;
use crate::journal::JournalError;
use crate::plan::PlanProblem;
use crate::resource_id::ResourceId;

/// The write of a resource failed, or was not attempted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The plan has a problem with the resource.
    #[error("the plan cannot be applied: {0}")]
    Problem(PlanProblem),
    /// The journal cannot be written. The request was not sent.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A service rejected the write.
    #[error(transparent)]
    Rejected(#[from] EffectError),
    /// A service rejected the write for now, for longer than the run repeats writes.
    #[error("the service still rejects the write after {}s", waited.as_secs())]
    TimedOut {
        /// How long the write was repeated.
        waited: Duration,
        /// The last error.
        #[source]
        source: EffectError,
    },
    /// A write of an earlier run does not end.
    #[error("the service is still changing `{id}` after {}s", waited.as_secs())]
    StillChanging {
        /// The id of the resource.
        id: ResourceId,
        /// How long the run waited.
        waited: Duration,
    },
    /// A run deleted a resource group, whose content cannot be restored.
    #[error("`{id}` was deleted with its content, which a roll-back cannot restore")]
    NotRestorable {
        /// The id of the group, or of a resource in it.
        id: ResourceId,
    },
    /// Another client created the resource.
    #[error(
        "`{id}` is not changed, because neither its tags nor its creator show that lanyard created it"
    )]
    NotOurs {
        /// The id of the resource.
        id: ResourceId,
    },
    /// The journal names a role assignment whose principal is not one of the cluster.
    #[error(
        "the role assignment `{id}` is not created again, because its principal in the journal is not one of this cluster"
    )]
    UnknownPrincipal {
        /// The id of the role assignment.
        id: ResourceId,
    },
    /// A resource group contains resources of other clients.
    #[error("`{id}` is not deleted, because it contains resources that are not part of this run: {}", .resources.join(", "))]
    OtherResources {
        /// The id of the group.
        id: ResourceId,
        /// The ids of these resources, as Azure lists them.
        resources: Vec<String>,
    },
    /// A value of another resource is missing.
    #[error(transparent)]
    UnknownValue(#[from] UnknownValueError),
}

impl From<EffectWriteError> for ResourceError {
    fn from(error: EffectWriteError) -> Self {
        match error {
            EffectWriteError::Request(error) => error.into(),
            EffectWriteError::UnknownValue(error) => error.into(),
        }
    }
}

impl ErrorHint for ResourceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Problem(problem) => return problem.hint(),
            Self::Journal(error) => return error.hint(),
            Self::Rejected(error) => return error.hint(),
            Self::TimedOut { .. } | Self::StillChanging { .. } => {
                "run the command again, or wait longer with --timeout"
            }
            Self::NotOurs { .. } => {
                "to let lanyard change or remove it, adopt it: with `lanyard import azure` for a cluster, otherwise with --import; otherwise choose another name"
            }
            Self::UnknownPrincipal { .. } => {
                "check who can write to the journal; to create the roles of the configuration, run the command without --roll-back"
            }
            Self::OtherResources { .. } => {
                "move or delete these resources; `lanyard destroy` also removes them with --include-unrecorded"
            }
            Self::NotRestorable { .. } => {
                "run the command without --roll-back, which creates the missing resources again"
            }
            Self::UnknownValue(_) => "run the command again",
        }))
    }
}
