//! Managed clusters (AKS) and their agent pools, as state. Reference: Microsoft.ContainerService, 2025-10-01.
//!
//! A cluster has the identities that it has in Azure: one of the control plane, and two in the node
//! resource group, which are those of the kubelets and of the Key Vault add-on.

pub(crate) mod agent_pools;
pub(crate) mod issuer_documents;
mod issuer_profile;
mod kubernetes_versions;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_reply};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::request_scopes::{parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_identity::complete_identity;
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule, ResourceType, resource_name};
use lanyard_emulator_arm::{child_operations, full, resource_operations, rg, sub};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::directory::ServicePrincipal;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{
    ArmResource, ArmResourceStore, RESOURCE_GROUP_TYPE,
};
use lanyard_vocabulary::ArmResourceId;
use serde_json::{Map, Value, json};

pub(super) use self::agent_pools::AGENT_POOL;
use self::agent_pools::{AGENT_POOL_TYPE, pool_profile, pool_resource, require_system_pool};
use self::issuer_profile::{prepare_issuer, publish_issuer};
use self::kubernetes_versions::{list_versions, resolve_version};

pub(super) use lanyard_emulator_state::managed_clusters::MANAGED_CLUSTER_TYPE as MANAGED_CLUSTER;
const USER_ASSIGNED: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[CLUSTER_TYPE, AGENT_POOL_TYPE];

const CLUSTER_TYPE: ResourceType = ResourceType {
    prepare: prepare_cluster,
    release: |azure, cluster, now| {
        azure.remove_cluster_state(cluster, now);
        node_group_of(cluster).into_iter().collect()
    },
    render: Some(render_cluster),
    deletion_status: StatusCode::NO_CONTENT,
    ..ResourceType::regional(
        MANAGED_CLUSTER,
        NamingRule {
            length: (1, 63),
            punctuation: "-_",
            last: NameEdge::Alphanumeric,
            ..NamingRule::word(63)
        },
        "2017-08-31",
    )
};

pub(super) const CLUSTERS: &[ServiceOperation] =
    resource_operations!("ManagedClusters", "Microsoft.ContainerService/managedClusters");

pub(super) const AGENT_POOLS: &[ServiceOperation] =
    child_operations!("AgentPools", "Microsoft.ContainerService/managedClusters/{name}/agentPools");

pub(super) const ACTIONS: &[ServiceOperation] = &[
    full!(
        "ManagedClusters_ListKubernetesVersions",
        GET,
        sub!("Microsoft.ContainerService/locations/{location}/kubernetesVersions"),
        list_versions
    ),
    full!(
        "ManagedClusters_ListClusterUserCredentials",
        POST,
        rg!("Microsoft.ContainerService/managedClusters/{name}/listClusterUserCredential"),
        |call| list_credentials(call, "listClusterUserCredential", "clusterUser")
    ),
    full!(
        "ManagedClusters_ListClusterAdminCredentials",
        POST,
        rg!("Microsoft.ContainerService/managedClusters/{name}/listClusterAdminCredential"),
        |call| list_credentials(call, "listClusterAdminCredential", "clusterAdmin")
    ),
];

fn prepare_cluster(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let requested = write.properties.get("kubernetesVersion").and_then(Value::as_str);
    let existing = write.existing.as_ref().and_then(|it| it.property("kubernetesVersion"));
    let requested = requested.filter(|text| !text.is_empty()).or(existing.and_then(Value::as_str));
    let version = resolve_version(requested)?;
    let requested = requested.map_or_else(|| version.minor(), ToOwned::to_owned);
    write.properties.insert("kubernetesVersion".to_owned(), json!(requested));
    write.properties.insert("currentKubernetesVersion".to_owned(), json!(version.patch()));
    let region = write.body.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
    // First, because new key pairs need a second run of the operation.
    let issuer = prepare_issuer(write, &region)?;
    complete_identity(write)?;
    reject_changed_properties(write)?;
    set_names(write, &region);
    let node_group = ensure_node_group(write, &region)?;
    let profile = write.properties.get("identityProfile").and_then(|it| it.get("kubeletidentity"));
    if profile.is_none_or(|it| it["resourceId"].as_str().is_none()) {
        let name = format!("{}-agentpool", resource_name(write.id));
        let identity = ensure_identity(write, &node_group, &name, &region)?;
        write
            .properties
            .insert("identityProfile".to_owned(), json!({ "kubeletidentity": identity }));
    }
    complete_add_ons(write, &node_group, &region)?;
    set_defaults(write);
    take_pools(write, version.patch())?;
    publish_issuer(write, issuer)
}

/// The properties that a client can set only when it creates a cluster.
const FIXED_PROPERTIES: [&str; 2] = ["dnsPrefix", "nodeResourceGroup"];

