//! The Azure resources of a hosted cluster: which ones it needs, how they differ from the live ones, and how
//! they are created and removed.
//!
//! A command builds a [`ResourceGraph`] from its parameters, reads the [`LiveState`] and compares both in a
//! [`Plan`]; these steps send GET requests only. [`apply`] writes the differences in parallel. The [`Journal`]
//! records each write before it is sent, so that a killed command can be continued, and so that [`destroy`]
//! removes exactly what lanyard created.

mod api_versions;
mod apply;
pub mod azure_name_rules;
mod cluster_identifiers;
mod destroy;
mod graph_run;
mod infra_graph;
mod interrupted_writes;
mod journal;
mod live_state;
mod ownership_tags;
mod plan;
mod progress;
mod property_diff;
mod resource;
mod resource_graph;
mod resource_names;
mod resource_request;
mod resource_write;
mod role_assignments;
mod workload_identities;

pub use apply::{ResourceOutcome, RunContext, RunOptions, RunReport, apply};
pub use cluster_identifiers::{
    BaseDomain, ClusterIdentifierError, ClusterIdentifiers, ClusterName, InvalidBaseDomainError,
    generate_infra_id,
};
pub use destroy::{DestroyPlan, DestroyedResource, destroy};
pub use infra_graph::{ExistingNetwork, InfraIds, InfraParameters, infra_resources};
pub use interrupted_writes::wait_for_interrupted_writes;
pub use journal::{
    Journal, JournalCluster, JournalDirectory, JournalDirectoryError, JournalError, JournalStore,
    RecordedResource, RecordedState, WritePhase, open_directory,
};
pub use live_state::{LiveResource, LiveState, ReadError};
pub use ownership_tags::OwnershipTags;
pub use plan::{Plan, PlanProblem, PlannedResource, ResourceChange};
pub use progress::{
    CriticalStep, NoProgress, ProgressEvent, ProgressObserver, ProgressPhase, ResourceTiming,
    critical_path,
};
pub use property_diff::PropertyDifference;
pub use resource::{
    DesiredResource, Ownership, PrincipalReference, ResourceDefinition, ResourceKey, ResourceStack,
    TagSupport,
};
pub use resource_graph::{ResourceGraph, ResourceGraphError};
pub use resource_names::{ClusterResourceNames, SUBNET_NAME};
pub use resource_write::ResourceError;
pub use role_assignments::{
    AssignmentScope, AssignmentScopeIds, DEFAULT_ROLE_ASSIGNMENT_LIMIT, GroupScope,
    PlannedRoleAssignment, RoleIdentity, RoleOptions, RoleProfile, RoleRequirement,
    UnknownScopesError, plan_role_assignments, role_assignment_name, role_requirements,
};
pub use workload_identities::{
    DataPlaneIdentity, FederatedCredentialDefinition, MAX_FEDERATED_CREDENTIALS,
    OPENSHIFT_AUDIENCE, WorkloadIdentityDefinition, workload_identities,
};
