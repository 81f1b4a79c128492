//! The Secret with the Azure settings of the cloud network config controller.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::ValidatedHostedCluster;
use super::render_context::{RenderContext, object_metadata};

/// The name of the Secret.
pub const NETWORK_SECRET: &str = "cloud-network-config-controller-creds";

/// The Secret contains resource locations and no credential; the CSI volume provides the
/// credential.
pub(super) fn desired_network_secret(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> Secret {
    let azure = &cluster.azure;
    let values = [
        ("azure_region", azure.location.clone()),
        ("azure_resource_prefix", format!("{}-{}", cluster.name, cluster.infra_id)),
        ("azure_resourcegroup", azure.resource_group.clone()),
        ("azure_subscription_id", azure.subscription.to_string()),
        ("azure_tenant_id", azure.tenant.0.to_string()),
    ];
    let data: BTreeMap<_, _> = values
        .into_iter()
        .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
        .collect();
    Secret {
        metadata: object_metadata(cluster, names, NETWORK_SECRET),
        data: Some(data),
        ..Secret::default()
    }
}
