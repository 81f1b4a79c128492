//! The tokens that a client receives for a signed-in user.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::{
    ClientAuthMethod, IssuedAccessToken, OptionalClaims, TokenGrant, TokenSubject,
    issue_access_token, pairwise_subject, sign_token, unique_token_id,
};
use lanyard_emulator_state::directory::{Tenant, User};
use lanyard_emulator_state::keys::RsaKeyError;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::sign_ins::sign_in_state::RequestedScope;
use lanyard_vocabulary::EntraClientId;
use serde_json::{Map, Value, json};

use super::client::UserClient;
use super::discovery::EndpointVersion;
use super::error::{INTERNAL, TokenServiceError};
use super::refresh_token::RefreshToken;
use super::token_directory;
use super::token_form::ClientTokenForm;
use super::token_resource::{
    DelegatedScopes, delegated_scopes_of_resource, parse_delegated_scope, require_token_resource,
};

/// The lifetime of an ID token, in seconds.
const ID_TOKEN_SECONDS: i64 = 3_600;

/// A signed-in user of a client.
#[derive(Debug)]
pub(super) struct UserSession {
    pub(super) user: User,
    /// The tenant that issues the tokens.
    pub(super) tenant: Tenant,
    pub(super) client_id: EntraClientId,
    pub(super) client: UserClient,
    pub(super) auth_method: ClientAuthMethod,
    /// `nonce` of the authorization request, which the ID token repeats.
    pub(super) nonce: Option<String>,
}

impl UserSession {
    /// Finds the resource and the permissions of a request.
    fn resolve_scope(
        &self,
        call: &OperationContext<'_>,
        scope: &RequestedScope,
    ) -> Result<DelegatedScopes, TokenServiceError> {
        resolve_scope(call, &self.tenant, &self.client, scope)
    }

    /// Issues the tokens for a scope.
    pub(super) fn issue_tokens(
        &self,
        call: &mut OperationContext<'_>,
        form: &ClientTokenForm,
        version: EndpointVersion,
        scope: RequestedScope,
    ) -> Result<ServiceReply, TokenServiceError> {
        let scopes = self.resolve_scope(call, &scope)?;
        let issued = self.issue_access_token(call, form, &scopes)?;
        let mut body = token_body(&issued, version, &scopes.resource.identifier);
        body["scope"] = json!(scopes.reply_scope);
        if scopes.offline_access || form.field("grant_type") == Some("refresh_token") {
            let token = RefreshToken::new(&self.user, self.client_id, call.now, scope);
            body["refresh_token"] = json!(token.seal(call)?);
        }
        if scopes.openid {
            body["id_token"] = self.issue_id_token(call, version)?;
        }
        if form.field("client_info") == Some("1") {
            let info = json!({ "uid": self.user.object_id, "utid": self.user.tenant });
            body["client_info"] = json!(URL_SAFE_NO_PAD.encode(info.to_string()));
        }
        Ok(ServiceReply::json(StatusCode::OK, &body))
    }

    fn issue_access_token(
        &self,
        call: &mut OperationContext<'_>,
        form: &ClientTokenForm,
        scopes: &DelegatedScopes,
    ) -> Result<IssuedAccessToken, TokenServiceError> {
        let cloud = Arc::clone(&call.endpoint.cloud);
        let permissions = scopes.permissions.join(" ");
        let groups = scopes.resource.has_group_claims().then(|| {
            let directory = &call.azure().directory;
            let mut ids = directory.principal_and_group_ids(self.user.object_id);
            ids.retain(|id| *id != self.user.object_id);
            ids
        });
        let grant = TokenGrant {
            subject: TokenSubject::User {
                user: &self.user,
                client: self.client_id,
                scopes: &permissions,
            },
            audience: &scopes.resource.audience,
            version: scopes.resource.version,
            auth_method: self.auth_method,
            cloud: &cloud,
            optional: OptionalClaims {
                groups,
                client_capabilities: form.client_capabilities(),
                ..OptionalClaims::default()
            },
        };
        issue_access_token(*call.azure().tokens, &self.tenant, grant, call.now, call.ids)
            .map_err(|error| signing_error(&error))
    }

