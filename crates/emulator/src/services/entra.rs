//! Entra: the token service of every cloud.

mod assertion;
mod certificate_chain;
mod discovery;
mod error;
mod federation;
mod token_resource;

use std::collections::HashMap;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde_json::json;

use self::assertion::{TokenEndpoint, verify_certificate_assertion};
use self::discovery::{EndpointVersion, TENANT_ALIASES, tenant_unknown_error};
pub(crate) use self::error::RESOURCE_UNKNOWN;
use self::error::{
    APPLICATION_DISABLED, APPLICATION_UNKNOWN, ASSERTION_NOT_OF_CLIENT, AadstsCode,
    CREDENTIAL_MISSING, GRANT_UNSUPPORTED, INTERNAL, MALFORMED_ASSERTION, NO_TENANT_NAMED,
    SECRET_EXPIRED, SECRET_WRONG, TokenServiceError,
};
use self::federation::verify_federated_token;
pub(crate) use self::token_resource::is_known_token_resource as is_known_resource;
use self::token_resource::{missing_parameter_error, parse_resource, parse_scope};
use crate::directory::{EntraDirectory, FederatedCredential, ServicePrincipal, Tenant};
use crate::identity_binding::{IdentityBinding, is_proxy_server_name};
use crate::jose::UnverifiedToken;
use crate::keys::RedactedText;
use crate::operation_context::{IdGenerator, OperationContext};
use crate::operations::{OperationSupport, ServiceOperation};
use crate::request::{ServiceReply, ServiceRequest};
use crate::token::{
    ClientAuthMethod, IssuedAccessToken, TokenGrant, TokenSubject, issue_access_token, v1_issuer,
};

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

const APPLICATIONS_ONLY: OperationSupport = OperationSupport::Partial(
    "client credentials by secret, certificate and federated token; grants of users are refused as \
     unsupported",
);

/// The operations of Entra.
pub(crate) const OPERATIONS: &[&[ServiceOperation]] = &[&[
    ServiceOperation {
        id: "Instance_Discover",
        method: Method::GET,
        path: "/common/discovery/instance",
        support: OperationSupport::Full,
        handler: |call| reply_or_error(call, discovery::get_instance_discovery),
    },
    ServiceOperation {
        id: "OpenIdConfiguration_Get",
        method: Method::GET,
        path: "/{tenant}/v2.0/.well-known/openid-configuration",
        support: OperationSupport::Full,
        handler: |call| {
            reply_or_error(call, |call| {
                discovery::get_openid_configuration(call, EndpointVersion::V2)
            })
        },
    },
    ServiceOperation {
        id: "OpenIdConfigurationV1_Get",
        method: Method::GET,
        path: "/{tenant}/.well-known/openid-configuration",
        support: OperationSupport::Full,
        handler: |call| {
            reply_or_error(call, |call| {
                discovery::get_openid_configuration(call, EndpointVersion::V1)
            })
        },
    },
    ServiceOperation {
        id: "Keys_List",
        method: Method::GET,
        path: "/{tenant}/discovery/v2.0/keys",
        support: OperationSupport::Full,
        handler: |call| reply_or_error(call, discovery::get_signing_keys),
    },
    ServiceOperation {
        id: "KeysV1_List",
        method: Method::GET,
        path: "/{tenant}/discovery/keys",
        support: OperationSupport::Full,
        handler: |call| reply_or_error(call, discovery::get_signing_keys),
    },
    ServiceOperation {
        id: "Token_Post",
        method: Method::POST,
        path: "/{tenant}/oauth2/v2.0/token",
        support: APPLICATIONS_ONLY,
        handler: |call| {
            reply_or_error(call, |call| handle_token_request(call, EndpointVersion::V2))
        },
    },
    ServiceOperation {
        id: "TokenV1_Post",
        method: Method::POST,
        path: "/{tenant}/oauth2/token",
        support: APPLICATIONS_ONLY,
        handler: |call| {
            reply_or_error(call, |call| handle_token_request(call, EndpointVersion::V1))
        },
    },
]];

/// The reply of an injected AADSTS error.
pub(crate) fn injected_error_reply(
    number: u32,
    now: Timestamp,
    ids: &mut IdGenerator,
) -> ServiceReply {
    AadstsCode::from_number(number)
        .with_description("An injected fault refuses this request.")
        .to_reply(now, None, ids)
}

