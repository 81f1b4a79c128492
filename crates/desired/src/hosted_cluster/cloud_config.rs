//! The cloud configurations of the control plane and of the nodes, byte for byte as HyperShift
//! writes them.
//!
//! The format is JSON with two spaces of indentation, keys in a fixed order, no trailing newline,
//! and empty values included. There are two layouts: that of the cloud provider, which the storage
//! drivers share, and that of the KMS plugin, which spells one flag differently, lacks two keys and
//! names no network.
//!
//! A configuration with an unusable value of the HostedCluster cannot be rendered; the others are
//! not affected.
//!
//! Source: HyperShift's control plane operator and hypershift operator.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use lanyard_vocabulary::component::CredentialPathSource;
use serde::Serialize;

use super::render_context::{RenderContext, object_metadata};
use super::{LoadBalancerHealthProbe, ValidatedHostedCluster};
use crate::hash::escape_html;

/// The key of the cloud configuration in Secrets and `ConfigMap`s.
pub const CLOUD_CONFIG_KEY: &str = "cloud.conf";
/// The name of the `ConfigMap` with the cloud configuration of the nodes.
pub const WORKER_CONFIG_MAP: &str = "azure-cloud-config";

/// The JSON key with the path of the credential file.
pub const CREDENTIAL_PATH_KEY: &str = "aadMSIDataPlaneIdentityPath";

/// A configuration, or the name of the object that cannot be rendered.
pub(super) type RenderedConfig<T> = Result<T, &'static str>;

/// The Secrets with the layout of the KMS plugin.
const KMS_LAYOUT_SECRETS: &[&str] = &["azure-kms-config"];

/// The reader of a configuration in the cloud provider's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloudConfigReader {
    /// The nodes, which have their own identity and no credential file.
    Workers,
    /// The cloud controller manager.
    ControllerManager,
    /// A storage driver; its configuration omits load balancer settings.
    Storage,
}

/// The layout of the cloud provider.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CloudProviderConfig<'a> {
    cloud: &'a str,
    tenant_id: &'a str,
    use_managed_identity_extension: bool,
    use_federated_workload_identity_extension: bool,
    subscription_id: &'a str,
    aad_client_id: &'a str,
    aad_client_secret: &'a str,
    aad_client_cert_path: &'a str,
    aad_federated_token_file: &'a str,
    #[serde(rename = "aadMSIDataPlaneIdentityPath")]
    aad_msi_data_plane_identity_path: &'a str,
    resource_group: &'a str,
    location: &'a str,
    vnet_name: &'a str,
    vnet_resource_group: &'a str,
    subnet_name: &'a str,
    security_group_name: &'a str,
    security_group_resource_group: &'a str,
    route_table_name: &'a str,
    cloud_provider_backoff: bool,
    cloud_provider_backoff_duration: u32,
    use_instance_metadata: bool,
    load_balancer_sku: &'a str,
    #[serde(rename = "disableOutboundSNAT")]
    disable_outbound_snat: bool,
    load_balancer_name: &'a str,
    cluster_service_load_balancer_health_probe_mode: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_service_shared_load_balancer_health_probe_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_service_shared_load_balancer_health_probe_port: Option<u16>,
    #[serde(rename = "userAssignedIdentityID", skip_serializing_if = "Option::is_none")]
    user_assigned_identity_id: Option<&'a str>,
}

/// The layout of the KMS plugin. HyperShift leaves the names of network, subnet and security group
/// empty, and the plugin does not read them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KmsPluginCloudConfig<'a> {
    cloud: &'a str,
    tenant_id: &'a str,
    use_managed_identity_extension: bool,
    use_workload_identity_extension: bool,
    subscription_id: &'a str,
    aad_client_id: &'a str,
    aad_client_cert_path: &'a str,
    #[serde(rename = "aadMSIDataPlaneIdentityPath")]
    aad_msi_data_plane_identity_path: &'a str,
    resource_group: &'a str,
    location: &'a str,
    vnet_name: &'a str,
    vnet_resource_group: &'a str,
    subnet_name: &'a str,
    security_group_name: &'a str,
    security_group_resource_group: &'a str,
    route_table_name: &'a str,
    cloud_provider_backoff: bool,
    cloud_provider_backoff_duration: u32,
    use_instance_metadata: bool,
    load_balancer_sku: &'a str,
    #[serde(rename = "disableOutboundSNAT")]
    disable_outbound_snat: bool,
    load_balancer_name: &'a str,
}