/// Rejects other values of properties that cannot change after the creation of a cluster.
fn reject_changed_properties(write: &ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let Some(existing) = &write.existing else { return Ok(()) };
    let is_changed = |name: &str| {
        let (before, after) = (existing.property(name), write.properties.get(name));
        after.is_some_and(|after| !after.is_null() && Some(after) != before)
    };
    match FIXED_PROPERTIES.into_iter().find(|name| is_changed(name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("Changing property 'properties.{name}' is not allowed.");
            Err(conflict("PropertyChangeNotAllowed", message))
        }
    }
}

/// Sets the DNS names, and the name of the node resource group.
fn set_names(write: &mut ResourceWrite<'_, '_>, region: &str) {
    let name = resource_name(write.id);
    let group = write.call.path_parameter("group");
    write.default_property("dnsPrefix", json!(format!("{name}-dns")));
    let prefix = write.properties["dnsPrefix"].as_str().unwrap_or_default().to_owned();
    let unique = write.call.ids.next_hex32();
    let unique = &unique[..8];
    write.service_property("fqdn", || json!(format!("{prefix}-{unique}.hcp.{region}.azmk8s.io")));
    let portal = format!("{prefix}-{unique}.portal.hcp.{region}.azmk8s.io");
    write.service_property("azurePortalFQDN", || json!(portal));
    write.default_property("nodeResourceGroup", json!(format!("MC_{group}_{name}_{region}")));
    write.properties.insert("powerState".to_owned(), json!({ "code": "Running" }));
    let id = write.call.ids.next_hex32();
    write.service_property("resourceUID", || json!(&id[..24]));
}

/// Returns the id of the node resource group, which it creates if it is missing.
fn ensure_node_group(
    write: &mut ResourceWrite<'_, '_>,
    region: &str,
) -> Result<AccessScope, ServiceReply> {
    let name = write.properties["nodeResourceGroup"].as_str().unwrap_or_default();
    let subscription = write.call.path_parameter("subscription");
    let id = parse_request_scope(&format!("/subscriptions/{subscription}/resourceGroups/{name}"))?;
    if write.resources().resource(&id).is_none() {
        let body = json!({
            "location": region,
            "managedBy": write.id.as_str(),
            "tags": {},
            "properties": { "provisioningState": "Succeeded" },
        });
        write.others.push(ArmResource::new(id.clone(), RESOURCE_GROUP_TYPE, body, write.call.now));
    }
    Ok(id)
}

/// Returns the resource, client and object id of an identity in the node resource group, which it
/// creates if it is missing.
fn ensure_identity(
    write: &mut ResourceWrite<'_, '_>,
    node_group: &AccessScope,
    name: &str,
    region: &str,
) -> Result<Value, ServiceReply> {
    let id = node_group.child(&format!("providers/{USER_ASSIGNED}/{name}"));
    let resource_id: ArmResourceId =
        id.as_str().parse().map_err(|error: lanyard_vocabulary::ParseArmResourceIdError| {
            bad_request("InvalidResourceId", error.to_string())
        })?;
    if let Some(principal) = write.call.azure().directory.managed_identity(&resource_id) {
        return Ok(identity_json(&id, principal));
    }
    let subscription = write.call.path_parameter("subscription");
    let known = write.resources().subscription(subscription);
    let Some(tenant) = known.map(|known| known.tenant.clone()) else {
        return Err(ArmServiceError::SubscriptionNotFound(subscription).to_reply());
    };
    let now = write.call.now;
    let (azure, ids) = write.call.azure_and_ids();
    let principal = azure.directory.create_managed_identity(&resource_id, tenant, ids, now);
    let identity = identity_json(&id, &principal);
    let body = json!({
        "location": region,
        "tags": {},
        "properties": {
            "tenantId": principal.tenant,
            "principalId": principal.object_id,
            "clientId": principal.client_id,
        },
    });
    write.others.push(ArmResource::new(id, USER_ASSIGNED, body, write.call.now));
    Ok(identity)
}

fn identity_json(id: &AccessScope, principal: &ServicePrincipal) -> Value {
    json!({
        "resourceId": id.as_str(),
        "clientId": principal.client_id,
        "objectId": principal.object_id,
    })
}

/// Completes `addonProfiles`. The Key Vault add-on gets an identity of its own.
fn complete_add_ons(
    write: &mut ResourceWrite<'_, '_>,
    node_group: &AccessScope,
    region: &str,
) -> Result<(), ServiceReply> {
    let mut add_ons = match write.properties.remove("addonProfiles") {
        Some(Value::Object(add_ons)) => add_ons,
        _ => Map::new(),
    };
    let name = add_ons
        .keys()
        .find(|name| name.eq_ignore_ascii_case("azureKeyvaultSecretsProvider"))
        .cloned();
    if let Some(add_on) = name.and_then(|name| add_ons.get_mut(&name))
        && add_on["enabled"] == json!(true)
    {
        let identity = format!("azurekeyvaultsecretsprovider-{}", resource_name(write.id));
        add_on["identity"] = ensure_identity(write, node_group, &identity, region)?;
    }
    write.properties.insert("addonProfiles".to_owned(), Value::Object(add_ons));
    Ok(())
}

