//! The token endpoint: one function for each grant type.

use std::sync::Arc;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::{OptionalClaims, TokenGrant, TokenSubject, issue_access_token};
use lanyard_emulator_state::identity_binding::is_proxy_server_name;
use lanyard_emulator_state::request::ServiceReply;

use super::authorize::redeem_authorization_code;
use super::client::{UserClient, find_service_principal, verify_client_credential};
use super::device_code::redeem_device_code;
use super::discovery::EndpointVersion;
use super::error::{GRANT_NOT_AT_COMMON, GRANT_UNSUPPORTED, TokenServiceError};
use super::refresh_token::redeem_refresh_token;
use super::tenant_in_path::{TenantAlias, TenantInPath};
use super::token_directory;
use super::token_form::ClientTokenForm;
use super::token_resource::{parse_application_scope, require_token_resource};
use super::user_sign_in::{sign_in_with_password, token_tenant};
use super::user_tokens::{UserSession, signing_error, token_body};

const SUPPORTED_GRANTS: &str =
    "client_credentials, password, refresh_token, authorization_code, device_code";

/// `POST /{tenant}/oauth2[/v2.0]/token`.
pub(super) fn handle_token_request(
    call: &mut OperationContext<'_>,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let form = ClientTokenForm::from_request(call.request);
    let grant_type = form.required("grant_type")?;
    let is_proxy = is_proxy_server_name(&call.request.host);
    match grant_type {
        "client_credentials" => grant_client_credentials(call, &form, version),
        "password" if !is_proxy => grant_password(call, &form, version),
        "refresh_token" if !is_proxy => grant_refresh_token(call, &form, version),
        "authorization_code" if !is_proxy => redeem_authorization_code(call, &form, version),
        "urn:ietf:params:oauth:grant-type:device_code" | "device_code" if !is_proxy => {
            redeem_device_code(call, &form, version)
        }
        other => Err(GRANT_UNSUPPORTED.with_description(format!(
            "The app requested an unsupported grant type '{other}'. The emulator implements \
             {SUPPORTED_GRANTS}."
        ))),
    }
}

/// An application or managed identity acts as itself.
fn grant_client_credentials(
    call: &mut OperationContext<'_>,
    form: &ClientTokenForm,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let cloud = Arc::clone(&call.endpoint.cloud);
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let tenant = path.require_named()?.clone();
    let client_id = form.required("client_id")?;
    let principal = find_service_principal(directory, &tenant, client_id)?.clone();
    call.record_caller(principal.client_id);
    let auth_method = verify_client_credential(call, form, &tenant, &principal)?;
    let identifier = match version {
        EndpointVersion::V2 => parse_application_scope(form.required("scope")?)?,
        EndpointVersion::V1 => form.required("resource")?,
    };
    let directory = token_directory(call);
    let resource = require_token_resource(directory, &cloud, &tenant.id, identifier)?;
    let grant = TokenGrant {
        subject: TokenSubject::ServicePrincipal(&principal),
        audience: &resource.audience,
        version: resource.version,
        auth_method,
        cloud: &cloud,
        optional: OptionalClaims {
            roles: resource.app_roles(directory, &principal),
            client_capabilities: form.client_capabilities(),
            ..OptionalClaims::default()
        },
    };
    let issued = issue_access_token(*call.azure().tokens, &tenant, grant, call.now, call.ids)
        .map_err(|error| signing_error(&error))?;
    Ok(ServiceReply::json(StatusCode::OK, &token_body(&issued, version, &resource.identifier)))
}

/// A client sends the name and the password of a user.
fn grant_password(
    call: &mut OperationContext<'_>,
    form: &ClientTokenForm,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    if let TenantInPath::Alias(TenantAlias::Common | TenantAlias::Consumers) = path {
        return Err(GRANT_NOT_AT_COMMON.with_description(
            "The grant type is not supported over the /common or /consumers endpoints. Please use \
             the /organizations or tenant-specific endpoint.",
        ));
    }
    let client = UserClient::find(directory, path, form.required("client_id")?)?;
    let (name, password) = (form.required("username")?, form.required("password")?);
    let scope = form.require_scope(version)?;
    let client_id = client.client_id();
    call.record_caller(client_id);
    let auth_method = client.authenticate(call, form)?;
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let user = sign_in_with_password(directory, path, name, password)?;
    let tenant = token_tenant(directory, path, &client, user)?.clone();
    let user = user.clone();
    let session = UserSession { user, tenant, client_id, client, auth_method, nonce: None };
    session.issue_tokens(call, form, version, scope)
}

/// A client exchanges a refresh token for tokens of any resource.
fn grant_refresh_token(
    call: &mut OperationContext<'_>,
    form: &ClientTokenForm,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let client = UserClient::find(directory, path, form.required("client_id")?)?;
    let client_id = client.client_id();
    call.record_caller(client_id);
    let auth_method = client.authenticate(call, form)?;
    let (token, user) = redeem_refresh_token(call, form.required("refresh_token")?, client_id)?;
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let tenant = token_tenant(directory, path, &client, &user)?.clone();
    let scope = form.requested_scope(version).unwrap_or(token.scope);
    let session = UserSession { user, tenant, client_id, client, auth_method, nonce: None };
    session.issue_tokens(call, form, version, scope)
}
