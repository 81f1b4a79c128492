//! The client application of a request, and its credential.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::ClientAuthMethod;
use lanyard_emulator_state::directory::{
    Application, DirectoryReplica, FederatedCredential, ServicePrincipal, Tenant,
};
use lanyard_emulator_state::identity_binding::{IdentityBinding, is_proxy_server_name};
use lanyard_emulator_state::jose::UnverifiedToken;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_vocabulary::EntraClientId;
use serde_json::Value;
use url::Url;

use super::assertion::{TokenEndpoint, verify_certificate_assertion};
use super::error::{
    APPLICATION_DISABLED, APPLICATION_UNKNOWN, ASSERTION_NOT_OF_CLIENT, CONFIDENTIAL_CLIENT,
    CREDENTIAL_MISSING, MALFORMED_ASSERTION, NOT_MULTITENANT, PUBLIC_CLIENT, SECRET_EXPIRED,
    SECRET_WRONG, SERVICE_PRINCIPAL_MISSING, TokenServiceError,
};
use super::federation::verify_federated_token;
use super::public_clients::{PublicClient, REDIRECT_URIS};
use super::tenant_in_path::TenantInPath;
use super::token_form::ClientTokenForm;
use super::token_resource::missing_parameter_error;

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Finds the enabled service principal of a client id in a tenant.
pub(super) fn find_service_principal<'a>(
    directory: DirectoryReplica<'a>,
    tenant: &Tenant,
    client_id: &str,
) -> Result<&'a ServicePrincipal, TokenServiceError> {
    let of_tenant = |principal: &&ServicePrincipal| {
        principal.tenant.as_str().eq_ignore_ascii_case(tenant.id.as_str())
    };
    let client: Option<EntraClientId> = client_id.parse().ok();
    let principal = client
        .and_then(|client| directory.service_principal_by_client_id(client))
        .filter(of_tenant)
        .ok_or_else(|| service_principal_missing_error(directory, tenant, client_id, client))?;
    if !principal.enabled {
        return Err(APPLICATION_DISABLED.with_description(format!(
            "Application '{}'({}) is disabled.",
            principal.client_id, principal.display_name
        )));
    }
    Ok(principal)
}

fn service_principal_missing_error(
    directory: DirectoryReplica<'_>,
    tenant: &Tenant,
    client_id: &str,
    client: Option<EntraClientId>,
) -> TokenServiceError {
    let application = client.and_then(|client| directory.application_by_client_id(client));
    if application.is_some_and(|application| application.tenant == tenant.id) {
        return SERVICE_PRINCIPAL_MISSING.with_description(format!(
            "The client application {client_id} is missing service principal in the tenant {}. \
             See instructions here: https://go.microsoft.com/fwlink/?linkid=2225119",
            tenant.id
        ));
    }
    application_unknown_error(client_id, tenant.id.as_str())
}

fn application_unknown_error(client_id: &str, tenant: &str) -> TokenServiceError {
    APPLICATION_UNKNOWN.with_description(format!(
        "Application with identifier '{client_id}' was not found in the directory '{tenant}'. \
         This can happen if the application has not been installed by the administrator of the \
         tenant or consented to by any user in the tenant. You may have sent your authentication \
         request to the wrong tenant."
    ))
}

/// A client application in which users sign in.
#[derive(Debug, Clone)]
pub(super) enum UserClient {
    /// A public client of Microsoft, which every tenant knows.
    FirstParty(&'static PublicClient),
    /// A registered application.
    Registered(Box<RegisteredClient>),
}

#[derive(Debug, Clone)]
pub(super) struct RegisteredClient {
    principal: ServicePrincipal,
    application: Application,
    tenant: Tenant,
}

impl UserClient {
    /// Finds the client of a request.
    pub(super) fn find(
        directory: DirectoryReplica<'_>,
        path: TenantInPath<'_>,
        client_id: &str,
    ) -> Result<Self, TokenServiceError> {
        let client: Option<EntraClientId> = client_id.parse().ok();
        if let Some(known) = client.and_then(PublicClient::find) {
            return Ok(Self::FirstParty(known));
        }
        let application = client.and_then(|client| directory.application_by_client_id(client));
        let home = application.and_then(|known| directory.tenant(known.tenant.as_str()));
        let (Some(application), Some(home)) = (application, home) else {
            let tenant = path.named().map_or("common", |tenant| tenant.id.as_str());
            return Err(application_unknown_error(client_id, tenant));
        };
        let tenant = match path {
            TenantInPath::Named(tenant) => tenant,
            TenantInPath::Alias(_) if is_multitenant(application) => home,
            TenantInPath::Alias(_) => {
                return Err(NOT_MULTITENANT.with_description(format!(
                    "Application '{client_id}'({}) is not configured as a multi-tenant \
                     application. Usage of the /common endpoint is not supported for such \
                     applications. Use a tenant-specific endpoint or configure the application to \
                     be multi-tenant.",
                    application.display_name
                )));
            }
        };
        let principal = find_service_principal(directory, tenant, client_id)?.clone();
        let (application, tenant) = (application.clone(), home.clone());
        Ok(Self::Registered(Box::new(RegisteredClient { principal, application, tenant })))
    }

    pub(super) fn client_id(&self) -> EntraClientId {
        match self {
            Self::FirstParty(client) => client.client_id(),
            Self::Registered(client) => client.application.client_id,
        }
    }

    /// The tenant to which the users of the client are limited; `None` for every tenant.
    pub(super) fn tenant(&self) -> Option<&Tenant> {
        match self {
            Self::FirstParty(_) => None,
            Self::Registered(client) => Some(&client.tenant),
        }
    }