fn set_defaults(write: &mut ResourceWrite<'_, '_>) {
    let mut network = json!({
        "networkPlugin": "azure",
        "networkPluginMode": "overlay",
        "networkDataplane": "azure",
        "loadBalancerSku": "standard",
        "outboundType": "loadBalancer",
        "podCidr": "10.244.0.0/16",
        "serviceCidr": "10.0.0.0/16",
        "dnsServiceIP": "10.0.0.10",
        "ipFamilies": ["IPv4"],
    });
    if let Some(Value::Object(given)) = write.properties.get("networkProfile") {
        for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            network[name] = value.clone();
        }
    }
    write.properties.insert("networkProfile".to_owned(), network);
    write.default_property("enableRBAC", json!(true));
    write.default_property("disableLocalAccounts", json!(false));
    write.default_property("maxAgentPools", json!(100));
    write.default_property("supportPlan", json!("KubernetesOfficial"));
    write.default_property("securityProfile", json!({}));
    write.default_property("servicePrincipalProfile", json!({ "clientId": "msi" }));
    write.body.entry("sku").or_insert(json!({ "name": "Base", "tier": "Free" }));
}

/// Moves the agent pools in the body to child resources.
fn take_pools(write: &mut ResourceWrite<'_, '_>, version: &str) -> Result<(), ServiceReply> {
    let pools = match write.properties.remove("agentPoolProfiles") {
        Some(Value::Array(pools)) => pools,
        _ if write.existing.is_some() => return Ok(()),
        _ => Vec::new(),
    };
    let mut children = Vec::new();
    for pool in pools {
        children.push(pool_resource(write, pool, version)?);
    }
    require_system_pool(children.iter())?;
    write.replace_children(AGENT_POOL, children);
    Ok(())
}

fn render_cluster(resources: &ArmResourceStore, cluster: &ArmResource) -> Value {
    let mut wire = cluster.to_json();
    let pools: Vec<_> =
        resources.of_type_within(&cluster.id, AGENT_POOL).map(pool_profile).collect();
    wire["properties"]["agentPoolProfiles"] = json!(pools);
    wire
}

/// Returns the id of the node resource group of a removed cluster.
fn node_group_of(resource: &ArmResource) -> Option<AccessScope> {
    let name = resource.property("nodeResourceGroup")?.as_str()?;
    let subscription = resource.id.as_str().split('/').nth(2)?;
    format!("/subscriptions/{subscription}/resourceGroups/{name}").parse().ok()
}

/// `POST …/listCluster…Credential`: the kubeconfig of the cluster, or that in the settings, or a placeholder.
fn list_credentials(
    call: &mut OperationContext<'_>,
    action: &str,
    name: &str,
) -> Result<ServiceReply, ServiceReply> {
    let path = path_scope(call)?;
    let (cluster, _) = path.as_str().rsplit_once('/').unwrap_or_default();
    let id = parse_request_scope(cluster)?;
    authorize_call(call, &format!("{MANAGED_CLUSTER}/{action}/action"), &id)?;
    let cluster = find_resource(call, &id)?;
    let disabled = cluster.property("disableLocalAccounts") == Some(&json!(true));
    if disabled && name == "clusterAdmin" {
        let message = "Getting static credential is not allowed because this cluster is set to disable \
                       local accounts.";
        return Err(bad_request("BadRequest", message));
    }
    let settings = call.azure().cluster_settings(&id);
    let of_admin = settings.and_then(|it| it.admin_kubeconfig.as_ref());
    let of_admin = of_admin.filter(|_| name == "clusterAdmin");
    let of_cluster = of_admin.or(settings.and_then(|it| it.kubeconfig.as_ref()));
    let kubeconfig = match of_cluster.or(call.azure().resources.settings.kubeconfig.as_ref()) {
        Some(kubeconfig) => kubeconfig.expose().to_owned(),
        None => placeholder_kubeconfig(cluster, name),
    };
    let wire = json!({
        "kubeconfigs": [{ "name": name, "value": STANDARD.encode(kubeconfig) }],
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Returns a kubeconfig for the cluster's DNS name, at which no server listens.
fn placeholder_kubeconfig(cluster: &ArmResource, user: &str) -> String {
    let name = cluster.name();
    let group = cluster.id.as_str().split('/').nth(4).unwrap_or_default();
    let address = cluster.property("fqdn").and_then(Value::as_str).unwrap_or_default();
    let context = if user == "clusterAdmin" { format!("{name}-admin") } else { name.to_owned() };
    let user = format!("{user}_{group}_{name}");
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": { "server": format!("https://{address}:443") } }],
        "contexts": [{ "name": context, "context": { "cluster": name, "user": user } }],
        "current-context": context,
        "users": [{ "name": user, "user": { "token": "none" } }],
        "preferences": {},
    })
    .to_string()
}
