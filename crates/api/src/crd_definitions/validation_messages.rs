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
pub const POD_NETWORK_LABEL: &str = "podNetworkInstance must be a valid DNS label: lowercase alphanumeric characters or hyphens, must start and end with an alphanumeric character";
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
/// `infraID` was removed.
pub const INFRA_ID_REMOVED: &str = "infraID cannot be removed once set";
/// `clusterID` is no UUID.
pub const CLUSTER_ID: &str = "clusterID must be an RFC4122 UUID value (xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits)";
/// `clusterID` changed.
pub const CLUSTER_ID_IMMUTABLE: &str = "clusterID is immutable";
/// `clusterID` was removed.
pub const CLUSTER_ID_REMOVED: &str = "clusterID cannot be removed once set";

/// `platform.type` changed.
pub const PLATFORM_TYPE_IMMUTABLE: &str = "Type is immutable";

/// `baseDomain` is no domain name.
pub const BASE_DOMAIN: &str =
    "baseDomain must be a valid domain name (e.g., example, example.com, sub.example.com)";
/// `baseDomain` changed.
pub const BASE_DOMAIN_IMMUTABLE: &str = "baseDomain is immutable";
/// `baseDomainPrefix` is no domain name.
pub const BASE_DOMAIN_PREFIX: &str =
    "baseDomainPrefix must be a valid domain name (e.g., example, example.com, sub.example.com)";
/// `baseDomainPrefix` changed.
pub const BASE_DOMAIN_PREFIX_IMMUTABLE: &str = "baseDomainPrefix is immutable";
/// `publicZoneID` changed.
pub const PUBLIC_ZONE_IMMUTABLE: &str = "publicZoneID is immutable";
/// `privateZoneID` changed.
pub const PRIVATE_ZONE_IMMUTABLE: &str = "privateZoneID is immutable";

/// `capabilities` changed.
pub const CAPABILITIES_IMMUTABLE: &str =
    "Capabilities is immutable. Changes might result in unpredictable and disruptive behavior.";
/// `capabilities.enabled` changed.
pub const ENABLED_IMMUTABLE: &str =
    "Enabled is immutable. Changes might result in unpredictable and disruptive behavior.";
/// `capabilities.disabled` changed.
pub const DISABLED_IMMUTABLE: &str =
    "Disabled is immutable. Changes might result in unpredictable and disruptive behavior.";
/// A capability is in both lists.
pub const CAPABILITY_CONTRADICTION: &str =
    "Capabilities can not be both enabled and disabled at once.";
/// `Ingress` is disabled, but `Console` is not.
pub const INGRESS_WITHOUT_CONSOLE: &str =
    "Ingress capability can only be disabled if Console capability is also disabled";

/// `nodePort` does not fit the publishing strategy.
pub const NODE_PORT_MEMBER: &str =
    "nodePort is required when type is NodePort, and forbidden otherwise";
/// `route` does not fit the publishing strategy.
pub const ROUTE_MEMBER: &str = "only route is allowed when type is Route, and forbidden otherwise";
/// `loadBalancer` does not fit the publishing strategy.
pub const LOAD_BALANCER_MEMBER: &str =
    "only loadBalancer is required when type is LoadBalancer, and forbidden otherwise";
/// The publishing strategy `None` has a member.
pub const NONE_MEMBER: &str =
    "None does not allowed any configuration for loadBalancer, nodePort, or route";
/// The publishing strategy `S3` has a member.
pub const S3_MEMBER: &str =
    "S3 does not allowed any configuration for loadBalancer, nodePort, or route";
/// The host name of a route or load balancer is no domain name.
pub const SERVICE_HOSTNAME: &str = "hostname must be a valid domain name (e.g., example.com)";
/// The address of a node port has another form.
pub const NODE_PORT_ADDRESS: &str = "address must be a valid hostname, IPv4, or IPv6 address";

/// A key of AWS KMS is no Amazon Resource Name.
pub const AWS_ARN: &str = "arn must start with 'arn:'";
/// The URL of a key of IBM Cloud is no https URL.
pub const IBM_KEY_URL: &str = "url must start with 'https://'";

/// A recorded key of Azure does not fit its provider.
pub const AZURE_KEY_STATUS: &str =
    "azure is required when provider is Azure, and forbidden otherwise";
/// A recorded key of AWS does not fit its provider.
pub const AWS_KEY_STATUS: &str = "aws is required when provider is AWS, and forbidden otherwise";
/// A recorded key of IBM Cloud does not fit its provider.
pub const IBM_KEY_STATUS: &str =
    "ibmCloud is required when provider is IBMCloud, and forbidden otherwise";
/// A recorded AES-CBC key does not fit its provider.
pub const AESCBC_KEY_STATUS: &str =
    "aescbc is required when provider is AESCBC, and forbidden otherwise";
/// The Secret of a recorded AES-CBC key has an invalid name.
pub const AESCBC_SECRET_NAME: &str = "name must consist only of lowercase alphanumeric characters, hyphens, and periods. Each period-separated segment must start and end with an alphanumeric character.";
