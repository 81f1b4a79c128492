//! The messages and the regular expressions of the HostedCluster schema's rules.
//!
//! The CRDs and `lanyard_desired`'s validation use the same texts. They are copied from HyperShift,
//! misspellings included, because users search for them.
//!
//! Source: the schema of `HostedCluster` in `hypershift.openshift.io/v1beta1`.

/// `clientID` of an identity: a UUID.
pub const CLIENT_ID_PATTERN: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";
/// `resourceGroup`.
pub const RESOURCE_GROUP_PATTERN: &str = r"^[a-zA-Z0-9_()\-\.]{1,89}[a-zA-Z0-9_()\-]$";
/// `credentialsSecretName`.
pub const SECRET_NAME_PATTERN: &str = "^[a-zA-Z0-9-]+$";

/// `location` changed.
pub const LOCATION_IMMUTABLE: &str = "Location is immutable";
/// `resourceGroup` changed; the message has the name of the field in Go.
pub const RESOURCE_GROUP_IMMUTABLE: &str = "ResourceGroupName is immutable";
/// `vnetID` changed.
pub const VNET_IMMUTABLE: &str = "VnetID is immutable";
/// `subnetID` changed.
pub const SUBNET_IMMUTABLE: &str = "SubnetID is immutable";
/// `subscriptionID` changed.
pub const SUBSCRIPTION_IMMUTABLE: &str = "SubscriptionID is immutable";
/// `securityGroupID` changed.
pub const SECURITY_GROUP_IMMUTABLE: &str = "SecurityGroupID is immutable";

/// `private` was added or removed.
pub const PRIVATE_PRESENCE: &str = "private cannot be added or removed after cluster creation";
/// `topology` was removed.
pub const TOPOLOGY_REMOVED: &str = "topology cannot be removed once set";
/// `topology` changed from or to `Public`.
pub const TOPOLOGY_TRANSITION: &str =
    "transitions between Public and non-Public topology are not supported";
/// `private` does not fit `topology`.
pub const PRIVATE_MEMBER: &str =
    "private is required when topology is Private or PublicAndPrivate, and forbidden otherwise";
/// Private Link on self-managed Azure needs an identity of the control plane operator.
pub const PRIVATE_LINK_OPERATOR: &str = "workloadIdentities.controlPlaneOperator is required when Private Link is configured with WorkloadIdentities authentication";

/// `subnetID` has another form; HyperShift's message names the wrong field.
pub const SUBNET_FORMAT: &str = "encryptionSetID must be in the format `/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/Microsoft.Network/virtualNetworks/{vnetName}/subnets/{subnetName}`";
/// The resource group of `subnetID`.
pub const SUBNET_GROUP: &str = "The resourceGroupName should be between 1 and 90 characters, consisting only of alphanumeric characters, hyphens, underscores, periods and parenthesis";
/// The end of the resource group of `subnetID`.
pub const SUBNET_GROUP_END: &str =
    "the resourceGroupName in the subnetID must not end with a period (.) character";
/// The virtual network of `subnetID`.
pub const SUBNET_VNET: &str = "The vnetName should be between 2 and 64 characters, consisting only of alphanumeric characters, hyphens, underscores and periods";
/// The end of the virtual network of `subnetID`.
pub const SUBNET_VNET_END: &str =
    "the vnetName in the subnetID must not end with either a period (.) or hyphen (-) character";
/// The name of the subnet of `subnetID`.
pub const SUBNET_NAME: &str = "The subnetName should be between 1 and 80 characters, consisting only of alphanumeric characters, hyphens and underscores and must start with an alphanumeric character";
/// The end of the name of the subnet of `subnetID`.
pub const SUBNET_NAME_END: &str =
    "the subnetName in the subnetID must not end with a period (.) or hyphen (-) character";

/// `private.type` changed.
pub const PRIVATE_TYPE_IMMUTABLE: &str = "type is immutable";
/// `private.privateLink` does not fit `private.type`.
pub const PRIVATE_LINK_MEMBER: &str =
    "privateLink is required when type is PrivateLink, and forbidden otherwise";
/// `private.swift` does not fit `private.type`.
pub const SWIFT_MEMBER: &str = "swift is required when type is Swift, and forbidden otherwise";
/// `natSubnetID` changed.
pub const NAT_SUBNET_IMMUTABLE: &str = "natSubnetID is immutable once set";
/// `natSubnetID` has another form.
pub const NAT_SUBNET_FORMAT: &str = "must be a valid Azure subnet resource ID (e.g., /subscriptions/{sub}/resourceGroups/{rg}/providers/Microsoft.Network/virtualNetworks/{vnet}/subnets/{subnet})";
/// An item of `additionalAllowedSubscriptions` is no UUID.
pub const ALLOWED_SUBSCRIPTION: &str =
    "must be a valid UUID (e.g., 550e8400-e29b-41d4-a716-446655440000)";