/// The error reply of the token service, for other services with the same format.
pub(crate) fn entra_error_reply(
    call: &mut OperationContext<'_>,
    rejection: &TokenServiceError,
) -> ServiceReply {
    let correlation = call.request.header("client-request-id");
    rejection.to_reply(call.now, correlation, call.ids)
}

fn reply_or_error(
    call: &mut OperationContext<'_>,
    handler: impl FnOnce(&mut OperationContext<'_>) -> Result<ServiceReply, TokenServiceError>,
) -> Result<ServiceReply, ServiceReply> {
    handler(call).map_err(|rejection| entra_error_reply(call, &rejection))
}

/// The client's form and `Authorization` header.
struct ClientTokenForm(HashMap<String, String>);

impl ClientTokenForm {
    fn from_request(request: &ServiceRequest) -> Self {
        let mut fields = HashMap::new();
        for (name, value) in request.parse_form_body() {
            fields.entry(name).or_insert(value);
        }
        if let Some((client, secret)) =
            request.header("authorization").and_then(parse_basic_credentials)
        {
            fields.entry("client_id".to_owned()).or_insert(client);
            fields.entry("client_secret".to_owned()).or_insert(secret);
        }
        Self(fields)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn required(&self, name: &str) -> Result<&str, TokenServiceError> {
        self.field(name).ok_or_else(|| missing_parameter_error(name))
    }
}

/// Client id and secret of HTTP Basic, which are form-encoded before they are joined (RFC 6749, 2.3.1).
fn parse_basic_credentials(header: &str) -> Option<(String, String)> {
    let (scheme, text) = header.split_once(' ')?;
    let text =
        scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(text.trim()).ok())??;
    let text = String::from_utf8(text).ok()?;
    let (client, secret) = text.split_once(':')?;
    let decoded = |part: &str| {
        let spaced = part.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    Some((decoded(client), decoded(secret)))
}

fn handle_token_request(
    call: &mut OperationContext<'_>,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let form = ClientTokenForm::from_request(call.request);
    let grant_type = form.required("grant_type")?;
    if grant_type != "client_credentials" {
        return Err(GRANT_UNSUPPORTED.with_description(format!(
            "The app requested an unsupported grant type '{grant_type}'. The emulator implements \
             'client_credentials'."
        )));
    }
    let cloud = call.endpoint.cloud;
    let tenant = find_named_tenant(&call.world().directory, call.path_parameter("tenant"))?.clone();
    let principal = find_named_principal(&call.world().directory, &tenant, &form)?.clone();
    call.record_caller(principal.client_id);
    if !principal.enabled {
        return Err(APPLICATION_DISABLED.with_description(format!(
            "Application '{}'({}) is disabled.",
            principal.client_id, principal.display_name
        )));
    }
    let proof = verify_client_credential(call, &form, &tenant, &principal)?;
    let resource = match version {
        EndpointVersion::V2 => parse_scope(form.field("scope"), cloud)?,
        EndpointVersion::V1 => parse_resource(form.field("resource"), cloud)?,
    };
    let grant = TokenGrant {
        subject: TokenSubject::ServicePrincipal(&principal),
        resource,
        auth_method: proof,
        cloud,
    };
    let issued = issue_access_token(*call.world().tokens, &tenant, grant, call.now, call.ids)
        .map_err(|error| INTERNAL.with_description(error.to_string()))?;
    Ok(token_reply(&issued, version, resource))
}

fn find_named_tenant<'a>(
    directory: &'a EntraDirectory,
    name: &str,
) -> Result<&'a Tenant, TokenServiceError> {
    if TENANT_ALIASES.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(NO_TENANT_NAMED.with_description(
            "No tenant-identifying information found in either the request or implied by any \
             provided credentials.",
        ));
    }
    directory.tenant(name).ok_or_else(|| tenant_unknown_error(name))
}

fn find_named_principal<'a>(
    directory: &'a EntraDirectory,
    tenant: &Tenant,
    form: &ClientTokenForm,
) -> Result<&'a ServicePrincipal, TokenServiceError> {
    let named = form.required("client_id")?;
    let of_tenant = |principal: &&ServicePrincipal| {
        principal.tenant.as_str().eq_ignore_ascii_case(tenant.id.as_str())
    };
    named
        .parse()
        .ok()
        .and_then(|client| directory.service_principal_by_client_id(client))
        .filter(of_tenant)
        .ok_or_else(|| {
            APPLICATION_UNKNOWN.with_description(format!(
                "Application with identifier '{named}' was not found in the directory '{}'. This \
                 can happen if the application has not been installed by the administrator of the \
                 tenant or consented to by any user in the tenant. You may have sent your \
                 authentication request to the wrong tenant.",
                tenant.id
            ))
        })
}

