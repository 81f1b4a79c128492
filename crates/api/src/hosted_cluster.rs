//! The part of the `HostedCluster` API that lanyard reads.
//!
//! API `hypershift.openshift.io/v1beta1`. Every field is optional, because validation checks for
//! required fields and deserialization does not. Unknown fields are preserved.

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

/// Defines a wire type: every field is optional, and unknown fields are preserved.
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
            /// Fields that this type does not define, preserved as they were read.
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
        /// The desired state of the cluster.
        spec: "spec" => HostedClusterSpec,
    }
}

wire! {
    /// `spec`.
    HostedClusterSpec {
        /// The unique id from which the names of cloud resources are built.
        infra_id: "infraID" => String,
        /// The id of the cluster, a UUID.
        cluster_id: "clusterID" => String,
        /// The platform on which the cluster runs.
        platform: "platform" => PlatformSpec,
        /// The DNS settings of the cluster.
        dns: "dns" => DnsSpec,
        /// Optional OpenShift capabilities that are enabled or disabled.
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
        /// The parent domain of the cluster's DNS names.
        base_domain: "baseDomain" => String,
        /// The label between the base domain and the name; defaults to the cluster's name.
        base_domain_prefix: "baseDomainPrefix" => String,
        /// The id of the public DNS zone.
        public_zone_id: "publicZoneID" => String,
        /// The id of the private DNS zone.
        private_zone_id: "privateZoneID" => String,
    }
}

wire! {
    /// `spec.capabilities`.
    ClusterCapabilities {
        /// Capabilities to enable that are disabled by default.
        enabled: "enabled" => Vec<String>,
        /// Capabilities to disable.
        disabled: "disabled" => Vec<String>,
    }
}

wire! {
    /// An entry of `spec.services`.
    PublishedService {
        /// `APIServer`, `OAuthServer`, `Konnectivity`, `Ignition`…
        service: "service" => String,
        /// How the service is published.
        strategy: "servicePublishingStrategy" => PublishingStrategy,
    }
}

wire! {
    /// `servicePublishingStrategy` of a service.
    PublishingStrategy {
        /// The type: `Route`, `LoadBalancer`…
        strategy_type: "type" => String,
        /// The union member for a node port.
        node_port: "nodePort" => NodePortStrategy,
        /// The union member for a load balancer of its own.
        load_balancer: "loadBalancer" => NamedEndpoint,
        /// The union member for a route.
        route: "route" => NamedEndpoint,
    }
}

wire! {
    /// `servicePublishingStrategy.nodePort`.
    NodePortStrategy {
        /// The address: a DNS name or an IP address.
        address: "address" => String,
        /// The port; zero selects one.
        port: "port" => i32,
    }
}

wire! {
    /// `servicePublishingStrategy.route` and `servicePublishingStrategy.loadBalancer`.
    NamedEndpoint {
        /// The DNS name.
        hostname: "hostname" => String,
    }
}

wire! {
    /// `spec.platform`: a union.
    PlatformSpec {
        /// The discriminator; lanyard supports `Azure`.
        platform_type: "type" => String,
        /// The union member for Azure.
        azure: "azure" => AzurePlatform,
    }
}

wire! {
    /// `spec.platform.azure`.
    AzurePlatform {
        /// The Azure cloud.
        cloud: "cloud" => String,
        /// The Azure region.
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
        /// The endpoint access: `Public`, `PublicAndPrivate` or `Private`.
        topology: "topology" => String,
        /// The private connectivity settings.
        private: "private" => AzurePrivateSpec,
    }
}

wire! {
    /// `azureAuthenticationConfig`: a union.
    AzureAuthentication {
        /// The discriminator: `ManagedIdentities` or `WorkloadIdentities`.
        authentication_type: "azureAuthenticationConfigType" => String,
        /// The union member for managed Azure (ARO HCP).
        managed_identities: "managedIdentities" => ManagedIdentities,
        /// The union member for self-managed Azure.
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
        /// The tenant of the vault, which may differ from the cluster's tenant.
        tenant_id: "tenantID" => String,
    }
}

