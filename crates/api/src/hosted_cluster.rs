//! The part of `HostedCluster` that identities travel through.
//!
//! API `hypershift.openshift.io/v1beta1`. Everything is optional, because what is required is a
//! rule and not a shape; the rules are the validation's. Fields that these types do not know stay
//! as they came.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod control_plane;
mod read;
#[cfg(test)]
mod tests;

pub use control_plane::ControlPlaneIdentities;
pub use read::{ReadHostedClusterError, UnquotedScalar};

/// A wire type: every field is optional and the unknown ones are kept.
macro_rules! wire {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $json:literal => $type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[serde(rename = $json, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
            /// Fields that this type does not know.
            #[serde(flatten)]
            pub unknown: Map<String, Value>,
        }
    };
}

wire! {
    /// A cluster whose control plane runs as pods of a management cluster.
    HostedCluster {
        /// [`HostedCluster::API_VERSION`].
        api_version: "apiVersion" => String,
        /// [`HostedCluster::KIND`].
        kind: "kind" => String,
        /// Name, namespace, labels, annotations.
        metadata: "metadata" => ObjectMeta,
        /// What the cluster should be.
        spec: "spec" => HostedClusterSpec,
    }
}

wire! {
    /// `spec`.
    HostedClusterSpec {
        /// The unique id that names of cloud resources are made of.
        infra_id: "infraID" => String,
        /// The id of the cluster, a UUID.
        cluster_id: "clusterID" => String,
        /// Where the cluster runs.
        platform: "platform" => PlatformSpec,
        /// The names of the cluster.
        dns: "dns" => DnsSpec,
        /// Parts of OpenShift that are switched on or off.
        capabilities: "capabilities" => ClusterCapabilities,
        /// Encryption of secrets at rest.
        secret_encryption: "secretEncryption" => SecretEncryption,
        /// The issuer of service account tokens.
        issuer_url: "issuerURL" => String,
        /// The Secret with the key that signs service account tokens.
        service_account_signing_key: "serviceAccountSigningKey" => LocalObjectReference,
        /// How the services of the control plane are published.
        services: "services" => Vec<PublishedService>,
    }
}

wire! {
    /// A reference to an object in the same namespace.
    LocalObjectReference {
        /// The name of the object.
        name: "name" => String,
    }
}

wire! {
    /// `spec.dns`.
    DnsSpec {
        /// The domain below which the cluster's names are.
        base_domain: "baseDomain" => String,
        /// The label between the base domain and the name; nothing means the cluster's name.
        base_domain_prefix: "baseDomainPrefix" => String,
        /// The id of the public zone.
        public_zone_id: "publicZoneID" => String,
        /// The id of the private zone.
        private_zone_id: "privateZoneID" => String,
    }
}

wire! {
    /// `spec.capabilities`.
    ClusterCapabilities {
        /// Capabilities that are on although they are off by default.
        enabled: "enabled" => Vec<String>,
        /// Capabilities that are off.
        disabled: "disabled" => Vec<String>,
    }
}

wire! {
    /// An entry of `spec.services`.
    PublishedService {
        /// `APIServer`, `OAuthServer`, `Konnectivity`, `Ignition`…
        service: "service" => String,
        /// How it is published.
        strategy: "servicePublishingStrategy" => PublishingStrategy,
    }
}

wire! {
    /// `servicePublishingStrategy` of a service.
    PublishingStrategy {
        /// `Route`, `LoadBalancer`…
        strategy_type: "type" => String,
    }
}

wire! {
    /// `spec.platform`: a union.
    PlatformSpec {
        /// The discriminator, `Azure` here.
        platform_type: "type" => String,
        /// The member for Azure.
        azure: "azure" => AzurePlatform,
    }
}

wire! {
    /// `spec.platform.azure`.
    AzurePlatform {
        /// The cloud.
        cloud: "cloud" => String,
        /// The region.
        location: "location" => String,
        /// The resource group of machines, disks and load balancers.
        resource_group: "resourceGroup" => String,
        /// The id of the virtual network.
        vnet_id: "vnetID" => String,
        /// The id of the subnet of the nodes.
        subnet_id: "subnetID" => String,
        /// The subscription of the cluster's resources.
        subscription_id: "subscriptionID" => String,
        /// The id of the network security group of the subnet.
        security_group_id: "securityGroupID" => String,
        /// The tenant of the cluster's resources.
        tenant_id: "tenantID" => String,
        /// How components authenticate.
        authentication: "azureAuthenticationConfig" => AzureAuthentication,
        /// How nodes authenticate to container registries.
        container_registry: "containerRegistry" => ContainerRegistry,
        /// `Public`, `PublicAndPrivate`, `Private`.
        topology: "topology" => String,
        /// Private connectivity.
        private: "private" => AzurePrivateSpec,
    }
}

wire! {
    /// `azureAuthenticationConfig`: a union.
    AzureAuthentication {
        /// The discriminator: `ManagedIdentities` or `WorkloadIdentities`.
        authentication_type: "azureAuthenticationConfigType" => String,
        /// The member for managed Azure.
        managed_identities: "managedIdentities" => ManagedIdentities,
        /// The member for self-managed Azure.
        workload_identities: "workloadIdentities" => WorkloadIdentities,
    }
}

wire! {
    /// `managedIdentities`.
    ManagedIdentities {
        /// The identities of components on the management cluster.
        control_plane: "controlPlane" => ControlPlaneIdentities,
        /// The identities of components on the nodes.
        data_plane: "dataPlane" => DataPlaneIdentities,
    }
}

