//! `AzureClusterIdentity`: the identity of Cluster API Provider Azure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::CredentialPathSource;
use serde::{Deserialize, Serialize};

use super::ValidatedHostedCluster;
use super::render_context::{RenderContext, object_metadata};

/// An identity of Cluster API Provider Azure, `infrastructure.cluster.x-k8s.io/v1beta1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureClusterIdentity {
    /// [`AzureClusterIdentity::API_VERSION`].
    pub api_version: String,
    /// [`AzureClusterIdentity::KIND`].
    pub kind: String,
    /// The name of the cluster and the namespace of its control plane.
    pub metadata: ObjectMeta,
    /// The identity.
    pub spec: AzureClusterIdentitySpec,
}

/// `spec` of an [`AzureClusterIdentity`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureClusterIdentitySpec {
    /// `UserAssignedIdentityCredential`.
    #[serde(rename = "type")]
    pub identity_type: String,
    /// The tenant of the cluster's resources.
    #[serde(rename = "tenantID")]
    pub tenant_id: String,
    /// Always empty; the schema requires the field.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// The path of the credential file in the manager's container.
    pub user_assigned_identity_credentials_path: String,
    /// `public`, `usgovernment` or `china`.
    pub user_assigned_identity_credentials_cloud_type: String,
    /// The namespaces that may use the identity.
    pub allowed_namespaces: AllowedNamespaces,
}

/// Namespaces whose clusters may use an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedNamespaces {
    /// The namespaces.
    pub list: Vec<String>,
}

impl AzureClusterIdentity {
    /// `apiVersion`.
    pub const API_VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
    /// `kind`.
    pub const KIND: &str = "AzureClusterIdentity";
}

/// Returns `None` if the provider does not support the cloud.
pub(super) fn desired_cluster_identity(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> Option<AzureClusterIdentity> {
    let cloud_type = cluster.azure.cloud.cluster_identity_type()?;
    let (consumer, identity) = cluster.running_components().find_map(|(component, identity)| {
        let consumers = Component::consumers(component);
        let consumer = consumers
            .iter()
            .find(|consumer| consumer.path_source == CredentialPathSource::ClusterIdentity)?;
        Some((consumer, identity))
    })?;
    Some(AzureClusterIdentity {
        api_version: AzureClusterIdentity::API_VERSION.to_owned(),
        kind: AzureClusterIdentity::KIND.to_owned(),
        metadata: object_metadata(cluster, names, &cluster.name),
        spec: AzureClusterIdentitySpec {
            identity_type: "UserAssignedIdentityCredential".to_owned(),
            tenant_id: cluster.azure.tenant.0.to_string(),
            client_id: String::new(),
            user_assigned_identity_credentials_path: format!(
                "{}/{}",
                consumer.mount_path, identity.secret_name
            ),
            user_assigned_identity_credentials_cloud_type: cloud_type.to_owned(),
            allowed_namespaces: AllowedNamespaces { list: vec![cluster.control_plane_namespace()] },
        },
    })
}
