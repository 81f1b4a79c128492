//! The issuer of a managed cluster's ServiceAccount tokens: `oidcIssuerProfile`.

use http::StatusCode;
use lanyard_emulator_arm::error::{ArmServiceError, bad_request};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_state::azure_clouds::OIDC_ISSUER_DOMAIN;
use lanyard_emulator_state::keys::{AsymmetricKey, AsymmetricKeyType, RsaKey, RsaKeySize};
use lanyard_emulator_state::managed_clusters::issuer_in_profile;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

/// The issuer of a cluster that is about to be written.
pub(super) struct ClusterIssuer {
    url: String,
    /// The key pair of an issuer that has none yet.
    new_key: Option<RsaKey>,
}

/// Completes `oidcIssuerProfile`. Returns the issuer if it is enabled, with a key pair if it needs one. Changes
/// nothing outside of the write.
pub(super) fn prepare_issuer(
    write: &mut ResourceWrite<'_, '_>,
    region: &str,
) -> Result<Option<ClusterIssuer>, ServiceReply> {
    let existing = write.existing.as_ref().and_then(issuer_in_profile).map(ToOwned::to_owned);
    let given = write.properties.get("oidcIssuerProfile").and_then(|it| it["enabled"].as_bool());
    let enabled = given.unwrap_or(existing.is_some());
    if existing.is_some() && !enabled {
        let message = "The OIDC issuer of a cluster cannot be disabled.";
        return Err(bad_request("OIDCIssuerFeatureCannotBeDisabled", message));
    }
    if !enabled {
        write.properties.insert("oidcIssuerProfile".to_owned(), json!({ "enabled": false }));
        return Ok(None);
    }
    let url = existing.unwrap_or_else(|| new_issuer_url(write, region));
    let profile = json!({ "enabled": true, "issuerURL": url });
    write.properties.insert("oidcIssuerProfile".to_owned(), profile);
    let needs_key = write.call.azure().needs_issuer_key(write.id, &url);
    let new_key = needs_key.then(|| new_issuer_key(write)).transpose()?.flatten();
    Ok(Some(ClusterIssuer { url, new_key }))
}

fn new_issuer_url(write: &mut ResourceWrite<'_, '_>, region: &str) -> String {
    let subscription = write.call.path_parameter("subscription");
    let tenant = write.resources().subscription(subscription).map(|it| it.tenant.to_string());
    let (tenant, id) = (tenant.unwrap_or_default(), write.call.ids.next_uuid());
    format!("https://{region}.{OIDC_ISSUER_DOMAIN}/{tenant}/{id}/")
}

fn new_issuer_key(write: &mut ResourceWrite<'_, '_>) -> Result<Option<RsaKey>, ServiceReply> {
    let kind = AsymmetricKeyType::Rsa(RsaKeySize::Bits2048);
    match write.call.new_key(kind, |error| key_error_reply(&error.to_string()))? {
        AsymmetricKey::Rsa(key) => Ok(Some(key)),
        AsymmetricKey::Ec(_) => Ok(None),
    }
}

fn key_error_reply(error: &str) -> ServiceReply {
    let (status, code) = (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError");
    ArmServiceError::Other(status, code, format!("{error}.")).to_reply()
}

/// Publishes the documents of an issuer with a new key pair. The operation stays in progress while a registered API
/// server has to restart for the issuer.
pub(super) fn publish_issuer(
    write: &mut ResourceWrite<'_, '_>,
    issuer: Option<ClusterIssuer>,
) -> Result<(), ServiceReply> {
    let Some(ClusterIssuer { url, new_key }) = issuer else { return Ok(()) };
    write.is_held = write.call.azure().is_restart_pending(write.id, &url);
    let Some(key) = new_key else { return Ok(()) };
    let published = write.call.azure_mut().publish_emulated_issuer(&url, key);
    published.map_err(|error| key_error_reply(&error.to_string()))
}