wire! {
    /// `managedIdentitiesKeyVault`: the vault with the credentials of the control plane.
    IdentityVault {
        /// The name of the vault.
        name: "name" => String,
        /// The tenant of the vault; it need not be the cluster's.
        tenant_id: "tenantID" => String,
    }
}

wire! {
    /// The identity of one component.
    ManagedIdentity {
        /// The client id; only tooling needs it.
        client_id: "clientID" => String,
        /// How the credential is written into the vault's secret.
        object_encoding: "objectEncoding" => String,
        /// The name of the vault's secret.
        credentials_secret_name: "credentialsSecretName" => String,
    }
}

wire! {
    /// `dataPlane`: managed identities with federated credentials.
    DataPlaneIdentities {
        /// The image registry on the nodes.
        image_registry: "imageRegistryMSIClientID" => String,
        /// The disk driver on the nodes.
        disk: "diskMSIClientID" => String,
        /// The file driver on the nodes.
        file: "fileMSIClientID" => String,
    }
}

wire! {
    /// An identity with a federated credential.
    WorkloadIdentity {
        /// The client id.
        client_id: "clientID" => String,
    }
}

/// `workloadIdentities` of self-managed Azure, by component.
pub type WorkloadIdentities = BTreeMap<String, WorkloadIdentity>;

wire! {
    /// `containerRegistry`.
    ContainerRegistry {
        /// Where the credentials come from.
        credentials: "credentials" => RegistryCredentials,
    }
}

wire! {
    /// `containerRegistry.credentials`: a union.
    RegistryCredentials {
        /// The discriminator, `ManagedIdentity`.
        credentials_type: "type" => String,
        /// The identity of the nodes.
        managed_identity: "managedIdentity" => RegistryIdentity,
    }
}

wire! {
    /// `containerRegistry.credentials.managedIdentity`.
    RegistryIdentity {
        /// The id of the identity as a resource.
        resource_id: "resourceID" => String,
    }
}

wire! {
    /// `private`: a union.
    AzurePrivateSpec {
        /// The discriminator: `PrivateLink` or `Swift`.
        private_type: "type" => String,
        /// The member for Private Link.
        private_link: "privateLink" => PrivateLinkSpec,
        /// The member for Swift.
        swift: "swift" => SwiftSpec,
    }
}

wire! {
    /// `private.privateLink`.
    PrivateLinkSpec {
        /// The subnet for network address translation.
        nat_subnet_id: "natSubnetID" => String,
        /// Further subscriptions that may connect.
        additional_allowed_subscriptions: "additionalAllowedSubscriptions" => Vec<String>,
    }
}

wire! {
    /// `private.swift`.
    SwiftSpec {
        /// The pod network instance.
        pod_network_instance: "podNetworkInstance" => String,
    }
}

wire! {
    /// `spec.secretEncryption`: a union.
    SecretEncryption {
        /// The discriminator: `kms` or `aescbc`.
        encryption_type: "type" => String,
        /// The member for key management services.
        kms: "kms" => KmsSpec,
    }
}

wire! {
    /// `spec.secretEncryption.kms`: a union.
    KmsSpec {
        /// The discriminator: `IBMCloud`, `AWS` or `Azure`.
        provider: "provider" => String,
        /// The member for Azure.
        azure: "azure" => AzureKmsSpec,
    }
}

wire! {
    /// `spec.secretEncryption.kms.azure`.
    AzureKmsSpec {
        /// The key that encrypts.
        active_key: "activeKey" => KmsKey,
        /// A key that still decrypts.
        backup_key: "backupKey" => KmsKey,
        /// The identity, on managed Azure.
        kms: "kms" => ManagedIdentity,
        /// The identity, on self-managed Azure.
        workload_identity: "workloadIdentity" => WorkloadIdentity,
        /// `KeyVault` or `ManagedHSM`.
        key_vault_type: "keyVaultType" => String,
        /// `Public` or `Private`.
        key_vault_access: "keyVaultAccess" => String,
    }
}

wire! {
    /// A key in a vault.
    KmsKey {
        /// The vault.
        key_vault_name: "keyVaultName" => String,
        /// The key.
        key_name: "keyName" => String,
        /// The version of the key.
        key_version: "keyVersion" => String,
    }
}

impl HostedCluster {
    /// `apiVersion`.
    pub const API_VERSION: &str = "hypershift.openshift.io/v1beta1";
    /// `kind`.
    pub const KIND: &str = "HostedCluster";
    /// Annotation on objects made for a cluster: `<namespace>/<name>` of the cluster.
    pub const CLUSTER_ANNOTATION: &str = "hypershift.openshift.io/cluster";
    /// Annotation: the id of the cluster as an Azure resource; copied to the control-plane
    /// namespace.
    pub const RESOURCE_ID_ANNOTATION: &str = "azure.microsoft.com/hcp-cluster-azure-resource-id";
    /// Annotation: how load balancers probe services, `shared` or `servicenodeport`.
    pub const HEALTH_PROBE_MODE_ANNOTATION: &str =
        "hypershift.openshift.io/azure-load-balancer-health-probe-mode";
    /// Annotation: the path of the shared probe; the name is not of one platform.
    pub const HEALTH_PROBE_PATH_ANNOTATION: &str =
        "hypershift.openshift.io/shared-load-balancer-health-probe-path";
    /// Annotation: the port of the shared probe, from 1 to 65535.
    pub const HEALTH_PROBE_PORT_ANNOTATION: &str =
        "hypershift.openshift.io/shared-load-balancer-health-probe-port";
}
