//! Secrets and keys of a vault as ARM resources: their path, attributes and errors.

use http::StatusCode;
use jiff::Timestamp;
use lanyard_vocabulary::SecretName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::access::{authorize_call, parse_request_scope, path_scope};
use super::super::error::{ArmServiceError, bad_request, conflict};
use super::super::resource_reads::find_resource;
use crate::authorization::AccessScope;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;
use crate::services::keyvault::{EmulatedVault, StoredObjectAttributes};

/// The attributes in a body.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
pub(super) struct ArmObjectAttributes {
    enabled: Option<bool>,
    nbf: Option<i64>,
    exp: Option<i64>,
}

impl ArmObjectAttributes {
    /// Applies the given attributes at `now`.
    pub(super) fn apply(
        self,
        mut attributes: StoredObjectAttributes,
        now: Timestamp,
    ) -> Result<StoredObjectAttributes, ServiceReply> {
        let parse = |name: &str, seconds: Option<i64>| {
            seconds.map(Timestamp::from_second).transpose().map_err(|error| {
                bad_request("BadRequest", format!("`properties.attributes.{name}`: {error}."))
            })
        };
        attributes.enabled = self.enabled.unwrap_or(attributes.enabled);
        attributes.not_before = parse("nbf", self.nbf)?.or(attributes.not_before);
        attributes.expires = parse("exp", self.exp)?.or(attributes.expires);
        attributes.updated = now;
        Ok(attributes)
    }
}

/// The vault of a request, if the caller has the permission for `action` on the object in the path, or on the
/// vault.
pub(super) fn authorized_vault<'c>(
    call: &'c mut OperationContext<'_>,
    action: &str,
) -> Result<&'c EmulatedVault, ServiceReply> {
    let path = path_scope(call)?;
    let vault = vault_scope(call)?;
    let object = call.path_parameter("object");
    let scope = if object.is_empty() { &vault } else { &path };
    authorize_call(call, &format!("Microsoft.KeyVault/vaults/{action}"), scope)?;
    find_resource(call, &vault)?;
    if !object.is_empty() && object.parse::<SecretName>().is_err() {
        let rule = "A name has 1 to 127 letters, digits and `-`.";
        return Err(bad_request("BadRequest", format!("The name '{object}' is invalid. {rule}")));
    }
    let now = call.now;
    call.azure.vaults.purge_expired(now);
    call.azure()
        .vaults
        .vault_of_resource(&vault)
        .ok_or_else(|| ArmServiceError::ResourceNotFound(&vault).to_reply())
}

fn vault_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    let parameter = |name| call.path_parameter(name);
    parse_request_scope(&format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.KeyVault/vaults/{}",
        parameter("subscription"),
        parameter("group"),
        parameter("name")
    ))
}

/// The error for an object that does not exist.
pub(super) fn object_not_found_reply(call: &OperationContext<'_>, kind: &str) -> ServiceReply {
    let (vault, name) = (call.path_parameter("name"), call.path_parameter("object"));
    let message = format!("The {kind} '{name}' does not exist in the vault '{vault}'.");
    ArmServiceError::Other(StatusCode::NOT_FOUND, "ResourceNotFound", message).to_reply()
}

/// The error for a name that a deleted object, or a certificate, has.
pub(super) fn name_conflict_reply(call: &OperationContext<'_>, kind: &str) -> ServiceReply {
    let name = call.path_parameter("object");
    conflict(
        "Conflict",
        format!(
            "The name '{name}' of the {kind} belongs to a deleted object that can be recovered, or to a \
             certificate."
        ),
    )
}

/// The fields that secrets and keys have in common.
pub(super) fn object_json(
    vault: &EmulatedVault,
    collection: &str,
    name: &str,
    attributes: StoredObjectAttributes,
) -> Value {
    let mut wire = json!({
        "id": vault.resource_id.child(&format!("{collection}/{name}")).as_str(),
        "name": name,
        "type": format!("Microsoft.KeyVault/vaults/{collection}"),
        "location": vault.location,
        "properties": {
            "attributes": {
                "enabled": attributes.enabled,
                "created": attributes.created.as_second(),
                "updated": attributes.updated.as_second(),
            },
        },
    });
    for (key, value) in [("nbf", attributes.not_before), ("exp", attributes.expires)] {
        if let Some(value) = value {
            wire["properties"]["attributes"][key] = json!(value.as_second());
        }
    }
    wire
}
