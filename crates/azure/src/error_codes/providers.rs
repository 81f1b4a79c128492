//! The error codes of resource providers, which Azure Resource Manager passes on.

use lanyard_clock::ErrorCodeGroup;
use lanyard_clock::RetryClass::{Busy, Denied, Invalid, Propagating};

use super::Row;

/// Virtual networks, load balancers, DNS and private endpoints.
pub(super) const NETWORK: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/azure/networking/troubleshoot-failed-state",
    rows: &[
        Row::new(
            &[
                "InUseBackendAddressPoolCannotBeDeleted",
                "InUseLoadBalancerCannotBeDeleted",
                "InUseNatGatewayCannotBeDeleted",
                "InUseNetworkSecurityGroupCannotBeDeleted",
                "InUseRouteTableCannotBeDeleted",
                "InUseSubnetCannotBeDeleted",
                "PublicIPAddressCannotBeDeleted",
                "NicInUse",
                "NicInUseWithPrivateEndpoint",
                "CannotDeleteResource",
            ],
            Denied,
            "Another resource uses the resource, or is contained in it.",
            "delete the resource in the message first, or detach it",
        ),
        Row::new(
            &["NetcfgSubnetRangeOutsideVnet", "NetcfgSubnetRangesOverlap"],
            Invalid,
            "The range of the subnet is outside the network, or overlaps that of another subnet.",
            "choose a range inside the address space of the network that no other subnet has",
        ),
        Row::new(
            &["InvalidAddressPrefixFormat", "InvalidCIDRNotation", "InvalidIPAddressFormat"],
            Invalid,
            "An address or a range is malformed.",
            "write the address, or the range as in 10.0.0.0/24, with zeros after the prefix",
        ),
        Row::new(
            &["PrivateIPAddressIsAllocated", "PrivateIPAddressNotInSubnet", "SubnetIsFull"],
            Invalid,
            "The address is in use or outside the subnet, or the subnet has no free address.",
            "choose a free address of the subnet, or a larger subnet",
        ),
        Row::new(
            &["PublicIPCountLimitReached"],
            Denied,
            "The quota of public IP addresses in the region is used up.",
            "delete public IP addresses that are not used, or request a higher quota",
        ),
        Row::new(
            &[
                "SecurityRuleConflict",
                "SecurityRuleInvalidPortRange",
                "SecurityRuleInvalidPriority",
                "SecurityRuleInvalidValue",
            ],
            Invalid,
            "A rule of the network security group is invalid, or conflicts with another one.",
            "correct the rule in the message: a port range, a priority from 100 to 4096 or a direction",
        ),
        Row::new(
            &["InvalidResourceReference", "SubnetMissing", "NextHopIpAddressNotProvided"],
            Denied,
            "The resource refers to another one that does not exist or has the wrong type, or lacks a reference.",
            "create the referenced resource first, or correct its id",
        ),
        Row::new(
            &[
                "LoadBalancerFrontendIPConfigurationMissingAddress",
                "NatGatewaySkuMissing",
                "NetworkInterfaceMustHaveOneIpConfiguration",
                "StandardSkuPublicIPAddressesMustBeStatic",
                "InvalidIdleTimeoutInMinutes",
                "PrivateEndpointInvalidGroupId",
                "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled",
                "SubnetsHaveNoServiceEndpointsConfigured",
            ],
            Invalid,
            "The configuration of the network resource is invalid.",
            "correct the property in the message",
        ),
    ],
};

/// Disks and virtual machines.
pub(super) const COMPUTE: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/azure/virtual-machines/error-codes-vm-virtual-machines",
    rows: &[
        Row::new(
            &["OperationNotAllowed"],
            Denied,
            "A rule of the resource provider forbids the operation.",
            "change the resource as the message says",
        ),
        Row::new(
            &["OperationNotAllowed", "QuotaExceeded"],
            Denied,
            "A quota of the region or the subscription is used up.",
            "choose another region or size, or request a higher quota",
        )
        .with_message_part("quota"),
        Row::new(
            &["SkuNotAvailable"],
            Denied,
            "The region or zone does not offer the size, or not to the subscription.",
            "choose another size, zone or region, or request access to the size from Azure support",
        ),
        Row::new(
            &["AllocationFailed", "ZonalAllocationFailed"],
            Denied,
            "The region or zone has no capacity for the size now.",
            "try again later, or choose another size, zone or region",
        ),
    ],
};

/// AKS clusters.
pub(super) const CONTAINER_SERVICE: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/troubleshoot/azure/azure-kubernetes/create-upgrade-delete/",
    rows: &[
        Row::new(
            &["OperationNotAllowed"],
            Busy,
            "Another operation changes the cluster.",
            "wait until the other operation of the cluster has ended; then run the command again",
        )
        .with_statuses(&[(409, 409)])
        .with_message_part("progress"),
        Row::new(
            &["CustomKubeletIdentityMissingPermissionError"],
            Propagating,
            "The identity of the cluster may not assign the kubelet's identity, or its role does not work yet.",
            "assign `Managed Identity Operator` at the kubelet's identity to the cluster's identity, then wait up to \
             10 minutes",
        ),
        Row::new(
            &["OIDCIssuerFeatureCannotBeDisabled"],
            Invalid,
            "The OIDC issuer of a cluster cannot be disabled.",
            "leave the OIDC issuer enabled",
        ),
    ],
};

