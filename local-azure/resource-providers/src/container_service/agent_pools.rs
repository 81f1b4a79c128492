//! Agent pools: as child resources and as profiles of the cluster.

use http::StatusCode;
use lanyard_emulator_arm::access::authorize_link;
use lanyard_emulator_arm::error::{ArmServiceError, bad_request};
use lanyard_emulator_arm::request_scopes::{parent_scope, parse_request_scope};
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use serde_json::{Map, Value, json};

pub(crate) const AGENT_POOL: &str = "Microsoft.ContainerService/managedClusters/agentPools";

pub(super) const AGENT_POOL_TYPE: ResourceType = ResourceType {
    prepare: prepare_pool,
    check_deletion: check_pool_deletion,
    deletion_status: StatusCode::NO_CONTENT,
    ..ResourceType::child(
        AGENT_POOL,
        NamingRule {
            length: (1, 12),
            punctuation: "",
            lower_case: true,
            first: NameEdge::Letter,
            last: NameEdge::Alphanumeric,
            forbidden: "",
        },
        "2019-02-01",
    )
};

fn prepare_pool(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let cluster = parent_scope(write.id)?;
    let version = write
        .resources()
        .resource(&cluster)
        .and_then(|cluster| cluster.property("currentKubernetesVersion"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let mut properties = std::mem::take(&mut write.properties);
    complete_pool(write, &mut properties, &version)?;
    write.properties = properties;
    Ok(())
}

/// Converts an agent pool in the body of a cluster to a child resource.
pub(super) fn pool_resource(
    write: &ResourceWrite<'_, '_>,
    pool: Value,
    version: &str,
) -> Result<ArmResource, ServiceReply> {
    let Value::Object(mut properties) = pool else {
        return Err(bad_request("InvalidParameter", "An agent pool profile is not an object."));
    };
    let name = match properties.remove("name") {
        Some(Value::String(name)) => name,
        _ => String::new(),
    };
    AGENT_POOL_TYPE.naming.check(&name).map_err(|rule| {
        let message = format!("The agent pool name '{name}' is invalid. {rule}");
        bad_request("InvalidParameter", message)
    })?;
    complete_pool(write, &mut properties, version)?;
    properties.insert("provisioningState".to_owned(), json!("Succeeded"));
    let id = write.id.child(&format!("agentPools/{name}"));
    Ok(ArmResource::new(id, AGENT_POOL, json!({ "properties": properties }), write.call.now))
}

fn complete_pool(
    write: &ResourceWrite<'_, '_>,
    properties: &mut Map<String, Value>,
    version: &str,
) -> Result<(), ServiceReply> {
    if let Some(subnet) = properties.get("vnetSubnetID").and_then(Value::as_str) {
        let subnet = parse_request_scope(subnet)?;
        if write.resources().resource(&subnet).is_none() {
            return Err(ArmServiceError::ResourceNotFound(&subnet).to_reply());
        }
        let action = "Microsoft.Network/virtualNetworks/subnets/join/action";
        authorize_link(write.call, write.caller, action, write.id, &subnet)?;
    }
    properties.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
    for (name, default) in [
        ("count", json!(3)),
        ("vmSize", json!("Standard_D4s_v5")),
        ("osType", json!("Linux")),
        ("osSKU", json!("Ubuntu")),
        ("osDiskSizeGB", json!(128)),
        ("mode", json!("User")),
        ("maxPods", json!(250)),
        ("type", json!("VirtualMachineScaleSets")),
        ("orchestratorVersion", json!(version)),
    ] {
        properties.entry(name).or_insert(default);
    }
    properties.insert("currentOrchestratorVersion".to_owned(), json!(version));
    properties.insert("powerState".to_owned(), json!({ "code": "Running" }));
    let count = properties["count"].as_u64().unwrap_or(0);
    if count > 1_000 {
        return Err(bad_request(
            "InvalidParameter",
            format!("The value of parameter agentPoolProfile.count is invalid: {count}."),
        ));
    }
    Ok(())
}

/// Renders an agent pool as in the body of a cluster.
pub(super) fn pool_profile(pool: &ArmResource) -> Value {
    let mut profile = match pool.body.get("properties") {
        Some(properties) => properties.clone(),
        None => json!({}),
    };
    profile["name"] = json!(pool.name());
    profile
}

/// Checks that a cluster has at least one agent pool with the mode `System`.
pub(super) fn require_system_pool<'a>(
    mut pools: impl Iterator<Item = &'a ArmResource>,
) -> Result<(), ServiceReply> {
    let is_system = |pool: &ArmResource| {
        let mode = pool.property("mode").and_then(Value::as_str);
        mode.is_some_and(|mode| mode.eq_ignore_ascii_case("System"))
    };
    if pools.any(is_system) {
        return Ok(());
    }
    Err(bad_request("InvalidParameter", "There has to be at least one system agent pool."))
}

fn check_pool_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let pool = &deletion.resource.id;
    if deletion.scope != pool {
        return Ok(());
    }
    let cluster = parent_scope(pool)?;
    let others = deletion
        .resources
        .of_type_within(&cluster, AGENT_POOL)
        .filter(|other| resource_name(&other.id) != resource_name(pool));
    require_system_pool(others)
}
