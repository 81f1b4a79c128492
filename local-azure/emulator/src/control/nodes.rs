//! The nodes of the metadata service (IMDS), each with its own identities.

use std::collections::BTreeSet;
use std::net::IpAddr;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::imds_node::{ImdsMachine, ImdsNode, is_valid_node_name};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::EntraClientId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::identity_urls::subscription_tenant;
use super::{control_error, parse_body};

/// The body of `PUT nodes/{name}`: the complete definition of the node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutNodeRequest {
    /// The client ids of user-assigned identities.
    #[serde(default)]
    identities: Vec<EntraClientId>,
    /// Whether the node has a system-assigned identity.
    #[serde(default)]
    system_assigned: bool,
    /// The IP addresses from which requests of the node come.
    #[serde(default)]
    client_addresses: Vec<IpAddr>,
    /// The region; by default that of the default node.
    location: Option<String>,
}

/// `GET nodes`.
pub(super) fn list_nodes(call: &OperationContext<'_>) -> ServiceReply {
    let nodes = &call.azure().imds.nodes;
    let nodes: Vec<_> = nodes.iter().map(|(name, node)| node_json(call, name, node)).collect();
    ServiceReply::json(StatusCode::OK, &json!({ "value": nodes }))
}

/// `PUT nodes/{name}`: creates or replaces a node.
pub(super) fn put_node(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let body: PutNodeRequest = parse_body(call)?;
    require_valid_name(name)?;
    let identities = without_duplicates(body.identities);
    require_user_assigned(call, &identities)?;
    // The addresses of clients are compared in their canonical form.
    let client_addresses =
        without_duplicates(body.client_addresses.iter().map(IpAddr::to_canonical));
    require_free_addresses(call, name, &client_addresses)?;
    let imds = &call.azure().imds;
    let existing = imds.nodes.get(name).map(|node| node.machine.id);
    let is_new = existing.is_none();
    let mut machine = ImdsMachine { name: name.to_owned(), ..imds.default_node.machine.clone() };
    machine.id = existing.unwrap_or_else(|| call.ids.next_uuid());
    machine.location = body.location.unwrap_or(machine.location);
    let mut node = ImdsNode { assigned: identities, machine, client_addresses };
    if body.system_assigned {
        let own = ensure_system_assigned(call, &node.machine)?;
        node.assigned.push(own);
    } else {
        remove_system_assigned(call, &node.machine);
    }
    let reply = node_json(call, name, &node);
    call.azure_mut().imds.nodes.insert(name.to_owned(), node);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(ServiceReply::json(status, &reply))
}

/// Returns the items in their order, without duplicates.
fn without_duplicates<T: Ord + Copy>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut known = BTreeSet::new();
    items.into_iter().filter(|item| known.insert(*item)).collect()
}

/// `DELETE nodes/{name}`: deletes a node and its system-assigned identity.
pub(super) fn delete_node(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let Some(node) = call.azure_mut().imds.nodes.remove(name) else {
        let message = "No node has this name; `GET /lanyard/v1/nodes` lists them.";
        return Err(control_error(StatusCode::NOT_FOUND, "NodeNotFound", message));
    };
    remove_system_assigned(call, &node.machine);
    Ok(ServiceReply::empty(StatusCode::NO_CONTENT))
}

/// Renders a node with the URLs that select it.
fn node_json(call: &OperationContext<'_>, name: &str, node: &ImdsNode) -> Value {
    let base = call.local_url.unwrap_or_default();
    let own = node.machine.parsed_resource_id();
    let own = own.and_then(|id| call.azure().directory.managed_identity(&id));
    let own = own.map(|principal| principal.client_id);
    let identities: Vec<_> = node.assigned.iter().filter(|id| Some(**id) != own).collect();
    json!({
        "name": name,
        "identities": identities,
        "systemAssignedClientId": own,
        "clientAddresses": node.client_addresses,
        "location": node.machine.location,
        "resourceId": node.machine.resource_id(),
        "metadataUrl": format!("{base}/nodes/{name}"),
        "identityEndpoint": format!("{base}/nodes/{name}/msi/token"),
        "proxyUrl": base.replacen("://", &format!("://{name}:node@"), 1),
    })
}

fn require_valid_name(name: &str) -> Result<(), ServiceReply> {
    if is_valid_node_name(name) {
        return Ok(());
    }
    let message = "The name of a node has 1 to 63 lower-case letters, digits and `-`.";
    Err(control_error(StatusCode::BAD_REQUEST, "NameInvalid", message))
}

fn require_user_assigned(
    call: &OperationContext<'_>,
    identities: &[EntraClientId],
) -> Result<(), ServiceReply> {
    let directory = &call.azure().directory;
    for client in identities {
        let principal = directory.service_principal_by_client_id(*client);
        if principal.is_none_or(|known| known.user_assigned_identity().is_none()) {
            let message = format!(
                "No user-assigned identity has the client id {client}; `GET /lanyard/v1/state` \
                 lists the principals."
            );
            return Err(control_error(StatusCode::NOT_FOUND, "IdentityNotFound", &message));
        }
    }
    Ok(())
}

fn require_free_addresses(
    call: &OperationContext<'_>,
    name: &str,
    addresses: &[IpAddr],
) -> Result<(), ServiceReply> {
    let others = call.azure().imds.nodes.iter().filter(|(other, _)| *other != name);
    for (other, node) in others {
        if let Some(taken) = addresses.iter().find(|one| node.client_addresses.contains(one)) {
            let message = format!("Requests from {taken} belong to the node `{other}`.");
            return Err(control_error(StatusCode::CONFLICT, "AddressTaken", &message));
        }
    }
    Ok(())
}

/// Returns the client id of the system-assigned identity of a node; creates a missing one.
fn ensure_system_assigned(
    call: &mut OperationContext<'_>,
    machine: &ImdsMachine,
) -> Result<EntraClientId, ServiceReply> {
    let Some(resource) = machine.parsed_resource_id() else {
        let message = "The local Azure was started without a subscription for its nodes.";
        return Err(control_error(StatusCode::CONFLICT, "NoSubscription", message));
    };
    if let Some(existing) = call.azure().directory.managed_identity(&resource) {
        return Ok(existing.client_id);
    }
    let (tenant, now) = (subscription_tenant(call, &resource)?, call.now);
    let (azure, ids) = call.azure_and_ids();
    Ok(azure.directory.create_managed_identity(&resource, tenant, ids, now).client_id)
}

fn remove_system_assigned(call: &mut OperationContext<'_>, machine: &ImdsMachine) {
    let directory = &call.azure().directory;
    let own = machine.parsed_resource_id().and_then(|id| directory.managed_identity(&id));
    if let Some(object_id) = own.map(|own| own.object_id) {
        call.azure_mut().directory.remove_service_principal(object_id);
    }
}

#[cfg(test)]
mod tests;
