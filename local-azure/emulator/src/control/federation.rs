//! External token issuers and their access to identities: a real cluster needs both before its pods
//! can read the vaults.

use std::collections::BTreeMap;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::{
    AccessScope, AssignError, AssignOutcome, ParseAccessScopeError, RoleAssignment,
};
use lanyard_emulator_state::directory::{FederatedCredential, TrustedIssuer};
use lanyard_emulator_state::identity_binding::{
    IdentityBinding, PROXY_TOKEN_AUDIENCE, is_proxy_server_name, proxy_server_name,
};
use lanyard_emulator_state::published_key::{IssuerJsonWebKey, RsaPublicJwk};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{EntraClientId, RoleDefinitionId};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{control_error, parse_body};

/// The default audience of a federated identity credential.
pub(super) const DEFAULT_AUDIENCE: &str = "api://AzureADTokenExchange";

/// The body of `PUT issuers`: an issuer, and the content of its `jwks_uri`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PutIssuerRequest {
    issuer: String,
    jwks: JsonWebKeySet,
}

/// A key set, as an issuer publishes it.
#[derive(Debug, Deserialize)]
pub(super) struct JsonWebKeySet {
    keys: Vec<IssuerJsonWebKey>,
}

impl JsonWebKeySet {
    /// The keys that verify federated tokens, by `kid`; at least one.
    pub(super) fn into_rsa_signing_keys(
        self,
    ) -> Result<BTreeMap<String, RsaPublicJwk>, ServiceReply> {
        let keys: BTreeMap<_, _> =
            self.keys.into_iter().filter_map(IssuerJsonWebKey::into_rsa_signing_key).collect();
        if keys.is_empty() {
            return Err(invalid_body_reply(
                "`jwks` has no RSA key that signs with RS256, and Entra takes no other.",
            ));
        }
        Ok(keys)
    }
}

/// The body of `POST federated-credentials`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddFederatedCredentialRequest {
    client_id: EntraClientId,
    /// The name of the credential to replace. By default, it is derived from issuer and subject.
    name: Option<String>,
    issuer: String,
    subject: String,
    audiences: Option<Vec<String>>,
}

/// The body of `POST identity-bindings`. The cluster is named by its id or its proxy's server name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddIdentityBindingRequest {
    client_id: EntraClientId,
    cluster_id: Option<String>,
    server_name: Option<String>,
    issuer: String,
    subject: String,
}

/// The body of `POST role-assignments`. The principal is identified by its client id or its object id, the
/// role by its name or its id.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AssignRoleRequest {
    principal: String,
    role: String,
    scope: String,
}

/// `PUT issuers`: sets the keys that verify the tokens of an issuer.
pub(super) fn put_issuer(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let body: PutIssuerRequest = parse_body(call)?;
    require_https(&body.issuer)?;
    let published = body.jwks.into_rsa_signing_keys()?;
    let keys: Vec<_> = published.keys().cloned().collect();
    let issuer = TrustedIssuer { published, ..TrustedIssuer::default() };
    let issuers = &mut call.azure_mut().directory.issuers;
    let status = if let Some(known) = issuers.get_mut(&body.issuer) {
        // Issuers with emulated key pairs keep them.
        known.published = issuer.published;
        StatusCode::OK
    } else {
        issuers.insert(body.issuer.clone(), issuer);
        StatusCode::CREATED
    };
    Ok(ServiceReply::json(status, &json!({ "issuer": body.issuer, "keys": keys })))
}

/// `POST federated-credentials`: permits tokens with an issuer and subject for an identity.
pub(super) fn add_federated_credential(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: AddFederatedCredentialRequest = parse_body(call)?;
    require_https(&body.issuer)?;
    let name = body.name.unwrap_or_else(|| format!("{} {}", body.issuer, body.subject));
    let audiences = body.audiences.unwrap_or_else(|| vec![DEFAULT_AUDIENCE.to_owned()]);
    let credential = FederatedCredential {
        audiences,
        ..FederatedCredential::new(&name, &body.issuer, &body.subject, DEFAULT_AUDIENCE)
    };
    if let Some(property) = credential.too_long_property() {
        let most = FederatedCredential::MAX_TEXT;
        return Err(invalid_body_reply(&format!("`{property}` has more than {most} characters.")));
    }
    let directory = &mut call.azure_mut().directory;
    let credentials = directory
        .federated_credentials_mut(body.client_id)
        .ok_or_else(principal_not_found_reply)?;
    credentials.retain(|known| known.name != credential.name);
    credentials.push(credential.clone());
    Ok(ServiceReply::json(StatusCode::CREATED, &credential))
}

