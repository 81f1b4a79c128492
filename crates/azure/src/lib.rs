//! The shared transport to Azure, and a client of Azure Resource Manager.
//!
//! All of lanyard's Azure clients use an [`AzureTransport`]. It configures the proxy and the
//! trusted roots, retries failed requests, and keeps one token bucket and one Retry-After cool-down
//! per host. Queued requests are sent by priority ([`RequestPriority`]), mounts before rotations,
//! and fairly between callers ([`FlowId`]). A host that fails repeatedly gets no requests for a
//! while ([`CircuitBreakerPolicy`]). The Azure SDK's own retries are off
//! ([`AzureTransport::client_options`]), so that requests are retried in one place. Credentials use
//! [`AzureTransport::without_rate_limit`] and retry themselves, because they know which token
//! requests may be repeated.
//!
//! [`ArmClient`] sends typed requests ([`ArmRequest`]), reads lists with all their pages, and follows long-running
//! operations ([`PendingOperation`]), which can be stored and continued by another process.
//! [`AzureCallError::class`] says whether repeating a request can succeed. [`GraphClient`] reads and writes
//! applications and service principals. Each module of a resource provider has the bodies of its types
//! ([`ArmBody`]).

#[cfg(feature = "account")]
mod account;
mod arm_body;
mod arm_client;
mod arm_request;
mod authenticated_client;
mod authorization;
#[cfg(feature = "account")]
mod azure_credentials_file;
mod bearer_token_policy;
mod caller_identity;
mod circuit_breaker;
mod container_service;
mod dns;
pub mod error_codes;
mod error_details;
mod graph_client;
mod graph_types;
mod host_queue;
mod key_vault;
mod locks;
mod long_running;
mod managed_identity;
mod network;
mod private_dns;
mod propagation;
mod providers;
mod quota;
mod rate_limit_headroom;
mod rate_limited_client;
mod rate_limiter;
mod reply_limit;
mod resource_groups;
mod response_headers;
mod retry;
#[cfg(test)]
mod scripted_azure;
mod service_url;
mod storage;
mod transport;

#[cfg(feature = "account")]
pub use account::{AccountError, AccountSources, AzureAccount};
pub use arm_body::{ArmBody, ResourceReference, ResourceTags};
pub use arm_client::ArmClient;
pub use arm_request::ArmRequest;
pub use authenticated_client::{AuthenticatedClient, AzureCallError, AzureResponse};
pub use authorization::{
    AssignedPrincipalType, AssignedRole, AssignedRoleProperties, RoleAssignmentBody,
    RoleAssignmentProperties, RoleAssignmentUsage, RoleDefinition, RoleDefinitionBody,
    RoleDefinitionProperties, RolePermission, role_definition_id,
};
#[cfg(feature = "account")]
pub use azure_credentials_file::{
    AzureCredentialsFile, AzureCredentialsFileError, CredentialsFieldProblem,
};
pub use bearer_token_policy::BearerTokenPolicy;
pub use caller_identity::CallerIdentity;
pub use circuit_breaker::CircuitBreakerPolicy;
pub use container_service::{
    AgentPoolProfile, ClusterAddOn, ClusterFeature, ClusterIdentityReference, ClusterLinuxProfile,
    ClusterNetworkProfile, ClusterOidcIssuer, ClusterPowerState, ClusterSecurityProfile,
    ClusterSshKey, ClusterSshKeys, ManagedClusterBody, ManagedClusterIdentity,
    ManagedClusterProperties, SECRETS_PROVIDER_ADD_ON,
};
pub use dns::{
    DnsZone, DnsZoneBody, DnsZoneProperties, NsRecord, NsRecordSetBody, NsRecordSetProperties,
};
pub use error_details::AzureErrorDetails;
pub use graph_client::GraphClient;
pub use graph_types::{
    GraphApplication, GraphApplicationBody, GraphDirectoryObject, GraphKeyCredential,
    GraphServicePrincipal, GraphUser,
};
pub use host_queue::{FlowId, RequestPriority};
pub use key_vault::{
    SoftDeletedVault, SoftDeletedVaultProperties, VaultBody, VaultKeyBody, VaultKeyProperties,
    VaultProperties, VaultSkuName,
};
pub use locks::{ManagementLockBody, ManagementLockLevel, ManagementLockProperties};
pub use long_running::{
    OperationError, OperationPoll, OperationStart, PendingOperation, PollPolicy,
};
pub use managed_identity::{
    FederatedCredentialBody, FederatedCredentialProperties, ManagedIdentity, ManagedIdentityBody,
    ManagedIdentityProperties,
};
pub use network::{
    LoadBalancerBody, LoadBalancerChild, LoadBalancerFrontend, LoadBalancerOutboundRule,
    LoadBalancerPool, LoadBalancerProbe, LoadBalancerProperties, NetworkSecurityGroupBody,
    NetworkSku, PublicIpAddressBody, PublicIpAddressProperties, SubnetBody, SubnetProperties,
    VirtualNetworkAddressSpace, VirtualNetworkBody, VirtualNetworkProperties,
};
pub use private_dns::{PrivateDnsLinkBody, PrivateDnsLinkProperties, PrivateDnsZoneBody};
pub use propagation::PropagationWait;
pub use providers::{ProviderRegistration, ProviderResourceType};
pub use quota::{
    MachineSku, ResourceUsage, ResourceUsageName, SkuCapability, SkuRestriction, UsageProvider,
};
pub use rate_limit_headroom::RateLimitHeadroom;
pub use rate_limited_client::{ThrottleCause, ThrottledError};
pub use rate_limiter::RequestRate;
pub use reply_limit::ReplyTooLarge;
pub use resource_groups::ResourceGroupBody;
pub use response_headers::ResponseHeaders;
pub use retry::RetryPolicy;
pub use storage::{
    BlobContainerBody, BlobContainerProperties, ContainerPublicAccess, StorageAccountBody,
    StorageAccountKey, StorageAccountKeys, StorageAccountProperties, StorageEndpoints, StorageSku,
};
pub use transport::{AzureTransport, AzureTransportError, AzureTransportSettings};
