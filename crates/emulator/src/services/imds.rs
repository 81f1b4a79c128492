//! The metadata service of a machine: tokens without a credential.
//!
//! Reference: "Azure Instance Metadata Service" and "How to use managed identities on an Azure VM
//! to acquire an access token", api-version 2018-02-01.

use http::{Method, StatusCode};
use lanyard_vocabulary::{ArmResourceId, ClientId, Cloud};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::call::{ApiVersionProblem, Call, Ids};
use crate::directory::Principal;
use crate::keys::SecretText;
use crate::operations::{Operation, Support};
use crate::request::{Reply, Request};
use crate::seed::WorldPlan;
use crate::services::entra::{RESOURCE_UNKNOWN, is_known_resource};
use crate::token::{Grant, Issued, Proof, issue};

/// What the metadata service knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Imds {
    /// The managed identities that are assigned to the machine.
    pub(crate) assigned: Vec<ClientId>,
    /// The machine.
    pub(crate) machine: Machine,
    /// What the header `X-IDENTITY-HEADER` of the App Service protocol has to hold; nobody gets a
    /// token by that protocol while there is none.
    pub(crate) identity_header: Option<SecretText>,
}

/// The machine that the metadata service describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// The name.
    pub(crate) name: String,
    /// The region.
    pub(crate) location: String,
    /// The subscription.
    pub(crate) subscription: String,
    /// The resource group.
    pub(crate) resource_group: String,
    /// The unique id.
    pub(crate) id: Uuid,
    /// The cloud.
    pub(crate) cloud: Cloud,
}

impl Machine {
    /// The machine of a plan: a node in its managed resource group.
    pub(crate) fn of(plan: &WorldPlan, ids: &mut Ids) -> Self {
        Self {
            name: format!("{}-node-0", plan.infra_id),
            location: plan.location.clone(),
            subscription: plan.subscription.to_string(),
            resource_group: plan.managed_resource_group.clone(),
            id: ids.uuid(),
            cloud: plan.cloud,
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            name: "lanyard".to_owned(),
            location: "eastus".to_owned(),
            subscription: Uuid::nil().to_string(),
            resource_group: "lanyard".to_owned(),
            id: Uuid::nil(),
            cloud: Cloud::Public,
        }
    }
}

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[&[
    Operation {
        id: "Identities_GetToken",
        method: Method::GET,
        path: "/metadata/identity/oauth2/token",
        support: Support::Full,
        handler: token,
    },
    Operation {
        id: "Instances_GetCompute",
        method: Method::GET,
        path: "/metadata/instance/compute",
        support: Support::Partial("the fields that clients read, as JSON"),
        handler: compute,
    },
    Operation {
        id: "Instances_GetLocation",
        method: Method::GET,
        path: "/metadata/instance/compute/location",
        support: Support::Full,
        handler: location,
    },
    Operation {
        id: "Instances_Get",
        method: Method::GET,
        path: "/metadata/instance",
        support: Support::Partial("the fields of `compute` that clients read, as JSON"),
        handler: instance,
    },
]];

fn refused(description: &str) -> Reply {
    let body = json!({ "error": "invalid_request", "error_description": description });
    Reply::json(StatusCode::BAD_REQUEST, &body).because(description)
}

/// Requests that a proxy or a browser could have been tricked into are refused at once.
fn guard(request: &Request) -> Result<(), Reply> {
    if request.headers.contains_key("x-forwarded-for") {
        return Err(refused("Requests with the header X-Forwarded-For are refused"));
    }
    match request.header("metadata") {
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(()),
        _ => Err(refused("Required metadata header not specified")),
    }
}

fn versioned(call: &Call<'_>) -> Result<(), Reply> {
    call.api_version().map(|_| ()).map_err(|problem| match problem {
        ApiVersionProblem::Missing => refused("Required query variable 'api-version' is missing"),
        ApiVersionProblem::Malformed(_) => refused("The requested version is not supported"),
    })
}

fn token(call: &mut Call<'_>) -> Result<Reply, Reply> {
    guard(call.request)?;
    versioned(call)?;
    let (issued, principal, resource) = obtain(call)?;
    Ok(Reply::json(
        StatusCode::OK,
        &json!({
            "access_token": issued.token,
            "client_id": principal.client_id,
            "expires_in": issued.expires_in.to_string(),
            "expires_on": issued.expires_on().to_string(),
            "ext_expires_in": issued.expires_in.to_string(),
            "not_before": issued.not_before.to_string(),
            "resource": resource,
            "token_type": "Bearer",
        }),
    ))
}

