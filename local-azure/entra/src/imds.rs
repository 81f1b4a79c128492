//! The instance metadata service of virtual machines: tokens without a credential.
//!
//! Reference: "Azure Instance Metadata Service" and "How to use managed identities on an Azure VM to acquire
//! an access token", api-version 2018-02-01.

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operation_context::{ApiVersionError, OperationContext};
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_core::token::{
    ClientAuthMethod, IssuedAccessToken, OptionalClaims, TokenGrant, TokenSubject,
    issue_access_token,
};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::directory::ServicePrincipal;
use lanyard_emulator_state::imds_node::{ImdsMachine, ImdsNode, segments_without_node};
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_vocabulary::{ArmResourceId, Cloud};
use serde_json::{Value, json};

use crate::token_service::engine_errors::metadata_service_error;
use crate::token_service::error::{
    APPLICATION_DISABLED, APPLICATION_UNKNOWN, AadstsCode, RESOURCE_UNKNOWN,
};
use crate::token_service::token_directory;
use crate::token_service::token_resource::find_token_resource;

/// The versions of the service: those of its documentation that clients ask for.
const API_VERSIONS: [&str; 8] = [
    "2017-12-01",
    "2018-02-01",
    "2019-08-01",
    "2020-06-01",
    "2021-02-01",
    "2021-12-13",
    "2023-07-01",
    "2025-04-07",
];

/// The metadata service.
pub const SERVICE: EmulatedService = EmulatedService {
    segments: segments_without_node,
    error_reply: metadata_service_error,
    ..EmulatedService::new(AzureService::Imds, OPERATIONS)
};

/// The operations of the metadata service.
const OPERATIONS: &[&[ServiceOperation]] = &[&[
    ServiceOperation {
        id: "Identities_GetToken",
        method: Method::GET,
        path: "/metadata/identity/oauth2/token",
        support: OperationSupport::Full,
        handler: get_token,
    },
    ServiceOperation {
        id: "Instances_GetCompute",
        method: Method::GET,
        path: "/metadata/instance/compute",
        support: OperationSupport::Partial("the fields that clients read, as JSON"),
        handler: get_compute,
    },
    ServiceOperation {
        id: "Instances_GetLocation",
        method: Method::GET,
        path: "/metadata/instance/compute/location",
        support: OperationSupport::Full,
        handler: get_location,
    },
    ServiceOperation {
        id: "Instances_Get",
        method: Method::GET,
        path: "/metadata/instance",
        support: OperationSupport::Partial("the fields of `compute` that clients read, as JSON"),
        handler: get_instance,
    },
    ServiceOperation {
        id: "Versions_List",
        method: Method::GET,
        path: "/metadata/versions",
        support: OperationSupport::Full,
        handler: list_versions,
    },
]];

fn invalid_request_reply(description: &str) -> ServiceReply {
    let body = json!({ "error": "invalid_request", "error_description": description });
    ServiceReply::json(StatusCode::BAD_REQUEST, &body).with_rejection_reason(description)
}

/// Rejects requests that may come through a proxy or a browser.
fn require_metadata_header(request: &ServiceRequest) -> Result<(), ServiceReply> {
    if request.headers.contains_key("x-forwarded-for") {
        return Err(invalid_request_reply("Requests with the header X-Forwarded-For are refused"));
    }
    match request.header("metadata") {
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(()),
        _ => Err(invalid_request_reply("Required metadata header not specified")),
    }
}

fn require_api_version(call: &OperationContext<'_>) -> Result<(), ServiceReply> {
    call.api_version().map(|_| ()).map_err(|problem| match problem {
        ApiVersionError::Missing => {
            invalid_request_reply("Required query variable 'api-version' is missing")
        }
        ApiVersionError::Malformed(_) => {
            invalid_request_reply("The requested version is not supported")
        }
    })
}

