//! Foreign issuers, and who may stand for an identity of this world: what a real cluster needs
//! before its pods can read the vaults.

use http::StatusCode;
use lanyard_vocabulary::{ClientId, RoleDefinitionId};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{body, refused};
use crate::authorization::{
    AccessScope, AssignError, Assigned, ParseAccessScopeError, RoleAssignment, RoleCatalog,
};
use crate::binding::{AUDIENCE, IdentityBinding, is_server_name, server_name_of};
use crate::call::Call;
use crate::directory::{FederatedCredential, Principal, TrustedIssuer};
use crate::published_key::WebKey;
use crate::request::Reply;

/// The audience of a federated credential that names none.
const EXCHANGE: &str = "api://AzureADTokenExchange";

/// What `PUT issuers` takes: an issuer, and what its `jwks_uri` answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Issuer {
    issuer: String,
    jwks: KeySet,
}

#[derive(Debug, Deserialize)]
struct KeySet {
    keys: Vec<WebKey>,
}

/// What `POST federated-credentials` takes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Credential {
    client_id: ClientId,
    /// Replaces the credential of this name; made of issuer and subject without one.
    name: Option<String>,
    issuer: String,
    subject: String,
    audiences: Option<Vec<String>>,
}

/// What `POST identity-bindings` takes: the cluster by its id or by the server name of its proxy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Binding {
    client_id: ClientId,
    cluster_id: Option<String>,
    server_name: Option<String>,
    issuer: String,
    subject: String,
}

/// What `POST role-assignments` takes. The principal is named by its client id or its object id,
/// the role by its name or its id.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Assignment {
    principal: String,
    role: String,
    scope: String,
}

/// `PUT issuers`: from now on tokens of this issuer are verified with these keys.
pub(super) fn put_issuer(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Issuer = body(call)?;
    require_https(&asked.issuer)?;
    let published: std::collections::BTreeMap<_, _> =
        asked.jwks.keys.into_iter().filter_map(WebKey::into_published).collect();
    if published.is_empty() {
        return Err(invalid(
            "`jwks` has no RSA key that signs with RS256, and Entra takes no other.",
        ));
    }
    let keys: Vec<_> = published.keys().cloned().collect();
    let issuer = TrustedIssuer { published, ..TrustedIssuer::default() };
    let issuers = &mut call.world_mut().directory.issuers;
    let status = if let Some(known) = issuers.get_mut(&asked.issuer) {
        // What this world signs itself keeps its keys.
        known.published = issuer.published;
        StatusCode::OK
    } else {
        issuers.insert(asked.issuer.clone(), issuer);
        StatusCode::CREATED
    };
    Ok(Reply::json(status, &json!({ "issuer": asked.issuer, "keys": keys })))
}

/// `POST federated-credentials`: a token of this issuer and subject may stand for the identity.
pub(super) fn add_credential(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Credential = body(call)?;
    require_https(&asked.issuer)?;
    let credential = FederatedCredential {
        name: asked.name.unwrap_or_else(|| format!("{} {}", asked.issuer, asked.subject)),
        issuer: asked.issuer,
        subject: asked.subject,
        audiences: asked.audiences.unwrap_or_else(|| vec![EXCHANGE.to_owned()]),
    };
    let principal = principal_mut(call, asked.client_id)?;
    principal.federated_credentials.retain(|known| known.name != credential.name);
    principal.federated_credentials.push(credential.clone());
    Ok(Reply::json(StatusCode::CREATED, &credential))
}

/// `POST identity-bindings`: the same through the token proxy of a cluster.
pub(super) fn add_binding(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Binding = body(call)?;
    require_https(&asked.issuer)?;
    principal_mut(call, asked.client_id)?;
    let server_name = match (asked.cluster_id, asked.server_name) {
        (Some(id), None) if !id.is_empty() => server_name_of(&id),
        (None, Some(name)) if is_server_name(&name) => name,
        _ => {
            return Err(invalid(
                "Name the cluster by `clusterId`, or by the `serverName` of its proxy \
                 (`a`, 52 digits of base32hex, `.ests.aks`); one of them.",
            ));
        }
    };
    let binding = IdentityBinding {
        server_name,
        client_id: asked.client_id,
        issuer: asked.issuer,
        subject: asked.subject,
    };
    let bindings = &mut call.world_mut().bindings;
    if !bindings.contains(&binding) {
        bindings.push(binding.clone());
    }
    let mut reply = json!(binding);
    reply["audience"] = json!(AUDIENCE);
    Ok(Reply::json(StatusCode::CREATED, &reply))
}

/// `POST role-assignments`.
pub(super) fn assign_role(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Assignment = body(call)?;
    let scope: AccessScope = asked
        .scope
        .parse()
        .map_err(|error: ParseAccessScopeError| invalid(&format!("`scope`: {error}.")))?;
    let principal_id = object_id(call, &asked.principal)?;
    let role = role(&asked.role)?;
    let name = call.ids.uuid();
    let assignment = RoleAssignment {
        name,
        scope,
        role,
        principal_id,
        principal_type: "ServicePrincipal".to_owned(),
        description: None,
        created_on: call.now,
    };
    let status = match call.world_mut().authorization.assign(assignment) {
        Ok(Assigned::Created) => StatusCode::CREATED,
        // The same right under another name is what was asked for.
        Ok(Assigned::Unchanged) | Err(AssignError::Exists { .. }) => StatusCode::OK,
        Err(error) => return Err(invalid(&format!("{error}."))),
    };
    let reply = json!({ "principalId": principal_id, "roleId": role.0, "scope": asked.scope });
    Ok(Reply::json(status, &reply))
}

fn principal_mut<'a>(call: &'a mut Call<'_>, client: ClientId) -> Result<&'a mut Principal, Reply> {
    call.world_mut().directory.by_client_mut(client).ok_or_else(no_principal)
}

fn object_id(call: &Call<'_>, named: &str) -> Result<Uuid, Reply> {
    let directory = &call.world().directory;
    let by_client = named.parse().ok().and_then(|client| directory.by_client(client));
    let by_object = || directory.by_object(named.parse().ok()?);
    by_client.or_else(by_object).map(|known| known.object_id).ok_or_else(no_principal)
}

fn role(named: &str) -> Result<RoleDefinitionId, Reply> {
    let id = Uuid::try_parse(named).ok();
    let fits = |known: Uuid, name: &str| Some(known) == id || name.eq_ignore_ascii_case(named);
    let mut roles = RoleCatalog::built_in().iter();
    roles.find(|role| fits(role.id.0, &role.name)).map(|role| role.id).ok_or_else(|| {
        refused(
            StatusCode::NOT_FOUND,
            "RoleNotFound",
            "The emulator has no built-in role of this name or id.",
        )
    })
}

/// As Entra, which fetches the key set over TLS.
fn require_https(issuer: &str) -> Result<(), Reply> {
    let url = url::Url::parse(issuer);
    if url.is_ok_and(|url| url.scheme() == "https" && url.query().is_none()) {
        return Ok(());
    }
    Err(invalid("`issuer` is an https URL without a query, exactly as in the tokens."))
}

fn invalid(message: &str) -> Reply {
    refused(StatusCode::BAD_REQUEST, "BodyInvalid", message)
}

fn no_principal() -> Reply {
    refused(
        StatusCode::NOT_FOUND,
        "PrincipalNotFound",
        "No principal has this id; `GET /lanyard/v1/world` lists them.",
    )
}

#[cfg(test)]
mod tests;
