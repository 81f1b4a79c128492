//! Versions of vault keys for tests: with a chosen id, with chosen RSA numbers, or disabled.

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::{
    AsymmetricKey, AsymmetricKeyType, RsaJwkComponents, RsaKey, RsaKeySize,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion,
};
use lanyard_vocabulary::SecretName;
use serde::Deserialize;
use serde_json::json;

use super::{control_error, parse_body};

/// The body of `PUT keys`: the host name of the vault, the name of the key and its attributes. An
/// existing version keeps its key; without `version` a new version is created.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutKeyRequest {
    vault_host: String,
    name: SecretName,
    version: Option<String>,
    bits: Option<u32>,
    numbers: Option<RsaJwkComponents>,
    enabled: Option<bool>,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
}

/// `PUT keys`: creates or changes a version of a key.
pub(super) fn put_key_version(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: PutKeyRequest = parse_body(call)?;
    let host = body.vault_host.to_ascii_lowercase();
    if body.version.as_deref().is_some_and(|id| !is_valid_version_id(id)) {
        return Err(invalid_key_reply("`version` has 1 to 32 letters and digits."));
    }
    let now = call.now;
    let vaults = &call.azure().vaults;
    if vaults.vault_at_host(&host).is_none() {
        let message = "No vault has this host name.";
        return Err(control_error(StatusCode::NOT_FOUND, "VaultNotFound", message));
    }
    let name = body.name.as_str();
    let known = body.version.as_deref().and_then(|id| {
        let (_, version) = vaults.keys.version(&host, name, Some(id)).ok()?;
        Some(version.attributes)
    });
    let key = match known {
        Some(_) if body.bits.is_some() || body.numbers.is_some() => {
            return Err(control_error(
                StatusCode::CONFLICT,
                "VersionExists",
                "A version keeps its key: only its attributes can be put.",
            ));
        }
        Some(_) => None,
        None => Some(requested_key(call, &body)?),
    };
    let id = body.version.clone().unwrap_or_else(|| call.ids.next_hex32());
    let attributes = known.unwrap_or_else(|| StoredObjectAttributes::new(now));
    let attributes = apply_attributes(&body, attributes, now);
    let kid = format!("{}/keys/{name}/{id}", call.clouds.origin(&host));
    let reply = json!({ "kid": kid, "enabled": attributes.enabled });
    let keys = &mut call.azure_mut().vaults.keys;
    let Some(key) = key else {
        // The version exists: it was found above.
        let _ =
            keys.change_version(&host, name, Some(&id), |stored| stored.attributes = attributes);
        return Ok(ServiceReply::json(StatusCode::OK, &reply));
    };
    let content = KeyContent { key, managed: false, operations: None };
    let version = StoredObjectVersion { id, attributes, tags: None, content };
    keys.push_version(&host, name, version).map_err(|DeletedNameConflict| {
        control_error(StatusCode::CONFLICT, "KeyDeleted", "The name belongs to a deleted key.")
    })?;
    Ok(ServiceReply::json(StatusCode::CREATED, &reply))
}

/// Returns the key with the RSA numbers in the body, or a new key.
fn requested_key(
    call: &mut OperationContext<'_>,
    body: &PutKeyRequest,
) -> Result<AsymmetricKey, ServiceReply> {
    let invalid = |message: String| invalid_key_reply(&format!("{message}."));
    let bits = match (body.bits, &body.numbers) {
        (Some(_), Some(_)) => {
            return Err(invalid_key_reply("Give `bits` or `numbers`, one of them."));
        }
        (_, Some(numbers)) => {
            let key = RsaKey::from_jwk_components(numbers);
            return key.map(AsymmetricKey::Rsa).map_err(|error| invalid(error.to_string()));
        }
        (bits, None) => bits.unwrap_or(RsaKeySize::Bits2048.bits()),
    };
    let size = RsaKeySize::try_from(bits)
        .map_err(|_unsupported| invalid_key_reply("`bits` is 2048, 3072 or 4096."))?;
    call.new_key(AsymmetricKeyType::Rsa(size), |error| invalid(error.to_string()))
}

fn apply_attributes(
    body: &PutKeyRequest,
    mut attributes: StoredObjectAttributes,
    now: Timestamp,
) -> StoredObjectAttributes {
    attributes.enabled = body.enabled.unwrap_or(attributes.enabled);
    attributes.not_before = body.not_before.or(attributes.not_before);
    attributes.expires = body.expires.or(attributes.expires);
    attributes.updated = now;
    attributes
}

/// Azure uses 32 hexadecimal digits; the control API also accepts 1 to 32 letters and digits.
fn is_valid_version_id(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn invalid_key_reply(message: &str) -> ServiceReply {
    control_error(StatusCode::BAD_REQUEST, "KeyInvalid", message)
}