/// `POST identity-bindings`: permits tokens for an identity through the token proxy of a cluster.
pub(super) fn add_identity_binding(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: AddIdentityBindingRequest = parse_body(call)?;
    require_https(&body.issuer)?;
    if call.azure().directory.service_principal_by_client_id(body.client_id).is_none() {
        return Err(principal_not_found_reply());
    }
    let server_name = match (body.cluster_id, body.server_name) {
        (Some(id), None) if !id.is_empty() => proxy_server_name(&id),
        (None, Some(name)) if is_proxy_server_name(&name) => name,
        _ => {
            return Err(invalid_body_reply(
                "Name the cluster by `clusterId`, or by the `serverName` of its proxy \
                 (`a`, 52 digits of base32hex, `.ests.aks`); one of them.",
            ));
        }
    };
    let binding = IdentityBinding {
        server_name,
        client_id: body.client_id,
        issuer: body.issuer,
        subject: body.subject,
    };
    let bindings = &mut call.azure_mut().bindings;
    if !bindings.contains(&binding) {
        bindings.push(binding.clone());
    }
    let mut reply = json!(binding);
    reply["audience"] = json!(PROXY_TOKEN_AUDIENCE);
    Ok(ServiceReply::json(StatusCode::CREATED, &reply))
}

/// `POST role-assignments`.
pub(super) fn assign_role(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let body: AssignRoleRequest = parse_body(call)?;
    let scope: AccessScope = body.scope.parse().map_err(|error: ParseAccessScopeError| {
        invalid_body_reply(&format!("`scope` is not a scope: {}.", error.reason))
    })?;
    let principal_id = find_object_id(call, &body.principal)?;
    let role = find_role(call, &body.role)?;
    let name = call.ids.next_uuid();
    let mut assignment = RoleAssignment::new(name, scope, role, principal_id, call.now);
    let principal = call.azure().directory.object(principal_id);
    if let Some(kind) = principal.and_then(|object| object.principal_type()) {
        kind.clone_into(&mut assignment.principal_type);
    }
    let status = match call.azure_mut().authorization.assign(assignment) {
        Ok(AssignOutcome::Created) => StatusCode::CREATED,
        // An equal role assignment with another name also counts as success.
        Ok(AssignOutcome::Updated | AssignOutcome::Unchanged)
        | Err(AssignError::AlreadyAssigned { .. }) => StatusCode::OK,
        Err(error) => return Err(invalid_body_reply(&format!("{error}."))),
    };
    let reply = json!({ "principalId": principal_id, "roleId": role.0, "scope": body.scope });
    Ok(ServiceReply::json(status, &reply))
}

fn find_object_id(call: &OperationContext<'_>, named: &str) -> Result<Uuid, ServiceReply> {
    let directory = &call.azure().directory;
    let by_client = named
        .parse()
        .ok()
        .and_then(|client| directory.service_principal_by_client_id(client))
        .map(|principal| principal.object_id);
    let by_object = || {
        let id = named.parse().ok()?;
        directory.object(id).filter(|object| object.principal_type().is_some()).map(|_| id)
    };
    by_client.or_else(by_object).ok_or_else(principal_not_found_reply)
}

/// Finds a built-in or custom role by its GUID or its display name.
fn find_role(call: &OperationContext<'_>, named: &str) -> Result<RoleDefinitionId, ServiceReply> {
    let authorization = &call.azure().authorization;
    let by_id = Uuid::try_parse(named).ok().map(RoleDefinitionId);
    let known = by_id.filter(|id| authorization.role(*id).is_some());
    known.or_else(|| authorization.role_with_name(None, named)).ok_or_else(|| {
        control_error(
            StatusCode::NOT_FOUND,
            "RoleNotFound",
            "No built-in or custom role has this name or id.",
        )
    })
}

/// Rejects an issuer that is not an https URL: Entra fetches the key set over TLS.
pub(super) fn require_https(issuer: &str) -> Result<(), ServiceReply> {
    let url = url::Url::parse(issuer);
    if url.is_ok_and(|url| url.scheme() == "https" && url.query().is_none()) {
        return Ok(());
    }
    Err(invalid_body_reply("`issuer` is an https URL without a query, exactly as in the tokens."))
}

fn invalid_body_reply(message: &str) -> ServiceReply {
    control_error(StatusCode::BAD_REQUEST, "BodyInvalid", message)
}

fn principal_not_found_reply() -> ServiceReply {
    control_error(
        StatusCode::NOT_FOUND,
        "PrincipalNotFound",
        "No principal has this id; `GET /lanyard/v1/state` lists them.",
    )
}

#[cfg(test)]
mod tests;