/// `podNetworkInstance` is no DNS label.
pub const POD_NETWORK_LABEL: &str = "podNetworkInstance must be a valid DNS label: lower case letters, digits and '-', and must start and end with a letter or digit";
/// `podNetworkInstance` changed.
pub const POD_NETWORK_IMMUTABLE: &str = "podNetworkInstance is immutable";

/// `containerRegistry.credentials.managedIdentity` does not fit its type.
pub const REGISTRY_MEMBER: &str =
    "managedIdentity is required when type is ManagedIdentity, and forbidden otherwise";
/// `containerRegistry.credentials.managedIdentity.resourceID` has another form.
pub const REGISTRY_ID: &str = "must be a user-assigned managed identity ARM resource ID in the format /subscriptions/{subscriptionID}/resourceGroups/{resourceGroupName}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{identityName}";

/// `managedIdentities` does not fit the kind of the identities.
pub const MANAGED_MEMBER: &str = "managedIdentities is required when azureAuthenticationConfigType is ManagedIdentities, and forbidden otherwise";
/// `workloadIdentities` does not fit the kind of the identities.
pub const WORKLOAD_MEMBER: &str = "workloadIdentities is required when azureAuthenticationConfigType is WorkloadIdentities, and forbidden otherwise";
/// `clientID` is no UUID.
pub const CLIENT_ID: &str = "the client ID of a managed identity must be a valid UUID. It should be 5 groups of hyphen separated hexadecimal characters in the form 8-4-4-4-12.";

/// `secretEncryption` was removed.
pub const ENCRYPTION_REMOVED: &str = "secretEncryption cannot be removed once configured";
/// The two keys are in two vaults.
pub const BACKUP_KEY_VAULT: &str = "backupKey.keyVaultName must match activeKey.keyVaultName; both keys must reside in the same Key Vault";
/// Two identities for one key.
pub const KMS_EXCLUSIVE: &str = "kms and workloadIdentity are mutually exclusive";
/// No identity for the key.
pub const KMS_MISSING: &str = "one of kms or workloadIdentity must be set";
/// Another kind of identity for the key.
pub const KMS_MODE_IMMUTABLE: &str = "the KMS authentication mode is immutable once set";
/// `keyVaultType` changed.
pub const KEY_VAULT_TYPE_IMMUTABLE: &str = "keyVaultType is immutable";

/// `issuerURL` is no URL.
pub const ISSUER_URL: &str = "issuerURL must be a valid absolute URL";
/// `issuerURL` changed.
pub const ISSUER_URL_IMMUTABLE: &str = "issuerURL is immutable";
/// A signing key without an issuer. Never reported, because the default of `issuerURL` is applied
/// first.
pub const SIGNING_KEY_ISSUER: &str = "If serviceAccountSigningKey is set, issuerURL must be set";
/// Too few `services`.
pub const SERVICES_COUNT: &str =
    "spec.services in body should have at least 4 items or 3 for IBMCloud";
/// `services` changed.
pub const SERVICES_IMMUTABLE: &str =
    "Services is immutable. Changes might result in unpredictable and disruptive behavior.";
/// The OAuth server of managed Azure.
pub const MANAGED_OAUTH: &str =
    "Azure managed platform (ARO HCP) requires OAuthServer to use Route";
/// The OAuth server of self-managed Azure.
pub const SELF_MANAGED_OAUTH: &str =
    "Self-managed Azure requires OAuthServer to use Route or LoadBalancer";
/// Konnectivity on Azure.
pub const KONNECTIVITY_ROUTE: &str =
    "Azure platform requires Konnectivity to use Route service publishing strategy";
/// Ignition on Azure.
pub const IGNITION_ROUTE: &str =
    "Azure platform requires Ignition to use Route service publishing strategy";

/// `infraID` has another form.
pub const INFRA_ID: &str = "infraID must consist of lowercase alphanumeric characters or '-', start and end with an alphanumeric character, and be between 1 and 253 characters";
/// `infraID` changed.
pub const INFRA_ID_IMMUTABLE: &str = "infraID is immutable";
/// `clusterID` is no UUID.
pub const CLUSTER_ID: &str = "clusterID must be an RFC4122 UUID value (xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits)";
/// `clusterID` changed.
pub const CLUSTER_ID_IMMUTABLE: &str = "clusterID is immutable";
