//! The operations of the data plane of managed identities.

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::directory::ServicePrincipal;
use lanyard_emulator_state::identity_url::IdentityUrl;
use lanyard_emulator_state::managed_identity_credential::{
    CustomClaims, ManagedIdentityCredential,
};
use lanyard_emulator_state::request::ServiceReply;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::access::{
    authenticate, bad_request, parse_resource_id, require_identity_in_path, require_identity_url,
    require_user_assigned_identity,
};
use super::error::IdentityServiceError;
use super::issuance::{CredentialRequest, current_credentials, is_renewable};

/// The maximum number of network perimeters in the claims.
const MAX_NETWORK_PERIMETERS: usize = 5;

/// The data plane of managed identities.
pub const SERVICE: EmulatedService =
    EmulatedService::new(AzureService::ManagedIdentity, OPERATIONS);

/// The operations of the service.
pub(super) const OPERATIONS: &[&[ServiceOperation]] = &[&[
    ServiceOperation {
        id: "ManagedIdentityDataPlane_GetCred",
        method: Method::GET,
        path: "/{*resource}/credentials/v2/identities",
        support: OperationSupport::Full,
        handler: get_system_assigned,
    },
    ServiceOperation {
        id: "ManagedIdentityDataPlane_GetCreds",
        method: Method::POST,
        path: "/{*resource}/credentials/v2/identities",
        support: OperationSupport::Partial("without `delegatedResources`"),
        handler: get_user_assigned,
    },
    ServiceOperation {
        id: "ManagedIdentityDataPlane_DeleteIdentity",
        method: Method::DELETE,
        path: "/{*resource}/credentials/v2/identities",
        support: OperationSupport::Full,
        handler: delete_system_assigned,
    },
    ServiceOperation {
        id: "ManagedIdentityDataPlane_MoveIdentity",
        method: Method::POST,
        path: "/{*resource}/credentials/v2/identities/proxy/move",
        support: OperationSupport::Full,
        handler: move_identity,
    },
    ServiceOperation {
        id: "ManagedIdentityDataPlane_RenewCred",
        method: Method::GET,
        path: "/{*resource}/credentials",
        support: OperationSupport::Full,
        handler: renew_user_assigned,
    },
]];

/// The body of a request for credentials.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialsRequest {
    /// The ARM ids of user-assigned identities.
    #[serde(default)]
    identity_ids: Vec<String>,
    /// The internal ids of resources that delegate their identities.
    #[serde(default)]
    delegated_resources: Vec<String>,
    #[serde(default)]
    custom_claims: Option<CustomClaims>,
}

/// The body of a request to move an identity.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MoveIdentityRequest {
    target_resource_id: String,
}

/// The credential of the resource's own identity, and those of user-assigned identities.
#[derive(Debug, Serialize)]
struct ManagedIdentityCredentials {
    /// The fields of the credential of the system-assigned identity.
    #[serde(flatten)]
    system_assigned: Map<String, Value>,
    delegated_resources: [(); 0],
    explicit_identities: Vec<ManagedIdentityCredential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    internal_id: Option<String>,
}

/// `GET {identity-url}`: the credential of the system-assigned identity.
fn get_system_assigned(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authenticate(call)?;
    let url = require_identity_url(call)?;
    let Some(principal) = system_assigned_identity(call, &url) else {
        return Err(IdentityServiceError::IdentityNotFound(url.resource_id.as_str()).to_reply());
    };
    let requests = [system_assigned_request(principal, &url, None)];
    let issued = current_credentials(call, &requests)?;
    reply_with_credentials(call, Some(url), issued)
}

/// `POST {identity-url}`: the credentials of user-assigned identities, and that of the system-assigned one if
/// the resource has it.
fn get_user_assigned(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let url = require_identity_url(call)?;
    let body: CredentialsRequest = call
        .request
        .parse_json_body()
        .map_err(|error| bad_request(&format!("The body is not valid: {error}.")))?;
    require_valid(&body)?;
    let mut principals: Vec<ServicePrincipal> = Vec::new();
    for id in &body.identity_ids {
        let principal = require_user_assigned_identity(call, &caller, "`identityIds`", id)?;
        // Repeated ids have one credential.
        if principals.iter().all(|other| other.object_id != principal.object_id) {
            principals.push(principal);
        }
    }
    let claims = body.custom_claims;
    let own = system_assigned_identity(call, &url);
    let mut requests: Vec<_> =
        own.map(|own| system_assigned_request(own, &url, claims.clone())).into_iter().collect();
    requests.extend(principals.into_iter().map(|principal| CredentialRequest {
        principal,
        location: &url.location,
        own_url: None,
        custom_claims: claims.clone(),
    }));
    if requests.is_empty() {
        return Err(bad_request(
            "`identityIds` is empty, and the resource has no system-assigned identity.",
        ));
    }
    let issued = current_credentials(call, &requests)?;
    reply_with_credentials(call, Some(url), issued)
}

