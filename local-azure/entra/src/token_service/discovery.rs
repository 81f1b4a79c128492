//! Discovery endpoints, which clients read before they request a token.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::directory::{Tenant, TenantSigningKey};
use lanyard_emulator_state::keys::RsaKeyError;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use super::error::{INSTANCE_UNKNOWN, TokenServiceError};
use super::tenant_in_path::TenantInPath;
use super::token_directory;

/// `GET /common/discovery/instance`: the hosts of one token service.
pub(super) fn get_instance_discovery(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, TokenServiceError> {
    let asked = call.request.query("authorization_endpoint").unwrap_or_default();
    let is_entra = |url: &url::Url| {
        let endpoint = call.clouds.endpoint_of_url(url);
        endpoint.is_some_and(|endpoint| endpoint.service == AzureService::Entra)
    };
    let Some(url) = url::Url::parse(asked).ok().filter(is_entra) else {
        return Err(
            INSTANCE_UNKNOWN.with_description(format!("Unknown or invalid instance '{asked}'."))
        );
    };
    let origin = url.origin().ascii_serialization();
    let tenant = url.path_segments().and_then(|mut it| it.next()).unwrap_or("common");
    let metadata = call.clouds.iter().map(|cloud| {
        let aliases = cloud.authorities();
        json!({
            "preferred_network": cloud.authority(),
            "preferred_cache": aliases.get(1).or_else(|| aliases.first()),
            "aliases": aliases,
        })
    });
    let metadata: Vec<_> = metadata.collect();
    Ok(ServiceReply::json(
        StatusCode::OK,
        &json!({
            "tenant_discovery_endpoint":
                format!("{origin}/{tenant}/v2.0/.well-known/openid-configuration"),
            "api-version": call.request.query("api-version").unwrap_or("1.1"),
            "metadata": metadata,
        }),
    ))
}

/// The version of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointVersion {
    /// `/oauth2/token`, `resource`.
    V1,
    /// `/oauth2/v2.0/token`, `scope`.
    V2,
}

/// `GET /{tenant}[/v2.0]/.well-known/openid-configuration`.
pub(super) fn get_openid_configuration(
    call: &mut OperationContext<'_>,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let named = call.path_parameter("tenant");
    let path = TenantInPath::find(token_directory(call), named).map_err(|mut error| {
        error.code.error = "invalid_tenant";
        error
    })?;
    let tenant = path.named();
    let cloud = &call.endpoint.cloud;
    let id = tenant.map_or(named, |tenant| tenant.id.as_str());
    let base = format!("{}/{id}", call.request.origin());
    let canonical = cloud.authority();
    let (oauth, keys) = match version {
        EndpointVersion::V1 => (format!("{base}/oauth2"), format!("{base}/discovery/keys")),
        EndpointVersion::V2 => {
            (format!("{base}/oauth2/v2.0"), format!("{base}/discovery/v2.0/keys"))
        }
    };
    let issuer = match (version, tenant) {
        (EndpointVersion::V1, Some(tenant)) => cloud.v1_issuer(&tenant.id),
        (EndpointVersion::V1, None) => "https://sts.windows.net/{tenantid}/".to_owned(),
        (EndpointVersion::V2, Some(tenant)) => cloud.v2_issuer(&tenant.id),
        (EndpointVersion::V2, None) => format!("https://{canonical}/{{tenantid}}/v2.0"),
    };
    Ok(ServiceReply::json(
        StatusCode::OK,
        &json!({
            "token_endpoint": format!("{oauth}/token"),
            "token_endpoint_auth_methods_supported":
                ["client_secret_post", "private_key_jwt", "client_secret_basic"],
            "jwks_uri": keys,
            "response_modes_supported": ["query", "fragment", "form_post"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "response_types_supported": ["code", "id_token", "code id_token", "id_token token"],
            "scopes_supported": ["openid", "profile", "email", "offline_access"],
            "issuer": issuer,
            "request_uri_parameter_supported": false,
            // The local Azure signs users in at the v2.0 endpoints only.
            "authorization_endpoint": format!("{base}/oauth2/v2.0/authorize"),
            "device_authorization_endpoint": format!("{base}/oauth2/v2.0/devicecode"),
            "end_session_endpoint": format!("{base}/oauth2/v2.0/logout"),
            "userinfo_endpoint": format!("{base}/openid/userinfo"),
            "tenant_region_scope": "NA",
            "cloud_instance_name": canonical.strip_prefix("login.").unwrap_or(&canonical),
            "cloud_graph_host_name": "graph.windows.net",
            "msgraph_host": cloud.graph_authority(),
            "rbac_url": "https://pas.windows.net",
        }),
    ))
}

/// `GET /{tenant}/discovery[/v2.0]/keys`: the public parts of the signing keys only.
pub(super) fn get_signing_keys(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, TokenServiceError> {
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let of_path = |tenant: &&Tenant| path.named().is_none_or(|named| named.id == tenant.id);
    let tenants = directory.complete().tenants.iter().filter(of_path);
    let keys = tenants.flat_map(|tenant| tenant.signing_keys.published()).map(signing_key_json);
    let keys: Result<Vec<_>, _> = keys.collect();
    let keys = keys.map_err(|error| super::error::INTERNAL.with_description(error.to_string()))?;
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "keys": keys })))
}

fn signing_key_json(signing: &TenantSigningKey) -> Result<Value, RsaKeyError> {
    let (modulus, exponent) = signing.key.jwk_modulus_and_exponent()?;
    Ok(json!({
        "kty": "RSA",
        "use": "sig",
        "kid": signing.key_id,
        "x5t": signing.key_id,
        "n": modulus,
        "e": exponent,
        "x5c": [STANDARD.encode(&signing.certificate)],
    }))
}

/// `GET /{tenant}/userrealm/{user}`: whether the user's domain is that of a tenant. Clients read it before
/// they send a password.
pub(super) fn get_user_realm(call: &OperationContext<'_>) -> ServiceReply {
    let user = call.path_parameter("user");
    let domain = user.rsplit_once('@').map_or("", |(_, domain)| domain);
    if call.azure().directory.tenant(domain).is_none() {
        let body = json!({ "ver": "1.0", "account_type": "Unknown" });
        return ServiceReply::json(StatusCode::OK, &body);
    }
    let host = call.endpoint.cloud.authority();
    ServiceReply::json(
        StatusCode::OK,
        &json!({
            "ver": "1.0",
            "account_type": "Managed",
            "domain_name": domain,
            "cloud_instance_name": host.strip_prefix("login.").unwrap_or(&host),
            "cloud_audience_urn": "urn:federation:MicrosoftOnline",
        }),
    )
}
