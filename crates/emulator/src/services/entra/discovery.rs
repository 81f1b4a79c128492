//! What clients read before they ask for a token.

use http::StatusCode;
use lanyard_vocabulary::Cloud;
use serde_json::{Value, json};

use super::refusal::{INSTANCE_UNKNOWN, Refusal, TENANT_UNKNOWN};
use crate::call::Call;
use crate::directory::Tenant;
use crate::hosts;
use crate::keys::KeyError;
use crate::operations::Service;
use crate::request::Reply;
use crate::token::issuer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Names that stand for any tenant in a path.
pub(super) const TENANTLESS: [&str; 4] = ["common", "organizations", "consumers", "adfs"];

/// `GET /common/discovery/instance`: which hosts are one token service.
pub(super) fn instance(call: &mut Call<'_>) -> Result<Reply, Refusal> {
    let asked = call.request.query("authorization_endpoint").unwrap_or_default();
    let url = url::Url::parse(asked).ok();
    let host = url.as_ref().and_then(url::Url::host_str).unwrap_or_default();
    if hosts::site(host).is_none_or(|site| site.service != Service::Entra) {
        return Err(INSTANCE_UNKNOWN.because(format!("Unknown or invalid instance '{host}'.")));
    }
    let tenant = url.as_ref().and_then(|url| url.path_segments()?.next()).unwrap_or("common");
    let metadata: Vec<_> = Cloud::ALL
        .into_iter()
        .filter_map(Cloud::endpoints)
        .map(|endpoints| {
            let aliases: Vec<_> = std::iter::once(&endpoints.authority_host)
                .chain(endpoints.authority_aliases)
                .collect();
            json!({
                "preferred_network": endpoints.authority_host,
                "preferred_cache": endpoints.authority_aliases.first().unwrap_or(&endpoints.authority_host),
                "aliases": aliases,
            })
        })
        .collect();
    Ok(Reply::json(
        StatusCode::OK,
        &json!({
            "tenant_discovery_endpoint":
                format!("https://{host}/{tenant}/v2.0/.well-known/openid-configuration"),
            "api-version": call.request.query("api-version").unwrap_or("1.1"),
            "metadata": metadata,
        }),
    ))
}

/// The version of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// `/oauth2/token`, `resource`.
    One,
    /// `/oauth2/v2.0/token`, `scope`.
    Two,
}

/// `GET /{tenant}[/v2.0]/.well-known/openid-configuration`.
pub(super) fn configuration(call: &mut Call<'_>, version: Version) -> Result<Reply, Refusal> {
    let named = call.parameter("tenant");
    let tenant = if TENANTLESS.contains(&named.to_ascii_lowercase().as_str()) {
        None
    } else {
        let tenant = call.world().directory.tenant(named);
        let unknown = || {
            let mut refusal = tenant_unknown(named);
            refusal.code.error = "invalid_tenant";
            refusal
        };
        Some(tenant.ok_or_else(unknown)?)
    };
    let cloud = call.site.cloud;
    let host = &call.request.host;
    let id = tenant.map_or(named, |tenant| tenant.id.as_str());
    let base = format!("https://{host}/{id}");
    let canonical = cloud.endpoints().map_or(host.as_str(), |known| known.authority_host);
    let (oauth, keys) = match version {
        Version::One => (format!("{base}/oauth2"), format!("https://{host}/{id}/discovery/keys")),
        Version::Two => {
            (format!("{base}/oauth2/v2.0"), format!("https://{host}/{id}/discovery/v2.0/keys"))
        }
    };
    let issuer = match (version, tenant) {
        (Version::One, Some(tenant)) => issuer(cloud, &tenant.id),
        (Version::One, None) => "https://sts.windows.net/{tenantid}/".to_owned(),
        (Version::Two, Some(tenant)) => format!("https://{canonical}/{}/v2.0", tenant.id),
        (Version::Two, None) => format!("https://{canonical}/{{tenantid}}/v2.0"),
    };
    Ok(Reply::json(
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
            "authorization_endpoint": format!("{oauth}/authorize"),
            "device_authorization_endpoint": format!("{oauth}/devicecode"),
            "end_session_endpoint": format!("{oauth}/logout"),
            "tenant_region_scope": "NA",
            "cloud_instance_name": canonical.strip_prefix("login.").unwrap_or(canonical),
            "cloud_graph_host_name": "graph.windows.net",
            "msgraph_host": hosts::graph(cloud),
            "rbac_url": "https://pas.windows.net",
        }),
    ))
}

/// `GET /{tenant}/discovery[/v2.0]/keys`: the public parts of the signing keys, and no others.
pub(super) fn keys(call: &mut Call<'_>) -> Result<Reply, Refusal> {
    let named = call.parameter("tenant");
    let tenantless = TENANTLESS.contains(&named.to_ascii_lowercase().as_str());
    let directory = &call.world().directory;
    let tenants: Vec<_> = if tenantless {
        directory.tenants.iter().collect()
    } else {
        vec![directory.tenant(named).ok_or_else(|| tenant_unknown(named))?]
    };
    let keys: Result<Vec<_>, _> = tenants.into_iter().map(web_key).collect();
    let keys = keys.map_err(|error| super::refusal::INTERNAL.because(error.to_string()))?;
    Ok(Reply::json(StatusCode::OK, &json!({ "keys": keys })))
}

fn web_key(tenant: &Tenant) -> Result<Value, KeyError> {
    let (modulus, exponent) = tenant.key.jwk_parts()?;
    Ok(json!({
        "kty": "RSA",
        "use": "sig",
        "kid": tenant.key_id,
        "x5t": tenant.key_id,
        "n": modulus,
        "e": exponent,
        "x5c": [STANDARD.encode(&tenant.certificate)],
    }))
}

/// The refusal of a tenant that the world does not have.
pub(super) fn tenant_unknown(named: &str) -> Refusal {
    TENANT_UNKNOWN.because(format!(
        "Tenant '{named}' not found. Check to make sure you have the correct tenant ID and are \
         signing into the correct cloud."
    ))
}