/// Issues the token that the query asks for, to the identity that the query selects.
pub(super) fn obtain(call: &mut Call<'_>) -> Result<(Issued, Principal, String), Reply> {
    let resource = call
        .request
        .query("resource")
        .filter(|text| !text.is_empty())
        .ok_or_else(|| refused("Required query variable 'resource' is missing"))?
        .to_owned();
    let principal = selected(call)?.clone();
    call.note_caller(principal.client_id);
    let cloud = Cloud::ALL.into_iter().find(|cloud| is_known_resource(*cloud, &resource));
    let cloud = cloud.ok_or_else(|| {
        let number = RESOURCE_UNKNOWN.number;
        let text = format!("AADSTS{number}: The resource principal named {resource} was not found");
        let body = json!({ "error": "invalid_resource", "error_description": text });
        Reply::json(StatusCode::BAD_REQUEST, &body).because(format!("AADSTS{number}"))
    })?;
    if !principal.enabled {
        let body = json!({
            "error": "unauthorized_client",
            "error_description": "AADSTS7000112: The identity is disabled",
        });
        return Err(Reply::json(StatusCode::BAD_REQUEST, &body).because("AADSTS7000112"));
    }
    let tenant = call.world().directory.tenant(principal.tenant.as_str()).cloned();
    let tenant = tenant.ok_or_else(|| refused("Identity not found"))?;
    let grant = Grant { principal: &principal, resource: &resource, proof: Proof::Key, cloud };
    let issued =
        issue(call.world().tokens, &tenant, grant, call.now, call.ids).map_err(|error| {
            let body = json!({ "error": "server_error", "error_description": error.to_string() });
            Reply::json(StatusCode::INTERNAL_SERVER_ERROR, &body).because("token not signed")
        })?;
    Ok((issued, principal, resource))
}

/// The identity that the query selects among those of the machine.
fn selected<'a>(call: &'a Call<'_>) -> Result<&'a Principal, Reply> {
    const SELECTORS: [&str; 5] =
        ["client_id", "object_id", "principal_id", "msi_res_id", "mi_res_id"];
    let world = call.world();
    let assigned: Vec<_> = world
        .imds
        .assigned
        .iter()
        .filter_map(|client| world.directory.by_client(*client))
        .collect();
    let selectors: Vec<_> = SELECTORS
        .into_iter()
        .filter_map(|name| call.request.query(name).map(|value| (name, value)))
        .collect();
    match (selectors.as_slice(), assigned.as_slice()) {
        ([], [only]) => Ok(only),
        ([], []) => Err(refused("Identity not found")),
        ([], _) => Err(refused(
            "Multiple user assigned identities exist, please specify the clientId / resourceId \
             of the identity in the token request",
        )),
        ([(name, value)], _) => assigned
            .into_iter()
            .find(|principal| is_selected(principal, name, value))
            .ok_or_else(|| refused("Identity not found")),
        _ => Err(refused("Only one of client_id, object_id and msi_res_id may be given")),
    }
}

fn is_selected(principal: &Principal, selector: &str, value: &str) -> bool {
    match selector {
        "client_id" => value.parse() == Ok(principal.client_id),
        "object_id" | "principal_id" => value.parse() == Ok(principal.object_id),
        _ => {
            let wanted = value.parse::<ArmResourceId>().ok();
            wanted.is_some() && wanted.as_ref() == principal.resource_id()
        }
    }
}

fn described(machine: &Machine) -> Value {
    let Machine { name, location, subscription, resource_group, id, cloud } = machine;
    let environment = match cloud {
        Cloud::Public => "AzurePublicCloud",
        other => other.name(),
    };
    json!({
        "azEnvironment": environment,
        "location": location,
        "name": name,
        "osType": "Linux",
        "provider": "Microsoft.Compute",
        "resourceGroupName": resource_group,
        "resourceId": format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/\
             Microsoft.Compute/virtualMachines/{name}"
        ),
        "subscriptionId": subscription,
        "vmId": id,
    })
}

fn compute(call: &mut Call<'_>) -> Result<Reply, Reply> {
    guard(call.request)?;
    versioned(call)?;
    Ok(Reply::json(StatusCode::OK, &described(&call.world().imds.machine)))
}

fn instance(call: &mut Call<'_>) -> Result<Reply, Reply> {
    guard(call.request)?;
    versioned(call)?;
    let compute = described(&call.world().imds.machine);
    Ok(Reply::json(StatusCode::OK, &json!({ "compute": compute })))
}

fn location(call: &mut Call<'_>) -> Result<Reply, Reply> {
    guard(call.request)?;
    versioned(call)?;
    let location = &call.world().imds.machine.location;
    match call.request.query("format") {
        Some("text") => Ok(Reply::text(StatusCode::OK, location.clone())),
        _ => Ok(Reply::json(StatusCode::OK, location)),
    }
}

#[cfg(test)]
mod tests;