fn get_token(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    require_metadata_header(call.request)?;
    require_api_version(call)?;
    let (issued, principal, resource) = issue_managed_identity_token(call)?;
    Ok(ServiceReply::json(
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

/// Issues the requested token to the identity that the query selects.
pub(super) fn issue_managed_identity_token(
    call: &mut OperationContext<'_>,
) -> Result<(IssuedAccessToken, ServicePrincipal, String), ServiceReply> {
    let resource = call
        .request
        .query("resource")
        .filter(|text| !text.is_empty())
        .ok_or_else(|| invalid_request_reply("Required query variable 'resource' is missing"))?
        .to_owned();
    let principal = select_identity(call)?.clone();
    call.record_caller(principal.client_id);
    if !token_directory(call).knows(principal.object_id) {
        return Err(identity_unknown_reply(&principal));
    }
    let directory = token_directory(call);
    let found = call.clouds.iter().find_map(|cloud| {
        let found = find_token_resource(directory, cloud, &principal.tenant, &resource)?;
        Some((cloud, found))
    });
    let (cloud, found) = found.ok_or_else(|| {
        let text = format!("The resource principal named {resource} was not found");
        token_service_error_reply(RESOURCE_UNKNOWN, &text)
    })?;
    if !principal.enabled {
        return Err(token_service_error_reply(APPLICATION_DISABLED, "The identity is disabled"));
    }
    let tenant = call.azure().directory.tenant(principal.tenant.as_str()).cloned();
    let tenant = tenant.ok_or_else(|| invalid_request_reply("Identity not found"))?;
    let grant = TokenGrant {
        subject: TokenSubject::ServicePrincipal(&principal),
        audience: &found.audience,
        version: found.version,
        auth_method: ClientAuthMethod::KeyOrToken,
        cloud,
        optional: OptionalClaims {
            roles: found.app_roles(token_directory(call), &principal),
            ..OptionalClaims::default()
        },
    };
    let issued = issue_access_token(*call.azure().tokens, &tenant, grant, call.now, call.ids)
        .map_err(|error| {
            let body = json!({ "error": "server_error", "error_description": error.to_string() });
            ServiceReply::json(StatusCode::INTERNAL_SERVER_ERROR, &body)
                .with_rejection_reason("token not signed")
        })?;
    Ok((issued, principal, resource))
}

/// The reply for an identity that the token service does not know yet.
fn identity_unknown_reply(principal: &ServicePrincipal) -> ServiceReply {
    let text = format!(
        "Application with identifier '{}' was not found in the directory '{}'.",
        principal.client_id, principal.tenant
    );
    token_service_error_reply(APPLICATION_UNKNOWN, &text)
}

/// An error of the token service, as the metadata service returns it.
fn token_service_error_reply(code: AadstsCode, text: &str) -> ServiceReply {
    let aadsts = format!("AADSTS{}", code.number);
    let body = json!({ "error": code.error, "error_description": format!("{aadsts}: {text}") });
    ServiceReply::json(StatusCode::BAD_REQUEST, &body).with_rejection_reason(aadsts)
}

/// The node (virtual machine) of the request, or the error reply if it names an unknown node.
fn require_node<'a>(call: &'a OperationContext<'_>) -> Result<&'a ImdsNode, ServiceReply> {
    call.azure().imds.node_of_request(call.request).map_err(|error| {
        let body = json!({ "error": "not_found", "error_description": format!("{error}") });
        ServiceReply::json(StatusCode::NOT_FOUND, &body).with_rejection_reason("unknown node")
    })
}

/// The managed identity of the node that the query selects. Without a selector: the system-assigned
/// identity, or the only user-assigned one.
fn select_identity<'a>(
    call: &'a OperationContext<'_>,
) -> Result<&'a ServicePrincipal, ServiceReply> {
    const SELECTORS: [&str; 5] =
        ["client_id", "object_id", "principal_id", "msi_res_id", "mi_res_id"];
    let assigned = require_node(call)?.identities(&call.azure().directory);
    let selectors: Vec<_> = SELECTORS
        .into_iter()
        .filter_map(|name| call.request.query(name).map(|value| (name, value)))
        .collect();
    let system_assigned =
        assigned.iter().find(|principal| principal.user_assigned_identity().is_none());
    match (selectors.as_slice(), assigned.as_slice()) {
        ([], [only]) => Ok(only),
        ([], []) => Err(invalid_request_reply("Identity not found")),
        ([], _) => system_assigned.copied().ok_or_else(|| {
            invalid_request_reply(
                "Multiple user assigned identities exist, please specify the clientId / \
                 resourceId of the identity in the token request",
            )
        }),
        ([(name, value)], _) => assigned
            .into_iter()
            .find(|principal| matches_selector(principal, name, value))
            .ok_or_else(|| invalid_request_reply("Identity not found")),
        _ => Err(invalid_request_reply(
            "Only one of client_id, object_id and msi_res_id may be given",
        )),
    }
}

fn matches_selector(principal: &ServicePrincipal, selector: &str, value: &str) -> bool {
    match selector {
        "client_id" => value.parse() == Ok(principal.client_id),
        "object_id" | "principal_id" => value.parse() == Ok(principal.object_id),
        _ => {
            let wanted = value.parse::<ArmResourceId>().ok();
            wanted.is_some() && wanted.as_ref() == principal.resource_id()
        }
    }
}

fn compute_json(machine: &ImdsMachine) -> Value {
    let resource_id = machine.resource_id();
    let ImdsMachine { name, location, subscription, resource_group, id, cloud } = machine;
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
        "resourceId": resource_id,
        "subscriptionId": subscription,
        "vmId": id,
    })
}

fn get_compute(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    require_metadata_header(call.request)?;
    require_api_version(call)?;
    Ok(ServiceReply::json(StatusCode::OK, &compute_json(&require_node(call)?.machine)))
}

fn get_instance(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    require_metadata_header(call.request)?;
    require_api_version(call)?;
    let compute = compute_json(&require_node(call)?.machine);
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "compute": compute })))
}

fn get_location(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    require_metadata_header(call.request)?;
    require_api_version(call)?;
    let location = &require_node(call)?.machine.location;
    match call.request.query("format") {
        Some("text") => Ok(ServiceReply::text(StatusCode::OK, location.clone())),
        _ => Ok(ServiceReply::json(StatusCode::OK, location)),
    }
}

/// The versions of the service; the request needs none.
fn list_versions(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    require_metadata_header(call.request)?;
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "apiVersions": API_VERSIONS })))
}

#[cfg(test)]
mod tests;
