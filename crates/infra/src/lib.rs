//! The Azure resources of a hosted cluster: which ones it needs, and the checks before they are written.
//!
//! The definitions are graphs of [effects](lanyard_changes::AzureEffect), which the engine of `lanyard-changes` compares
//! with the live resources, writes, restores and removes.
//!
//! [`manifests`] renders the Kubernetes objects of a new cluster on this infrastructure.

mod aks_graph;
pub mod azure_name_rules;
mod azure_subscription;
mod caller_permissions;
mod ccoctl_ownership;
mod ccoctl_removal;
mod cluster_configuration;
mod cluster_identifiers;
mod cluster_target;
mod cluster_target_error;
mod command_actions;
mod command_permissions;
mod component_identity_graph;
mod cost;
mod deleted_vault;
mod dns_graph;
mod encryption_key;
mod encryption_key_id;
mod existing_network;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod iam_graph;
mod identity_files;
mod identity_source;
mod infra_graph;
mod infra_output;
mod infra_output_file;
mod issuer_documents;
mod keyvault_graph;
mod kms_graph;
mod legacy_names;
mod listed_role_assignments;
mod management_locks;
pub mod manifests;
mod name_availability;
mod needed_actions;
mod oidc_graph;
mod orphaned_assignments;
mod preflight;
mod principal_lookup;
mod public_zone;
mod quotas;
mod resource_names;
mod role_assignments;
mod role_graph;
mod role_keys;
mod role_names;
mod shared_groups;
mod sizing;
pub mod stacks;
#[cfg(test)]
mod tests;
mod value_checks;
mod workload_identities;

pub use aks_graph::{ADD_ON_IDENTITY, AKS_CLUSTER_KEY, AksParameters, aks_resources};
pub use azure_subscription::AzureSubscription;
pub use ccoctl_ownership::CcoctlOwner;
pub use ccoctl_removal::{CcoctlRemoval, CcoctlRemovalError, find_other_role_assignments};
pub use cluster_configuration::{
    ClusterConfiguration, ConfigurationError, DEFAULT_LOCATION, RawConfiguration, RawIam, RawInfra,
};
pub use cluster_identifiers::{
    BaseDomain, ClusterIdentifierError, ClusterIdentifiers, ClusterName, InvalidBaseDomainError,
};
pub use cluster_target::{ClusterTarget, recorded_stacks};
pub use cluster_target_error::ClusterTargetError;
pub use command_permissions::{CommandPermissions, MissingPermissions};
pub use component_identity_graph::{
    ComponentIdentityParameters, IDENTITY_GROUP_KEY, INSTALLATION_GROUP_KEY,
    component_identity_key, component_identity_resources,
};
pub use cost::{PRICES_OF, ResourceCost, monthly_cost};
pub use deleted_vault::{DeletedVault, VaultPurgeError};
pub use dns_graph::{DNS_ZONE_KEY, DnsParameters, ZoneDelegation, dns_resources};
pub use encryption_key::{EncryptionKey, EncryptionKeyError, find_or_create_encryption_key};
pub use encryption_key_id::{EncryptionKeyId, ParseEncryptionKeyIdError};
pub use iam_graph::{
    DataPlaneParameters, IamParameters, data_plane_identity_key, data_plane_resources,
    iam_resources, identity_key,
};
pub use identity_files::{
    ControlPlaneIdentities, ControlPlaneIdentity, DataPlaneIdentities, IdentityFieldProblem,
    IdentityFileError, IdentityVault, LintNote, WorkloadIdentities,
};
pub use identity_source::{
    IdentitySource, IdentitySourceError, read_identities, read_identity_file,
};
pub use infra_graph::{ExistingNetwork, InfraIds, InfraParameters, LegacyNames, infra_resources};
pub use infra_output::{ClusterIdentities, infra_output};
pub use infra_output_file::InfraOutput;
pub use issuer_documents::{IssuerContainerClient, IssuerDocumentsError, PublicationOutcome};
pub use keyvault_graph::{KeyvaultParameters, keyvault_resources};
pub use kms_graph::{KmsParameters, kms_resources};
pub use legacy_names::find_legacy_names;
pub use listed_role_assignments::UnreadableRoleAssignment;
pub use needed_actions::{ExampleClusterError, NeededActions, command_names, needed_actions};
pub use oidc_graph::{OidcParameters, oidc_resources};
pub use orphaned_assignments::{
    OrphanSearchError, OrphanedAssignment, delete_orphaned_assignment, find_orphaned_assignments,
};
pub use preflight::PERMISSIONS_CHECK;
pub use principal_lookup::PrincipalLookupError;
pub use public_zone::PublicZoneError;
pub use resource_names::{ClusterResourceNames, SUBNET_NAME};
pub use role_assignments::{
    AssignmentScope, AssignmentScopeIds, GroupScope, PlannedRoleAssignment, RoleIdentity,
    RoleOptions, RoleProfile, RoleRequirement, UnknownScopesError, plan_role_assignments,
    role_assignment_name, role_requirements,
};
pub use role_graph::{RoleGraphError, RoleParameters, role_resources};
pub use role_keys::plan_changes;
pub use role_names::{RoleNameError, RoleNames};
pub use sizing::{NODES_PER_EGRESS_ADDRESS, check_size, usable_addresses};
pub use workload_identities::{
    DataPlaneIdentity, FederatedCredentialDefinition, OPENSHIFT_AUDIENCE,
    WorkloadIdentityDefinition, workload_identities,
};