wire! {
    /// The managed identity of one component.
    ManagedIdentity {
        /// The client id. Only tooling needs it: the credential document contains the client id,
        /// too.
        client_id: "clientID" => String,
        /// The encoding of the credential in the vault's secret.
        object_encoding: "objectEncoding" => String,
        /// The name of the vault's secret.
        credentials_secret_name: "credentialsSecretName" => String,
    }
}

wire! {
    /// `dataPlane`: managed identities with federated credentials.
    DataPlaneIdentities {
        /// The client id of the image registry on the nodes.
        image_registry: "imageRegistryMSIClientID" => String,
        /// The client id of the disk CSI driver on the nodes.
        disk: "diskMSIClientID" => String,
        /// The client id of the file CSI driver on the nodes.
        file: "fileMSIClientID" => String,
    }
}

wire! {
    /// An identity with a federated credential.
    WorkloadIdentity {
        client_id: "clientID" => String,
    }
}

/// `workloadIdentities` of self-managed Azure, keyed by component field.
pub type WorkloadIdentities = BTreeMap<String, WorkloadIdentity>;

wire! {
    /// `containerRegistry`.
    ContainerRegistry {
        /// The source of the registry credentials.
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
        /// The Azure resource id of the identity.
        resource_id: "resourceID" => String,
    }
}

wire! {
    /// `private`: a union.
    AzurePrivateSpec {
        /// The discriminator: `PrivateLink` or `Swift`.
        private_type: "type" => String,
        /// The union member for Private Link.
        private_link: "privateLink" => PrivateLinkSpec,
        /// The union member for Swift.
        swift: "swift" => SwiftSpec,
    }
}

wire! {
    /// `private.privateLink`.
    PrivateLinkSpec {
        /// The subnet for network address translation.
        nat_subnet_id: "natSubnetID" => String,
        /// Additional subscriptions that may connect.
        additional_allowed_subscriptions: "additionalAllowedSubscriptions" => Vec<String>,
    }
}

wire! {
    /// `private.swift`.
    SwiftSpec {
        pod_network_instance: "podNetworkInstance" => String,
    }
}

wire! {
    /// `spec.secretEncryption`: a union.
    SecretEncryption {
        /// The discriminator: `kms` or `aescbc`.
        encryption_type: "type" => String,
        /// The union member for a key management service.
        kms: "kms" => KmsSpec,
        /// The union member for a key in a Secret.
        aescbc: "aescbc" => AesCbcSpec,
    }
}

wire! {
    /// `spec.secretEncryption.aescbc`.
    AesCbcSpec {
        /// The Secret with the key that encrypts new data.
        active_key: "activeKey" => LocalObjectReference,
        /// The Secret with a previous key that only decrypts.
        backup_key: "backupKey" => LocalObjectReference,
    }
}

wire! {
    /// `spec.secretEncryption.kms`: a union.
    KmsSpec {
        /// The discriminator: `IBMCloud`, `AWS` or `Azure`.
        provider: "provider" => String,
        /// The union member for Azure.
        azure: "azure" => AzureKmsSpec,
        /// The union member for AWS.
        aws: "aws" => AwsKmsSpec,
        /// The union member for IBM Cloud.
        ibm_cloud: "ibmcloud" => IbmKmsSpec,
    }
}

wire! {
    /// `spec.secretEncryption.kms.aws`.
    AwsKmsSpec {
        region: "region" => String,
        /// The key that encrypts new data.
        active_key: "activeKey" => AwsKmsKey,
        /// A previous key that only decrypts.
        backup_key: "backupKey" => AwsKmsKey,
        /// The role that may use the key.
        auth: "auth" => AwsKmsAuth,
    }
}

wire! {
    /// A key of AWS KMS.
    AwsKmsKey {
        /// The Amazon Resource Name.
        arn: "arn" => String,
    }
}

