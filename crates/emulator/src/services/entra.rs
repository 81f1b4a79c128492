//! Entra: the token service of every cloud.

mod assertion;
mod chain;
mod discovery;
mod federation;
mod refusal;
mod resource;

use std::collections::HashMap;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde_json::json;

use self::assertion::{Endpoint, verify_certificate_assertion};
use self::discovery::{TENANTLESS, Version, tenant_unknown};
use self::federation::verify_foreign_token;
pub(crate) use self::refusal::RESOURCE_UNKNOWN;
use self::refusal::{
    APPLICATION_DISABLED, APPLICATION_UNKNOWN, ASSERTION_NOT_OF_CLIENT, CREDENTIAL_MISSING, Code,
    GRANT_UNSUPPORTED, INTERNAL, MALFORMED_ASSERTION, NO_TENANT_NAMED, Refusal, SECRET_EXPIRED,
    SECRET_WRONG,
};
pub(crate) use self::resource::is_known as is_known_resource;
use self::resource::{missing, parse_resource, parse_scope};
use crate::binding::{IdentityBinding, is_server_name};
use crate::call::{Call, Ids};
use crate::directory::{Directory, FederatedCredential, Principal, Tenant};
use crate::jose::Token;
use crate::keys::SecretText;
use crate::operations::{Operation, Support};
use crate::request::{Reply, Request};
use crate::token::{Grant, Issued, Proof, issue, issuer};

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

const APPLICATIONS_ONLY: Support = Support::Partial(
    "client credentials by secret, certificate and federated token; grants of users are refused as \
     unsupported",
);

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[&[
    Operation {
        id: "Instance_Discover",
        method: Method::GET,
        path: "/common/discovery/instance",
        support: Support::Full,
        handler: |call| answered(call, discovery::instance),
    },
    Operation {
        id: "OpenIdConfiguration_Get",
        method: Method::GET,
        path: "/{tenant}/v2.0/.well-known/openid-configuration",
        support: Support::Full,
        handler: |call| answered(call, |call| discovery::configuration(call, Version::Two)),
    },
    Operation {
        id: "OpenIdConfigurationV1_Get",
        method: Method::GET,
        path: "/{tenant}/.well-known/openid-configuration",
        support: Support::Full,
        handler: |call| answered(call, |call| discovery::configuration(call, Version::One)),
    },
    Operation {
        id: "Keys_List",
        method: Method::GET,
        path: "/{tenant}/discovery/v2.0/keys",
        support: Support::Full,
        handler: |call| answered(call, discovery::keys),
    },
    Operation {
        id: "KeysV1_List",
        method: Method::GET,
        path: "/{tenant}/discovery/keys",
        support: Support::Full,
        handler: |call| answered(call, discovery::keys),
    },
    Operation {
        id: "Token_Post",
        method: Method::POST,
        path: "/{tenant}/oauth2/v2.0/token",
        support: APPLICATIONS_ONLY,
        handler: |call| answered(call, |call| token(call, Version::Two)),
    },
    Operation {
        id: "TokenV1_Post",
        method: Method::POST,
        path: "/{tenant}/oauth2/token",
        support: APPLICATIONS_ONLY,
        handler: |call| answered(call, |call| token(call, Version::One)),
    },
]];

/// The reply of a fault that lets the token service refuse with a code.
pub(crate) fn injected_error(number: u32, now: Timestamp, ids: &mut Ids) -> Reply {
    Code::numbered(number).because("An injected fault refuses this request.").reply(now, None, ids)
}

/// The refusal of the token service as a reply, for other services that speak its words.
pub(crate) fn render_refusal(call: &mut Call<'_>, refusal: &Refusal) -> Reply {
    let correlation = call.request.header("client-request-id");
    refusal.reply(call.now, correlation, call.ids)
}

fn answered(
    call: &mut Call<'_>,
    handler: impl FnOnce(&mut Call<'_>) -> Result<Reply, Refusal>,
) -> Result<Reply, Reply> {
    handler(call).map_err(|refusal| render_refusal(call, &refusal))
}

/// What a client put into its form and its `Authorization` header.
struct Form(HashMap<String, String>);

impl Form {
    fn read(request: &Request) -> Self {
        let mut fields = HashMap::new();
        for (name, value) in request.form() {
            fields.entry(name).or_insert(value);
        }
        if let Some((client, secret)) = request.header("authorization").and_then(basic) {
            fields.entry("client_id".to_owned()).or_insert(client);
            fields.entry("client_secret".to_owned()).or_insert(secret);
        }
        Self(fields)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.field(name).ok_or_else(|| missing(name))
    }
}

/// Client id and secret of HTTP Basic: form-encoded before they are joined (RFC 6749, 2.3.1).
fn basic(header: &str) -> Option<(String, String)> {
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

fn token(call: &mut Call<'_>, version: Version) -> Result<Reply, Refusal> {
    let form = Form::read(call.request);
    let grant_type = form.required("grant_type")?;
    if grant_type != "client_credentials" {
        return Err(GRANT_UNSUPPORTED.because(format!(
            "The app requested an unsupported grant type '{grant_type}'. The emulator implements \
             'client_credentials'."
        )));
    }
    let cloud = call.site.cloud;
    let tenant = named_tenant(&call.world().directory, call.parameter("tenant"))?.clone();
    let principal = named_principal(&call.world().directory, &tenant, &form)?.clone();
    call.note_caller(principal.client_id);
    if !principal.enabled {
        return Err(APPLICATION_DISABLED.because(format!(
            "Application '{}'({}) is disabled.",
            principal.client_id, principal.display_name
        )));
    }
    let proof = proven(call, &form, &tenant, &principal)?;
    let resource = match version {
        Version::Two => parse_scope(form.field("scope"), cloud)?,
        Version::One => parse_resource(form.field("resource"), cloud)?,
    };
    let grant = Grant { principal: &principal, resource, proof, cloud };
    let issued = issue(call.world().tokens, &tenant, grant, call.now, call.ids)
        .map_err(|error| INTERNAL.because(error.to_string()))?;
    Ok(rendered(&issued, version, resource))
}

fn named_tenant<'a>(directory: &'a Directory, name: &str) -> Result<&'a Tenant, Refusal> {
    if TENANTLESS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(NO_TENANT_NAMED.because(
            "No tenant-identifying information found in either the request or implied by any \
             provided credentials.",
        ));
    }
    directory.tenant(name).ok_or_else(|| tenant_unknown(name))
}