/// Verifies the credential of the request.
fn verify_client_credential(
    call: &OperationContext<'_>,
    form: &ClientTokenForm,
    tenant: &Tenant,
    principal: &ServicePrincipal,
) -> Result<ClientAuthMethod, TokenServiceError> {
    if let Some(text) = form.field("client_assertion") {
        if form.field("client_assertion_type") != Some(JWT_BEARER) {
            return Err(missing_parameter_error("client_assertion_type"));
        }
        let token = UnverifiedToken::parse(text).ok_or_else(|| {
            MALFORMED_ASSERTION.with_description("JWT token is invalid or malformed.")
        })?;
        let directory = &call.world().directory;
        return verify_assertion(call, &token, tenant, principal, directory)
            .map(|()| ClientAuthMethod::KeyOrToken);
    }
    if is_proxy_server_name(&call.request.host) {
        return Err(CREDENTIAL_MISSING
            .with_description("The token proxy of a cluster takes tokens of it only."));
    }
    let Some(secret) = form.field("client_secret") else {
        return Err(CREDENTIAL_MISSING.with_description(
            "'client_assertion', 'client_secret' or 'request' is required for the \
             'client_credentials' grant type.",
        ));
    };
    let same = |known: &RedactedText| {
        verify_slices_are_equal(known.expose().as_bytes(), secret.as_bytes()).is_ok()
    };
    let directory = &call.world().directory;
    match directory.passwords_of(principal).find(|known| same(&known.text)) {
        Some(known) if known.expires > call.now => Ok(ClientAuthMethod::Secret),
        Some(_) => Err(SECRET_EXPIRED.with_description(format!(
            "The provided client secret keys for app '{}' are expired.",
            principal.client_id
        ))),
        None => Err(SECRET_WRONG.with_description(format!(
            "Invalid client secret provided. Ensure the secret being sent in the request is the \
             client secret value, not the client secret ID, for a secret added to app '{}'.",
            principal.client_id
        ))),
    }
}

/// An assertion whose issuer is a URL is a federated token; any other is signed by the client itself.
fn verify_assertion(
    call: &OperationContext<'_>,
    token: &UnverifiedToken,
    tenant: &Tenant,
    principal: &ServicePrincipal,
    directory: &EntraDirectory,
) -> Result<(), TokenServiceError> {
    let Some(named) = token.text_claim("iss") else {
        return Err(
            ASSERTION_NOT_OF_CLIENT.with_description("The client assertion has no `iss` claim.")
        );
    };
    if is_proxy_server_name(&call.request.host) {
        let bound = bound_federated_credentials(call, principal);
        return verify_federated_token(token, &bound, directory, call.now);
    }
    if named.contains("://") {
        let credentials: Vec<_> = directory.federated_credentials_of(principal).cloned().collect();
        return verify_federated_token(token, &credentials, directory, call.now);
    }
    let issuer = v1_issuer(call.endpoint.cloud, &tenant.id);
    let endpoint = TokenEndpoint {
        host: &call.request.host,
        tenant_in_path: call.path_parameter("tenant"),
        tenant: &tenant.id,
        issuer: &issuer,
    };
    verify_certificate_assertion(token, principal, directory, endpoint, call.now)
}

/// The federated credentials that the token proxy of a cluster checks its tokens against.
fn bound_federated_credentials(
    call: &OperationContext<'_>,
    principal: &ServicePrincipal,
) -> Vec<FederatedCredential> {
    let bindings = call.world().bindings.iter();
    bindings
        .filter(|binding| binding.client_id == principal.client_id)
        .filter(|binding| binding.server_name == call.request.host)
        .map(IdentityBinding::federated_credential)
        .collect()
}

/// The success body: version 1.0 sends numbers as strings.
fn token_reply(
    issued: &IssuedAccessToken,
    version: EndpointVersion,
    resource: &str,
) -> ServiceReply {
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
    ServiceReply::json(StatusCode::OK, &body)
}

#[cfg(test)]
mod tests;