/// Returns a Secret for every consumer that reads its credential path from a cloud configuration.
pub(super) fn desired_cloud_config_secrets(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> Vec<RenderedConfig<Secret>> {
    let mut secrets = Vec::new();
    for (component, identity) in cluster.running_components() {
        for consumer in component.consumers() {
            let path = format!("{}/{}", consumer.mount_path, identity.secret_name);
            let (name, text) = match consumer.path_source {
                CredentialPathSource::CloudConfig { secret, .. }
                    if KMS_LAYOUT_SECRETS.contains(&secret) =>
                {
                    (secret, Some(render_kms_plugin_config(cluster, &path)))
                }
                CredentialPathSource::CloudConfig { secret, .. } => (
                    secret,
                    render_cloud_provider_config(
                        cluster,
                        CloudConfigReader::ControllerManager,
                        &path,
                    ),
                ),
                CredentialPathSource::StorageOperator { secret, .. } => (
                    secret,
                    render_cloud_provider_config(cluster, CloudConfigReader::Storage, &path),
                ),
                _ => continue,
            };
            let to_secret = |text: String| Secret {
                metadata: object_metadata(cluster, names, name),
                data: Some(BTreeMap::from([(
                    CLOUD_CONFIG_KEY.to_owned(),
                    ByteString(text.into_bytes()),
                )])),
                ..Secret::default()
            };
            secrets.push(text.map(to_secret).ok_or(name));
        }
    }
    secrets
}

/// Returns the configuration of the nodes: the only one with the managed identity extension
/// enabled, because its credential path is empty.
pub(super) fn desired_worker_cloud_config(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> RenderedConfig<ConfigMap> {
    let text = render_cloud_provider_config(cluster, CloudConfigReader::Workers, "");
    let text = text.ok_or(WORKER_CONFIG_MAP)?;
    Ok(ConfigMap {
        metadata: object_metadata(cluster, names, WORKER_CONFIG_MAP),
        data: Some(BTreeMap::from([(CLOUD_CONFIG_KEY.to_owned(), text)])),
        ..ConfigMap::default()
    })
}

/// Returns `None` if the reader needs a value of the HostedCluster that cannot be used.
fn render_cloud_provider_config(
    cluster: &ValidatedHostedCluster,
    reader: CloudConfigReader,
    path: &str,
) -> Option<String> {
    let azure = &cluster.azure;
    let workers = reader == CloudConfigReader::Workers;
    let balances = reader != CloudConfigReader::Storage;
    let vnet = azure.vnet.as_ref()?;
    let load_balancer = if balances { Some(LoadBalancerSettings::of(cluster)?) } else { None };
    let balancer = load_balancer.unwrap_or_default();
    let registry = azure.registry_identity.as_ref().filter(|_| workers);
    Some(to_go_json(&CloudProviderConfig {
        cloud: azure.cloud.name(),
        tenant_id: azure.tenant.0.as_str(),
        use_managed_identity_extension: workers,
        use_federated_workload_identity_extension: false,
        subscription_id: azure.subscription.as_str(),
        aad_client_id: "",
        aad_client_secret: "",
        aad_client_cert_path: "",
        aad_federated_token_file: "",
        aad_msi_data_plane_identity_path: path,
        resource_group: &azure.resource_group,
        location: &azure.location,
        vnet_name: vnet.name(),
        vnet_resource_group: vnet.resource_group().unwrap_or_default(),
        subnet_name: balancer.subnet_name,
        security_group_name: balancer.security_group_name,
        security_group_resource_group: balancer.security_group_resource_group,
        route_table_name: "",
        cloud_provider_backoff: balances,
        cloud_provider_backoff_duration: if balances { BACKOFF_SECONDS } else { 0 },
        use_instance_metadata: workers,
        load_balancer_sku: balancer.sku,
        disable_outbound_snat: balances,
        load_balancer_name: balancer.name,
        cluster_service_load_balancer_health_probe_mode: balancer.probe_mode,
        cluster_service_shared_load_balancer_health_probe_path: balancer.probe_path,
        cluster_service_shared_load_balancer_health_probe_port: balancer.probe_port,
        user_assigned_identity_id: registry.map(lanyard_vocabulary::ArmResourceId::as_str),
    }))
}

/// The settings of load balancers; those of a reader without load balancers are empty.
#[derive(Debug, Default)]
struct LoadBalancerSettings<'a> {
    name: &'a str,
    sku: &'a str,
    subnet_name: &'a str,
    security_group_name: &'a str,
    security_group_resource_group: &'a str,
    probe_mode: &'a str,
    probe_path: Option<&'a str>,
    probe_port: Option<u16>,
}

impl<'a> LoadBalancerSettings<'a> {
    /// Returns `None` if a value of the HostedCluster cannot be used.
    fn of(cluster: &'a ValidatedHostedCluster) -> Option<Self> {
        let azure = &cluster.azure;
        let security_group = azure.security_group.as_ref()?;
        let probe = azure.health_probe.as_ref()?;
        let (probe_path, probe_port) = match probe {
            LoadBalancerHealthProbe::SharedAt { path, port } => (path.as_deref(), *port),
            LoadBalancerHealthProbe::Shared | LoadBalancerHealthProbe::ServiceNodePort => {
                (None, None)
            }
        };
        Some(Self {
            name: cluster.infra_id.as_str(),
            sku: LOAD_BALANCER_SKU,
            subnet_name: azure.subnet.name(),
            security_group_name: security_group.name(),
            security_group_resource_group: security_group.resource_group().unwrap_or_default(),
            probe_mode: probe.mode(),
            probe_path,
            probe_port,
        })
    }
}

fn render_kms_plugin_config(cluster: &ValidatedHostedCluster, path: &str) -> String {
    let azure = &cluster.azure;
    to_go_json(&KmsPluginCloudConfig {
        cloud: azure.cloud.name(),
        tenant_id: azure.tenant.0.as_str(),
        use_managed_identity_extension: false,
        use_workload_identity_extension: false,
        subscription_id: azure.subscription.as_str(),
        aad_client_id: "",
        aad_client_cert_path: "",
        aad_msi_data_plane_identity_path: path,
        resource_group: &azure.resource_group,
        location: &azure.location,
        vnet_name: "",
        vnet_resource_group: "",
        subnet_name: "",
        security_group_name: "",
        security_group_resource_group: "",
        route_table_name: "",
        cloud_provider_backoff: true,
        cloud_provider_backoff_duration: BACKOFF_SECONDS,
        use_instance_metadata: false,
        load_balancer_sku: LOAD_BALANCER_SKU,
        disable_outbound_snat: true,
        load_balancer_name: cluster.infra_id.as_str(),
    })
}

const BACKOFF_SECONDS: u32 = 6;
const LOAD_BALANCER_SKU: &str = "standard";

/// Serializes like Go's JSON encoder, which escapes `<`, `>` and `&` for HTML.
fn to_go_json(config: &impl Serialize) -> String {
    // Serializing a struct of strings, numbers and booleans cannot fail.
    let text = serde_json::to_string_pretty(config).unwrap_or_default();
    let mut escaped = String::with_capacity(text.len());
    escape_html(&text, &mut escaped);
    escaped
}