fn require_valid(body: &CredentialsRequest) -> Result<(), ServiceReply> {
    if !body.delegated_resources.is_empty() {
        return Err(IdentityServiceError::NotImplemented("`delegatedResources`").to_reply());
    }
    let perimeters = body.custom_claims.as_ref().map_or(0, |claims| claims.xms_az_nwperimid.len());
    if perimeters > MAX_NETWORK_PERIMETERS {
        return Err(bad_request("`xms_az_nwperimid` has at most five network perimeters."));
    }
    Ok(())
}

/// `DELETE {identity-url}`: deletes the system-assigned identity.
fn delete_system_assigned(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authenticate(call)?;
    let url = require_identity_url(call)?;
    let own = system_assigned_identity(call, &url).map(|principal| principal.object_id);
    let Some(object_id) = own else { return Ok(ServiceReply::empty(StatusCode::NO_CONTENT)) };
    call.azure_mut().directory.remove_service_principal(object_id);
    Ok(ServiceReply::empty(StatusCode::OK))
}

/// `POST {identity-url}/proxy/move`: the resource has a new id, and so has its system-assigned identity.
fn move_identity(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authenticate(call)?;
    let url = require_identity_url(call)?;
    let body: MoveIdentityRequest = call
        .request
        .parse_json_body()
        .map_err(|error| bad_request(&format!("The body is not valid: {error}.")))?;
    let target = parse_resource_id(&body.target_resource_id)?;
    let (source_key, target_key) =
        (IdentityUrl::table_key(&url.resource_id), IdentityUrl::table_key(&target));
    let has_identity = call.azure().directory.managed_identity(&target).is_some()
        || call.azure().identity_urls.get(&target_key).is_some();
    if source_key != target_key && has_identity {
        return Err(IdentityServiceError::TargetHasIdentity(target.as_str()).to_reply());
    }
    let azure = call.azure_mut();
    azure.directory.move_managed_identity(&url.resource_id, &target);
    azure.identity_urls.remove(&source_key);
    let moved = url.moved_to(target);
    azure.identity_urls.insert(target_key, moved.clone());
    Ok(ServiceReply::json(
        StatusCode::OK,
        &json!({ "identityUrl": moved.url(&call.endpoint.cloud) }),
    ))
}

/// `GET {client_secret_url}` of a user-assigned identity: its current credential.
fn renew_user_assigned(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let principal = require_identity_in_path(call, &caller)?;
    if !is_renewable(call, &principal) {
        return Err(IdentityServiceError::UrlExpired.to_reply());
    }
    let location = host_location(&call.request.host);
    let request = CredentialRequest { principal, location, own_url: None, custom_claims: None };
    let issued = current_credentials(call, &[request])?;
    reply_with_credentials(call, None, issued)
}

/// The region of `control-{region}.identity.azure.net`.
fn host_location(host: &str) -> &str {
    let label = host.split('.').next().unwrap_or_default();
    label.strip_prefix("control-").unwrap_or(label)
}

fn system_assigned_identity(
    call: &OperationContext<'_>,
    url: &IdentityUrl,
) -> Option<ServicePrincipal> {
    let principal = call.azure().directory.managed_identity(&url.resource_id)?;
    principal.user_assigned_identity().is_none().then(|| principal.clone())
}

const fn system_assigned_request(
    principal: ServicePrincipal,
    url: &IdentityUrl,
    custom_claims: Option<CustomClaims>,
) -> CredentialRequest<'_> {
    CredentialRequest {
        principal,
        location: url.location.as_str(),
        own_url: Some(url),
        custom_claims,
    }
}

/// The reply with credentials; the URL that returned them is valid until the last of them ends.
fn reply_with_credentials(
    call: &mut OperationContext<'_>,
    url: Option<IdentityUrl>,
    issued: Vec<ManagedIdentityCredential>,
) -> Result<ServiceReply, ServiceReply> {
    let internal_id = url.as_ref().map(|url| url.internal_id.to_string());
    if let Some(mut url) = url {
        let ends = issued.iter().map(|credential| credential.dates().cannot_renew_after).max();
        if ends.is_some_and(|ends| url.extend_to(ends)) {
            let key = IdentityUrl::table_key(&url.resource_id);
            call.azure_mut().identity_urls.insert(key, url);
        }
    }
    let (explicit_identities, own): (Vec<_>, Vec<_>) =
        issued.into_iter().partition(ManagedIdentityCredential::is_user_assigned);
    let system_assigned = match own.into_iter().next().map(|own| serde_json::to_value(&own)) {
        Some(Ok(Value::Object(fields))) => fields,
        Some(Err(error)) => {
            return Err(IdentityServiceError::Internal(error.to_string()).to_reply());
        }
        Some(Ok(_)) | None => Map::new(),
    };
    let reply = ManagedIdentityCredentials {
        system_assigned,
        delegated_resources: [],
        explicit_identities,
        internal_id,
    };
    Ok(ServiceReply::json(StatusCode::OK, &reply).with_header("cache-control", "no-store"))
}
