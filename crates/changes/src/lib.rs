//! The engine for every change in Azure: which resources are desired, how they differ from the live ones, and how they
//! are created, changed, removed and restored.
//!
//! A command builds a [`ResourceGraph`] of [`Effect`]s, reads the [`LiveState`] and compares both in a [`Plan`]; these
//! steps send no writes. [`apply`] writes the differences in parallel. The [`Journal`] records each write before it is
//! sent, so that a killed command can be continued, that [`roll_back`] undoes an interrupted run, and that [`destroy`]
//! removes exactly what lanyard created.
//!
//! The engine knows no kind of resource: it decides order, journal entries, repetition and ownership. An [`Effect`] and
//! its [`EffectAccess`] send the requests; those of Azure are [`AzureEffect`] and [`AzureAccess`]. The feature
//! `kubernetes` adds those of Kubernetes objects and Helm releases.

mod accepted_write;
mod apply;
mod creation_evidence;
mod destroy;
mod destroy_plan;
mod effect;
mod effect_error;
mod effects;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod graph_run;
mod import;
mod interrupted_writes;
mod journal;
mod journal_target;
mod live_read;
mod live_state;
mod ownership_evidence;
mod ownership_tags;
mod plan;
mod preflight_finding;
mod progress;
mod property_diff;
mod property_reference;
mod recorded_resource;
mod recorded_stacks;
mod resource_error;
mod resource_graph;
mod resource_id;
mod resource_key;
mod roll_back;
mod roll_back_plan;
mod run_context;
mod run_progress;
mod run_report;
mod run_summary;
mod stack_error;
mod stack_rules;
mod stack_target;
mod step;
mod unrecorded_resources;

pub use accepted_write::{AcceptedWrite, WaitLimits, WriteProgress};
pub use apply::apply;
pub use creation_evidence::{CreationEvidence, CreationMark};
pub use destroy::destroy;
pub use destroy_plan::{DestroyPlan, DestroyedResource, KeptGroup, UnrecordedResource};
pub use effect::{Effect, EffectAccess, EffectUsage, EffectWriteError, UnknownValueError};
pub use effect_error::{EffectError, EffectErrorCause};
#[cfg(feature = "kubernetes")]
pub use effects::cluster::{
    HelmAccess, HelmChart, HelmError, HelmFailure, HelmRelease, HelmReleaseId, HelmSettings,
    KubernetesAccess, KubernetesEffectError, KubernetesObject, KubernetesObjectId,
    OtherClusterError,
};
pub use effects::{
    ArmResource, AzureAccess, AzureEffect, AzureGraph, AzureResource, EntraApplication,
    FederatedCredential, IssuerReference, PrincipalReference, RoleAssignment, TagSupport,
    api_version_of, arm_resource, assigns_roles, recorded_principals, role_principals,
};
pub use import::{ImportResult, ImportedResource};
pub use interrupted_writes::wait_for_interrupted_writes;
pub use journal::{
    ContainerAccess, Journal, JournalAccess, JournalCluster, JournalContainerError,
    JournalContainerUrl, JournalDirectoryError, JournalError, JournalHolder, JournalLocation,
    JournalLock, JournalStoreError, ParseJournalUrlError, RecordedState, RunCommand, StackRule,
    open_directory,
};
pub use journal_target::{JournalEvent, JournalTarget};
pub use live_read::{ReadError, read_live};
pub use live_state::{LiveResource, LiveState};
pub use ownership_evidence::OwnershipEvidence;
pub use ownership_tags::{OwnershipTags, ToolMark};
pub use plan::{Plan, PlanProblem, PlannedResource, ResourceChange};
pub use preflight_finding::{FindingSeverity, PreflightFinding};
pub use progress::{
    CriticalStep, NoProgress, ProgressEvent, ProgressObserver, ProgressPhase, ResourceTiming,
    critical_path,
};
pub use property_diff::{PropertyDifference, property_differences};
pub use property_reference::property_reference;
pub use recorded_resource::{RecordedResource, WritePhase};
pub use recorded_stacks::{PlannedRemoval, RecordedStacks, StackRemoval};
pub use resource_error::ResourceError;
pub use resource_graph::{DesiredResource, ResourceGraph, ResourceGraphError};
pub use resource_id::ResourceId;
pub use resource_key::{Ownership, ResourceKey, StackName};
pub use roll_back::roll_back;
pub use roll_back_plan::{NothingToRollBack, RestoredResource, RollBackPlan};
pub use run_context::{RunContext, RunOptions, RunSettings};
pub use run_report::{ResourceOutcome, RunReport};
pub use run_summary::RunSummary;
pub use stack_error::StackError;
pub use stack_rules::StackRules;
pub use stack_target::{CheckedPlan, LiveCheck, StackTarget, no_live_check};