    pub(super) fn display_name(&self) -> &str {
        match self {
            Self::FirstParty(client) => client.display_name,
            Self::Registered(client) => &client.application.display_name,
        }
    }

    /// The permissions of Microsoft Graph that the client has without further consent.
    pub(super) const fn graph_permissions(&self) -> &'static str {
        match self {
            Self::FirstParty(client) => client.graph_permissions,
            Self::Registered(_) => "User.Read",
        }
    }

    /// Whether the client may receive authorization codes at a redirect URI.
    pub(super) fn allows_redirect(&self, redirect_uri: &str) -> bool {
        match self {
            Self::FirstParty(_) => {
                REDIRECT_URIS.iter().any(|known| is_same_redirect(known, redirect_uri))
            }
            Self::Registered(client) => {
                let kinds = ["publicClient", "web"];
                kinds.iter().any(|kind| client.has_redirect(kind, redirect_uri))
            }
        }
    }

    /// Verifies the credential of a confidential client. A public client, which users run on their
    /// own devices, needs none.
    pub(super) fn authenticate(
        &self,
        call: &mut OperationContext<'_>,
        form: &ClientTokenForm,
    ) -> Result<ClientAuthMethod, TokenServiceError> {
        match self {
            Self::FirstParty(_) if form.has_client_credential() => Err(PUBLIC_CLIENT
                .with_description(
                    "Client is public so neither 'client_assertion' nor 'client_secret' should be \
                     presented.",
                )),
            Self::FirstParty(_) => Ok(ClientAuthMethod::Public),
            Self::Registered(client) if form.has_client_credential() => {
                verify_client_credential(call, form, &client.tenant, &client.principal)
            }
            Self::Registered(client) if client.is_public(form.field("redirect_uri")) => {
                Ok(ClientAuthMethod::Public)
            }
            Self::Registered(_) => Err(CONFIDENTIAL_CLIENT.with_description(
                "The request body must contain the following parameter: 'client_assertion' or \
                 'client_secret'.",
            )),
        }
    }
}

impl RegisteredClient {
    /// Whether the application allows public client flows, or the redirect URI is that of a public client.
    fn is_public(&self, redirect_uri: Option<&str>) -> bool {
        let fallback = self.application.properties.get("isFallbackPublicClient");
        fallback == Some(&Value::Bool(true))
            || redirect_uri.is_some_and(|uri| self.has_redirect("publicClient", uri))
    }

    /// Whether a redirect URI is registered in `publicClient` or `web`.
    fn has_redirect(&self, kind: &str, redirect_uri: &str) -> bool {
        let uris =
            self.application.properties.get(kind).and_then(|it| it["redirectUris"].as_array());
        let mut uris = uris.into_iter().flatten().filter_map(Value::as_str);
        uris.any(|known| is_same_redirect(known, redirect_uri))
    }
}

/// Whether accounts of other tenants may use an application (`signInAudience`).
fn is_multitenant(application: &Application) -> bool {
    let audience = application.properties.get("signInAudience").and_then(Value::as_str);
    audience.is_some_and(|audience| audience.starts_with("AzureADMultipleOrgs"))
        || audience == Some("AzureADandPersonalMicrosoftAccount")
}

/// Compares redirect URIs exactly, except for the port of a loopback name (RFC 8252, 7.3).
fn is_same_redirect(registered: &str, requested: &str) -> bool {
    if registered == requested {
        return true;
    }
    let (Ok(registered), Ok(requested)) = (Url::parse(registered), Url::parse(requested)) else {
        return false;
    };
    let is_loopback = registered.scheme() == "http"
        && matches!(registered.host_str(), Some("localhost" | "127.0.0.1"));
    is_loopback
        && registered.scheme() == requested.scheme()
        && registered.host_str() == requested.host_str()
        && registered.path() == requested.path()
        && registered.query() == requested.query()
}

/// Verifies the client secret, certificate or federated token of a request.
pub(super) fn verify_client_credential(
    call: &mut OperationContext<'_>,
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
        return verify_assertion(call, &token, tenant, principal)
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
    verify_client_secret(call, secret, principal)
}

fn verify_client_secret(
    call: &OperationContext<'_>,
    secret: &str,
    principal: &ServicePrincipal,
) -> Result<ClientAuthMethod, TokenServiceError> {
    let same = |known: &RedactedText| {
        verify_slices_are_equal(known.expose().as_bytes(), secret.as_bytes()).is_ok()
    };
    let directory = &call.azure().directory;
    let mut known = directory.passwords_of(principal).filter(|known| known.starts <= call.now);
    match known.find(|known| same(&known.text)) {
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
    call: &mut OperationContext<'_>,
    token: &UnverifiedToken,
    tenant: &Tenant,
    principal: &ServicePrincipal,
) -> Result<(), TokenServiceError> {
    let Some(named) = token.text_claim("iss") else {
        return Err(
            ASSERTION_NOT_OF_CLIENT.with_description("The client assertion has no `iss` claim.")
        );
    };
    if is_proxy_server_name(&call.request.host) {
        let bound = bound_federated_credentials(call, principal);
        return verify_federated_token(call, token, &bound);
    }
    let directory = &call.azure().directory;
    if named.contains("://") {
        let credentials = directory.known_federated_credentials_of(principal, call.now);
        return verify_federated_token(call, token, &credentials);
    }
    let issuer = call.endpoint.cloud.v1_issuer(&tenant.id);
    let endpoint = TokenEndpoint {
        cloud: &call.endpoint.cloud,
        host: &call.request.host,
        origin: &call.request.origin(),
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
    let bindings = call.azure().bindings.iter();
    bindings
        .filter(|binding| binding.client_id == principal.client_id)
        .filter(|binding| binding.server_name == call.request.host)
        .map(IdentityBinding::federated_credential)
        .collect()
}
