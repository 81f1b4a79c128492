//! Rollover of the keys that sign a tenant's tokens.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::directory::{
    NextSigningKeyMissing, TenantSigningKey, TenantSigningKeys,
};
use lanyard_emulator_state::request::ServiceReply;
use serde::Deserialize;
use serde_json::json;

use super::{control_error, parse_body};

/// The body of `POST signing-keys`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RollSigningKeyRequest {
    /// The tenant by its id or domain.
    tenant: String,
    rollover: SigningKeyRollover,
}

/// A step of a rollover. Entra publishes a key before the key signs, and after it has signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SigningKeyRollover {
    /// Publishes a new key that does not sign yet.
    Publish,
    /// Signs with the published new key; the old key stays published.
    Sign,
    /// Stops publishing the old keys.
    Remove,
    /// Replaces all keys at once, and stops publishing the old keys.
    Replace,
}

/// `POST signing-keys`: performs one step of a rollover, and returns the published keys.
pub(super) fn roll_signing_key(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: RollSigningKeyRequest = parse_body(call)?;
    let now = call.now;
    let (azure, ids) = call.azure_and_ids();
    let tenant = azure.directory.tenants.iter_mut().find(|tenant| tenant.is_named(&body.tenant));
    let tenant = tenant.ok_or_else(|| {
        let message = "No tenant has this id or domain; `GET /lanyard/v1/state` lists them.";
        control_error(StatusCode::NOT_FOUND, "TenantNotFound", message)
    })?;
    let keys = &mut tenant.signing_keys;
    let mut new_key = || {
        let failed = |error: &dyn std::error::Error| {
            control_error(StatusCode::INTERNAL_SERVER_ERROR, "KeyFailed", &format!("{error}."))
        };
        let key = ids.generate_rsa_key().map_err(|error| failed(&error))?;
        TenantSigningKey::new(key, now).map_err(|error| failed(&error))
    };
    match body.rollover {
        SigningKeyRollover::Publish => keys.publish_next(new_key()?),
        SigningKeyRollover::Sign => keys.sign_with_next().map_err(missing_reply)?,
        SigningKeyRollover::Remove => keys.remove_previous(),
        SigningKeyRollover::Replace => keys.replace_all(new_key()?),
    }
    Ok(ServiceReply::json(StatusCode::OK, &signing_keys_json(keys)))
}

fn missing_reply(error: NextSigningKeyMissing) -> ServiceReply {
    control_error(
        StatusCode::CONFLICT,
        "NextKeyMissing",
        &format!("{error}: publish one first, or replace all keys."),
    )
}

fn signing_keys_json(keys: &TenantSigningKeys) -> serde_json::Value {
    let published: Vec<_> = keys.published().map(|key| &key.key_id).collect();
    json!({ "signing": keys.current().key_id, "published": published })
}

#[cfg(test)]
mod tests;