fn named_principal<'a>(
    directory: &'a Directory,
    tenant: &Tenant,
    form: &Form,
) -> Result<&'a Principal, Refusal> {
    let named = form.required("client_id")?;
    let of_tenant =
        |principal: &&Principal| principal.tenant.as_str().eq_ignore_ascii_case(tenant.id.as_str());
    named.parse().ok().and_then(|client| directory.by_client(client)).filter(of_tenant).ok_or_else(
        || {
            APPLICATION_UNKNOWN.because(format!(
                "Application with identifier '{named}' was not found in the directory '{}'. This \
                 can happen if the application has not been installed by the administrator of the \
                 tenant or consented to by any user in the tenant. You may have sent your \
                 authentication request to the wrong tenant.",
                tenant.id
            ))
        },
    )
}

/// Verifies the credential of the request.
fn proven(
    call: &Call<'_>,
    form: &Form,
    tenant: &Tenant,
    principal: &Principal,
) -> Result<Proof, Refusal> {
    if let Some(text) = form.field("client_assertion") {
        if form.field("client_assertion_type") != Some(JWT_BEARER) {
            return Err(missing("client_assertion_type"));
        }
        let token = Token::parse(text)
            .ok_or_else(|| MALFORMED_ASSERTION.because("JWT token is invalid or malformed."))?;
        let directory = &call.world().directory;
        return verify_assertion(call, &token, tenant, principal, directory).map(|()| Proof::Key);
    }
    if is_server_name(&call.request.host) {
        return Err(
            CREDENTIAL_MISSING.because("The token proxy of a cluster takes tokens of it only.")
        );
    }
    let Some(secret) = form.field("client_secret") else {
        return Err(CREDENTIAL_MISSING.because(
            "'client_assertion', 'client_secret' or 'request' is required for the \
             'client_credentials' grant type.",
        ));
    };
    let same = |known: &SecretText| {
        verify_slices_are_equal(known.expose().as_bytes(), secret.as_bytes()).is_ok()
    };
    match principal.secrets.iter().find(|known| same(&known.text)) {
        Some(known) if known.expires > call.now => Ok(Proof::Secret),
        Some(_) => Err(SECRET_EXPIRED.because(format!(
            "The provided client secret keys for app '{}' are expired.",
            principal.client_id
        ))),
        None => Err(SECRET_WRONG.because(format!(
            "Invalid client secret provided. Ensure the secret being sent in the request is the \
             client secret value, not the client secret ID, for a secret added to app '{}'.",
            principal.client_id
        ))),
    }
}

/// An assertion that names a URL as its issuer is a foreign token; any other is the client's own.
fn verify_assertion(
    call: &Call<'_>,
    token: &Token,
    tenant: &Tenant,
    principal: &Principal,
    directory: &Directory,
) -> Result<(), Refusal> {
    let Some(named) = token.text("iss") else {
        return Err(ASSERTION_NOT_OF_CLIENT.because("The client assertion has no `iss` claim."));
    };
    if is_server_name(&call.request.host) {
        let bound = bound_credentials(call, principal);
        return verify_foreign_token(token, &bound, directory, call.now);
    }
    if named.contains("://") {
        let credentials = &principal.federated_credentials;
        return verify_foreign_token(token, credentials, directory, call.now);
    }
    let issuer = issuer(call.site.cloud, &tenant.id);
    let endpoint = Endpoint {
        host: &call.request.host,
        tenant_in_path: call.parameter("tenant"),
        tenant: &tenant.id,
        issuer: &issuer,
    };
    verify_certificate_assertion(token, principal, directory, endpoint, call.now)
}

/// What the token proxy of a cluster checks its own tokens against.
fn bound_credentials(call: &Call<'_>, principal: &Principal) -> Vec<FederatedCredential> {
    let bindings = call.world().bindings.iter();
    bindings
        .filter(|binding| binding.client_id == principal.client_id)
        .filter(|binding| binding.server_name == call.request.host)
        .map(IdentityBinding::credential)
        .collect()
}

/// The success body: version 1.0 writes its numbers as texts.
fn rendered(issued: &Issued, version: Version, resource: &str) -> Reply {
    let seconds = issued.expires_in;
    let mut body = match version {
        Version::Two => json!({
            "token_type": "Bearer",
            "expires_in": seconds,
            "ext_expires_in": seconds,
            "access_token": issued.token,
        }),
        Version::One => json!({
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
            Version::Two => json!(refresh),
            Version::One => json!(refresh.to_string()),
        };
    }
    Reply::json(StatusCode::OK, &body)
}

#[cfg(test)]
mod tests;