/// Storage accounts and their containers.
pub(super) const STORAGE: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/rest/api/storagerp/srp_error_codes_common",
    rows: &[
        Row::new(
            &["StorageAccountAlreadyTaken"],
            Invalid,
            "Another storage account of Azure has the name.",
            "choose another name for the storage account",
        ),
        Row::new(
            &[
                "AccountNameInvalid",
                "ContainerNameInvalid",
                "AccountPropertyIsInvalid",
                "InvalidKeyName",
            ],
            Invalid,
            "A name or property of the storage account or container is invalid.",
            "correct the name or property in the message",
        ),
        Row::new(
            &["ContainerNotFound"],
            Denied,
            "The storage account has no such container.",
            "create the container, or correct its name",
        ),
        Row::new(
            &["PublicAccessNotPermitted"],
            Denied,
            "The storage account does not permit containers with public access.",
            "allow public access in the storage account; a policy of the subscription may forbid it",
        ),
    ],
};

/// Vaults and deleted vaults.
pub(super) const KEY_VAULT: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults",
    rows: &[
        Row::new(
            &["VaultAlreadyExists"],
            Denied,
            "Another vault of Azure has the name, or a deleted vault that is not purged.",
            "look for it with `az keyvault list-deleted`; recover it with `--recover`, purge it, or choose another name",
        ),
        Row::new(
            &["VaultNameNotValid"],
            Invalid,
            "The name of the vault is invalid.",
            "choose a name of 3 to 24 letters, digits and single hyphens that begins with a letter",
        ),
        Row::new(
            &["ConflictError"],
            Denied,
            "A deleted vault has the name.",
            "recover the deleted vault or purge it, or choose another name",
        ),
        Row::new(
            &["DeletedVaultNotFound"],
            Invalid,
            "There is no deleted vault with the name.",
            "check the name and the region of the deleted vault",
        ),
        Row::new(
            &["MethodNotAllowed"],
            Denied,
            "The state of the vault does not permit the operation, for example because of purge protection.",
            "wait until the retention period has passed, or choose another name",
        ),
        Row::new(
            &["InsufficientPermissions"],
            Denied,
            "The identity may not recover the deleted vault.",
            "assign `Key Vault Contributor` at the subscription to the identity, then wait up to 10 minutes",
        )
        .of_missing_permission(),
    ],
};

/// Managed identities and their federated credentials.
pub(super) const MANAGED_IDENTITY: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations",
    rows: &[
        Row::new(
            &["ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity"],
            Busy,
            "Another client writes a federated credential of the same identity.",
            "write the federated credentials of an identity one after the other",
        ),
        Row::new(
            &["FederatedIdentityCredentialsLimitExceeded"],
            Denied,
            "The identity has 20 federated credentials, and Azure permits no more.",
            "delete federated credentials that are not used, or use another identity",
        ),
        Row::new(
            &["InvalidFederatedIdentityCredential"],
            Invalid,
            "A value of the federated credential is invalid.",
            "correct issuer, subject or audience of the federated credential",
        ),
        Row::new(
            &["Conflict"],
            Denied,
            "Another federated credential of the identity has the issuer and the subject.",
            "delete the other federated credential, which the message names, or use its name",
        )
        .with_message_part("issuer and subject combination already exists"),
        Row::new(
            &["FailedIdentityOperation", "InvalidIdentityType"],
            Denied,
            "The resource refers to an identity that does not exist, or to a wrong type of identity.",
            "create the identity first, or correct `identity` of the resource",
        ),
    ],
};

/// Deployments of templates.
pub(super) const DEPLOYMENTS: ErrorCodeGroup = ErrorCodeGroup {
    source: "https://learn.microsoft.com/azure/azure-resource-manager/templates/deployment-tutorial-local-template",
    rows: &[
        Row::new(
            &["DeploymentFailed", "ResourceDeploymentFailure", "DeploymentOutputEvaluationFailed"],
            Denied,
            "A resource or an output of the deployment failed.",
            "list the operations of the deployment: the failed one has the error of its resource",
        ),
        Row::new(
            &["InvalidTemplateDeployment", "InvalidDeploymentName", "InvalidDeploymentLocation"],
            Invalid,
            "The template, the name or the region of the deployment is invalid.",
            "correct the value in the message",
        ),
        Row::new(
            &[
                "DeploymentNotFound",
                "DeploymentOperationNotFound",
                "DeploymentOperationStatusNotFound",
            ],
            Invalid,
            "There is no such deployment, or no such operation of it.",
            "check the name and the scope of the deployment",
        ),
        Row::new(
            &["DeploymentCannotBeCancelled"],
            Invalid,
            "The deployment has ended.",
            "read the state of the deployment",
        ),
    ],
};
