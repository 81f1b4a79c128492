//! Versions of vault keys for tests: with a chosen id, from given numbers, or disabled.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_vocabulary::SecretName;
use serde::Deserialize;
use serde_json::json;

use super::{control_error, parse_body};
use crate::keys::RsaJwkComponents;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;
use crate::services::keyvault::{
    DeletedNameConflict, NewKeyMaterial, NewKeyVersion, StoredObjectAttributes,
};

/// The body of `PUT keys`: the vault by its host name, the key and its attributes. An existing version keeps
/// its key; without `version` a new one is created.
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
    let id = match &body.version {
        Some(id) if is_valid_version_id(id) => id.clone(),
        Some(_) => return Err(invalid_key_reply("`version` has 1 to 32 letters and digits.")),
        None => call.ids.next_hex32(),
    };
    let kid = format!("https://{host}/keys/{}/{id}", body.name);
    let now = call.now;
    let vaults = &mut call.azure_mut().vaults;
    if vaults.vault_at_host(&host).is_none() {
        let message = "No vault has this host name.";
        return Err(control_error(StatusCode::NOT_FOUND, "VaultNotFound", message));
    }
    if let Ok(held) = vaults.keys.version_mut(&host, body.name.as_str(), Some(&id)) {
        if body.bits.is_some() || body.numbers.is_some() {
            return Err(control_error(
                StatusCode::CONFLICT,
                "VersionExists",
                "A version keeps its key: only its attributes can be put.",
            ));
        }
        held.attributes = apply_attributes(&body, held.attributes, now);
        let enabled = held.attributes.enabled;
        return Ok(ServiceReply::json(StatusCode::OK, &json!({ "kid": kid, "enabled": enabled })));
    }
    let attributes = apply_attributes(&body, StoredObjectAttributes::new(now), now);
    let material = match (body.bits, &body.numbers) {
        (Some(_), Some(_)) => {
            return Err(invalid_key_reply("Give `bits` or `numbers`, one of them."));
        }
        (_, Some(numbers)) => NewKeyMaterial::Import(numbers),
        (bits, None) => NewKeyMaterial::Generate(bits.unwrap_or(2048)),
    };
    let name = body.name.as_str();
    let birth =
        NewKeyVersion { name, id, material, operations: None, attributes, tags: BTreeMap::new() };
    let version = birth.into_version().map_err(|error| invalid_key_reply(&format!("{error}.")))?;
    vaults.keys.push_version(&host, name, version).map_err(|DeletedNameConflict| {
        control_error(StatusCode::CONFLICT, "KeyDeleted", "The name belongs to a deleted key.")
    })?;
    let reply = json!({ "kid": kid, "enabled": attributes.enabled });
    Ok(ServiceReply::json(StatusCode::CREATED, &reply))
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

/// The service uses 32 hexadecimal digits; here any text is allowed that is one path segment.
fn is_valid_version_id(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn invalid_key_reply(message: &str) -> ServiceReply {
    control_error(StatusCode::BAD_REQUEST, "KeyInvalid", message)
}