    /// Issues an ID token (OIDC Core 1.0, 2) in the format of the endpoint's version.
    fn issue_id_token(
        &self,
        call: &mut OperationContext<'_>,
        version: EndpointVersion,
    ) -> Result<Value, TokenServiceError> {
        let (user, tenant) = (&self.user, &self.tenant.id);
        let cloud = Arc::clone(&call.endpoint.cloud);
        let issued = call.now.as_second();
        let mut claims = Map::new();
        let mut claim = |name: &str, value: Value| {
            claims.insert(name.to_owned(), value);
        };
        claim("aud", json!(self.client_id));
        for name in ["iat", "nbf"] {
            claim(name, json!(issued));
        }
        claim("exp", json!(issued + ID_TOKEN_SECONDS));
        claim("name", json!(user.display_name));
        claim("oid", json!(user.object_id));
        claim("sub", json!(pairwise_subject(user.object_id, &self.client_id.to_string())));
        claim("tid", json!(tenant));
        claim("uti", json!(unique_token_id(call.ids)));
        match version {
            EndpointVersion::V1 => {
                claim("iss", json!(cloud.v1_issuer(tenant)));
                claim("upn", json!(user.principal_name));
                claim("unique_name", json!(user.principal_name));
                claim("ver", json!("1.0"));
            }
            EndpointVersion::V2 => {
                claim("iss", json!(cloud.v2_issuer(tenant)));
                claim("preferred_username", json!(user.principal_name));
                claim("ver", json!("2.0"));
            }
        }
        if let Some(nonce) = &self.nonce {
            claim("nonce", json!(nonce));
        }
        let token = sign_token(&self.tenant, &claims).map_err(|error| signing_error(&error))?;
        Ok(json!(token))
    }
}

/// Finds the resource and the permissions of a request in a tenant.
pub(super) fn resolve_scope(
    call: &OperationContext<'_>,
    tenant: &Tenant,
    client: &UserClient,
    scope: &RequestedScope,
) -> Result<DelegatedScopes, TokenServiceError> {
    let (directory, cloud) = (token_directory(call), &call.endpoint.cloud);
    let permissions = client.graph_permissions();
    match scope {
        RequestedScope::Scope(scope) => {
            parse_delegated_scope(directory, cloud, &tenant.id, scope, permissions)
        }
        RequestedScope::Resource(resource) => {
            let resource = require_token_resource(directory, cloud, &tenant.id, resource)?;
            Ok(delegated_scopes_of_resource(resource, permissions))
        }
    }
}

pub(super) fn signing_error(error: &RsaKeyError) -> TokenServiceError {
    INTERNAL.with_description(error.to_string())
}

/// The fields of every success body: version 1.0 sends numbers as strings.
pub(super) fn token_body(
    issued: &IssuedAccessToken,
    version: EndpointVersion,
    resource: &str,
) -> Value {
    let seconds = issued.expires_in;
    let mut body = match version {
        EndpointVersion::V2 => json!({
            "token_type": "Bearer",
            "expires_in": seconds,
            "ext_expires_in": seconds,
            "access_token": issued.token,
        }),
        EndpointVersion::V1 => json!({
            "token_type": "Bearer",
            "expires_in": seconds.to_string(),
            "ext_expires_in": seconds.to_string(),
            "expires_on": issued.expires_on().to_string(),
            "not_before": issued.not_before.to_string(),
            "resource": resource,
            "access_token": issued.token,
        }),
    };
    if let Some(refresh) = issued.refresh_in {
        body["refresh_in"] = match version {
            EndpointVersion::V2 => json!(refresh),
            EndpointVersion::V1 => json!(refresh.to_string()),
        };
    }
    body
}
