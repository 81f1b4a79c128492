//! `AzureCluster`: the infrastructure of the cluster for Cluster API Provider Azure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::ValidatedHostedCluster;
use super::cluster_identity::AzureClusterIdentity;
use super::control_plane_endpoint::ControlPlaneEndpoint;
use super::render_context::{RenderContext, object_metadata};

/// Annotation of Cluster API: the infrastructure is managed outside of Cluster API, so the provider
/// creates no resources for it.
const MANAGED_BY_ANNOTATION: &str = "cluster.x-k8s.io/managed-by";
const MANAGED_BY_EXTERNAL: &str = "external";

/// A cluster of Cluster API Provider Azure, `infrastructure.cluster.x-k8s.io/v1beta1`.
///
/// Its machines use the identity that it refers to. Source: HyperShift's hypershift operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureCluster {
    /// [`AzureCluster::API_VERSION`].
    pub api_version: String,
    /// [`AzureCluster::KIND`].
    pub kind: String,
    /// The name of the cluster and the namespace of its control plane.
    pub metadata: ObjectMeta,
    /// The infrastructure.
    pub spec: AzureClusterSpec,
}

/// `spec` of an [`AzureCluster`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureClusterSpec {
    /// The region.
    pub location: String,
    /// The resource group of the machines.
    pub resource_group: String,
    /// The subscription of the machines.
    #[serde(rename = "subscriptionID")]
    pub subscription_id: String,
    /// The network of the machines.
    pub network_spec: AzureClusterNetwork,
    /// The address of the hosted API server, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The [`AzureClusterIdentity`] that manages the machines.
    pub identity_ref: IdentityReference,
}

/// The network of an [`AzureCluster`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureClusterNetwork {
    /// The virtual network.
    pub vnet: AzureClusterVnet,
    /// The load balancer for outgoing connections of the nodes.
    #[serde(rename = "nodeOutboundLB")]
    pub node_outbound_lb: NamedLoadBalancer,
}

/// The virtual network of an [`AzureCluster`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureClusterVnet {
    /// The resource id.
    pub id: String,
    /// The name.
    pub name: String,
    /// The resource group.
    pub resource_group: String,
}

/// A load balancer, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedLoadBalancer {
    /// The infra id of the cluster.
    pub name: String,
    /// The backend pool.
    pub backend_pool: BackendPool,
}

/// The backend pool of a load balancer, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendPool {
    /// The infra id of the cluster.
    pub name: String,
}

/// A reference to an [`AzureClusterIdentity`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityReference {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
}

impl AzureCluster {
    /// `apiVersion`.
    pub const API_VERSION: &str = AzureClusterIdentity::API_VERSION;
    /// `kind`.
    pub const KIND: &str = "AzureCluster";
}

/// Returns `None` if the virtual network of the HostedCluster cannot be used.
pub(super) fn desired_azure_cluster(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> Option<AzureCluster> {
    let azure = &cluster.azure;
    let vnet = azure.vnet.as_ref()?;
    let infra_id = || cluster.infra_id.as_str().to_owned();
    let mut metadata = object_metadata(cluster, names, &cluster.name);
    let managed_by = (MANAGED_BY_ANNOTATION.to_owned(), MANAGED_BY_EXTERNAL.to_owned());
    metadata.annotations.get_or_insert_with(BTreeMap::new).extend([managed_by]);
    Some(AzureCluster {
        api_version: AzureCluster::API_VERSION.to_owned(),
        kind: AzureCluster::KIND.to_owned(),
        metadata,
        spec: AzureClusterSpec {
            location: azure.location.clone(),
            resource_group: azure.resource_group.clone(),
            subscription_id: azure.subscription.to_string(),
            network_spec: AzureClusterNetwork {
                vnet: AzureClusterVnet {
                    id: vnet.to_string(),
                    name: vnet.name().to_owned(),
                    resource_group: vnet.resource_group().unwrap_or_default().to_owned(),
                },
                node_outbound_lb: NamedLoadBalancer {
                    name: infra_id(),
                    backend_pool: BackendPool { name: infra_id() },
                },
            },
            control_plane_endpoint: names.control_plane_endpoint.clone(),
            identity_ref: IdentityReference {
                name: cluster.name.clone(),
                namespace: cluster.control_plane_namespace(),
            },
        },
    })
}
