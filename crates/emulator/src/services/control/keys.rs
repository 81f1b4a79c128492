//! Versions of vault keys as a test needs them: with a chosen name, from given numbers, disabled.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_vocabulary::SecretName;
use serde::Deserialize;
use serde_json::json;

use super::{body, refused};
use crate::call::Call;
use crate::keys::RsaNumbers;
use crate::request::Reply;
use crate::services::keyvault::{Attributes, KeyBirth, KeyMaterial, Recoverable};

/// What `PUT keys` takes: the vault by its host name, the key, and what is to become of it. A version
/// that is there keeps its key; without `version` there is a new one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Key {
    vault_host: String,
    name: SecretName,
    version: Option<String>,
    bits: Option<u32>,
    numbers: Option<RsaNumbers>,
    enabled: Option<bool>,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
}

/// `PUT keys`: a version of a key with these attributes.
pub(super) fn put(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Key = body(call)?;
    let host = asked.vault_host.to_ascii_lowercase();
    let id = match &asked.version {
        Some(id) if is_version(id) => id.clone(),
        Some(_) => return Err(invalid("`version` has 1 to 32 letters and digits.")),
        None => call.ids.hex32(),
    };
    let kid = format!("https://{host}/keys/{}/{id}", asked.name);
    let now = call.now;
    let vault = call.world_mut().vaults.at_host_mut(&host).ok_or_else(|| {
        refused(StatusCode::NOT_FOUND, "VaultNotFound", "No vault has this host name.")
    })?;
    if let Ok(held) = vault.keys.version_mut(asked.name.as_str(), Some(&id)) {
        if asked.bits.is_some() || asked.numbers.is_some() {
            return Err(refused(
                StatusCode::CONFLICT,
                "VersionExists",
                "A version keeps its key: only its attributes can be put.",
            ));
        }
        held.attributes = changed(&asked, held.attributes, now);
        let enabled = held.attributes.enabled;
        return Ok(Reply::json(StatusCode::OK, &json!({ "kid": kid, "enabled": enabled })));
    }
    let attributes = changed(&asked, Attributes::new(now), now);
    let material = match (asked.bits, &asked.numbers) {
        (Some(_), Some(_)) => return Err(invalid("Give `bits` or `numbers`, one of them.")),
        (_, Some(numbers)) => KeyMaterial::Given(numbers),
        (bits, None) => KeyMaterial::Made(bits.unwrap_or(2048)),
    };
    let name = asked.name.as_str();
    let birth =
        KeyBirth { name, id, material, operations: None, attributes, tags: BTreeMap::new() };
    let version = birth.version().map_err(|error| invalid(&format!("{error}.")))?;
    vault.keys.push(name, version).map_err(|Recoverable| {
        refused(StatusCode::CONFLICT, "KeyDeleted", "The name belongs to a deleted key.")
    })?;
    let reply = json!({ "kid": kid, "enabled": attributes.enabled });
    Ok(Reply::json(StatusCode::CREATED, &reply))
}

fn changed(asked: &Key, mut attributes: Attributes, now: Timestamp) -> Attributes {
    attributes.enabled = asked.enabled.unwrap_or(attributes.enabled);
    attributes.not_before = asked.not_before.or(attributes.not_before);
    attributes.expires = asked.expires.or(attributes.expires);
    attributes.updated = now;
    attributes
}

/// The service makes 32 hexadecimal digits; what is put here may be any text that is read as one
/// segment of a path.
fn is_version(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn invalid(message: &str) -> Reply {
    refused(StatusCode::BAD_REQUEST, "KeyInvalid", message)
}