wire! {
    /// `spec.secretEncryption.kms.aws.auth`.
    AwsKmsAuth {
        /// The Amazon Resource Name of the role.
        role_arn: "awsKms" => String,
    }
}

wire! {
    /// `spec.secretEncryption.kms.ibmcloud`.
    IbmKmsSpec {
        region: "region" => String,
        /// How the plugin authenticates.
        auth: "auth" => IbmKmsAuth,
        /// The keys.
        key_list: "keyList" => Vec<IbmKmsKey>,
    }
}

wire! {
    /// `spec.secretEncryption.kms.ibmcloud.auth`: a union.
    IbmKmsAuth {
        /// The discriminator: `Managed` or `Unmanaged`.
        auth_type: "type" => String,
        /// The union member for authentication between services; it has no fields.
        managed: "managed" => Map<String, Value>,
        /// The union member for credentials of the user.
        unmanaged: "unmanaged" => IbmUnmanagedAuth,
    }
}

wire! {
    /// `spec.secretEncryption.kms.ibmcloud.auth.unmanaged`.
    IbmUnmanagedAuth {
        /// The Secret with the API key.
        credentials: "credentials" => LocalObjectReference,
    }
}

wire! {
    /// A key of IBM Cloud.
    IbmKmsKey {
        /// The id of the root key.
        root_key_id: "crkID" => String,
        /// The id of the instance of the key service.
        instance_id: "instanceID" => String,
        /// The id that marks the calls of the plugin.
        correlation_id: "correlationID" => String,
        /// The URL of the key service.
        url: "url" => String,
        /// The number of the key.
        key_version: "keyVersion" => i64,
    }
}

wire! {
    /// `spec.secretEncryption.kms.azure`.
    AzureKmsSpec {
        /// The key that encrypts new data.
        active_key: "activeKey" => KmsKey,
        /// A previous key that only decrypts.
        backup_key: "backupKey" => KmsKey,
        /// The managed identity that uses the key, on managed Azure.
        kms: "kms" => ManagedIdentity,
        /// The workload identity that uses the key, on self-managed Azure.
        workload_identity: "workloadIdentity" => WorkloadIdentity,
        /// The type of the key store: `KeyVault` or `ManagedHSM`.
        key_vault_type: "keyVaultType" => String,
        /// The network access to the vault: `Public` or `Private`.
        key_vault_access: "keyVaultAccess" => String,
    }
}

wire! {
    /// A key in a vault.
    KmsKey {
        key_vault_name: "keyVaultName" => String,
        key_name: "keyName" => String,
        key_version: "keyVersion" => String,
    }
}

impl HostedCluster {
    /// `apiVersion`.
    pub const API_VERSION: &str = "hypershift.openshift.io/v1beta1";
    /// `kind`.
    pub const KIND: &str = "HostedCluster";
    /// Annotation on objects created for a cluster: the cluster's `<namespace>/<name>`.
    pub const CLUSTER_ANNOTATION: &str = "hypershift.openshift.io/cluster";
    /// Annotation: the Azure resource id of the cluster, copied to the control-plane namespace.
    pub const RESOURCE_ID_ANNOTATION: &str = "azure.microsoft.com/hcp-cluster-azure-resource-id";
    /// Annotation: how load balancers probe services: `shared` or `servicenodeport`.
    pub const HEALTH_PROBE_MODE_ANNOTATION: &str =
        "hypershift.openshift.io/azure-load-balancer-health-probe-mode";
    /// Annotation: the path of the shared probe. The annotation's name is not specific to Azure.
    pub const HEALTH_PROBE_PATH_ANNOTATION: &str =
        "hypershift.openshift.io/shared-load-balancer-health-probe-path";
    /// Annotation: the port of the shared probe, from 1 to 65535.
    pub const HEALTH_PROBE_PORT_ANNOTATION: &str =
        "hypershift.openshift.io/shared-load-balancer-health-probe-port";
}
