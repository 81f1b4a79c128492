//! Key operations: encrypt and decrypt, wrap and unwrap.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::access::{VaultRef, authorize_call, store_error_reply};
use super::error::{KeyRestriction, VaultServiceError};
use super::keys::{VaultCryptoOperation, permitted_operations};
use super::object_kind::{DECRYPT, ENCRYPT, KeyVaultObjectKind, UNWRAP, VaultPermission, WRAP};
use super::object_store::StoredObjectAttributes;
use super::objects::{requested_name_and_version, version_id};
use super::secrets::{bad_parameter_reply, parse_body};
use super::vault::StoredVaultKey;
use crate::keys::{RedactedText, RsaKey, RsaKeyError, RsaPadding};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

#[derive(Deserialize)]
struct CryptoOperationBody {
    alg: Option<String>,
    value: Option<RedactedText>,
}

/// `POST /keys/{name}[/{version}]/encrypt`.
pub(super) fn encrypt_value(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_crypto_operation(call, VaultCryptoOperation::Encrypt, ENCRYPT)
}

/// `POST /keys/{name}[/{version}]/decrypt`.
pub(super) fn decrypt_value(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_crypto_operation(call, VaultCryptoOperation::Decrypt, DECRYPT)
}

/// `POST /keys/{name}[/{version}]/wrapkey`.
pub(super) fn wrap_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_crypto_operation(call, VaultCryptoOperation::WrapKey, WRAP)
}

/// `POST /keys/{name}[/{version}]/unwrapkey`.
pub(super) fn unwrap_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_crypto_operation(call, VaultCryptoOperation::UnwrapKey, UNWRAP)
}

fn run_crypto_operation(
    call: &mut OperationContext<'_>,
    operation: VaultCryptoOperation,
    right: VaultPermission,
) -> Result<ServiceReply, ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let found = authorize_call(call, right).map(|VaultRef { vault, vaults }| {
        vaults.keys.version(&vault.host, &name, version.as_deref()).map(|(object, held)| {
            let restriction = key_restriction(&held.content, held.attributes, operation);
            let kid = version_id(vault, &object.name, held);
            (restriction, held.content.key.clone(), kid)
        })
    })?;
    let (restriction, key, kid) =
        found.map_err(|it| store_error_reply(it, KeyVaultObjectKind::Key, call))?;
    if let Some(because) = restriction(call.now) {
        return Err(VaultServiceError::KeyOperationForbidden {
            operation: operation.name(),
            restriction: because,
        }
        .to_reply());
    }
    // Elliptic curve keys lack these operations, so they were rejected before.
    let StoredVaultKey::Rsa(key) = key else {
        let because = KeyRestriction::NotPermitted;
        return Err(VaultServiceError::KeyOperationForbidden {
            operation: operation.name(),
            restriction: because,
        }
        .to_reply());
    };
    let CryptoOperationBody { alg, value } = parse_body(call)?;
    let alg = alg.ok_or_else(|| bad_parameter_reply("`alg` is missing".to_owned()))?;
    let padding = RsaPadding::from_jwe_algorithm(&alg).ok_or_else(|| {
        bad_parameter_reply(format!("`alg` `{alg}` is none of RSA-OAEP-256, RSA-OAEP, RSA1_5"))
    })?;
    let value = value.ok_or_else(|| bad_parameter_reply("`value` is missing".to_owned()))?;
    let input =
        URL_SAFE_NO_PAD.decode(value.expose()).map(Zeroizing::new).map_err(|_malformed| {
            bad_parameter_reply("`value` is not base64url without padding".to_owned())
        })?;
    let output = transform_value(&key, padding, &input, operation)?;
    let value = Zeroizing::new(URL_SAFE_NO_PAD.encode(&*output));
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "kid": kid, "value": &*value })))
}

/// The restriction of a key by its state and validity. An expired key can still decrypt, as in the service.
fn key_restriction(
    content: &super::vault::KeyContent,
    attributes: StoredObjectAttributes,
    operation: VaultCryptoOperation,
) -> impl Fn(Timestamp) -> Option<KeyRestriction> + use<> {
    let is_permitted = permitted_operations(content).any(|known| known == operation.name());
    move |now| {
        if !attributes.enabled {
            return Some(KeyRestriction::Disabled);
        }
        if !is_permitted {
            return Some(KeyRestriction::NotPermitted);
        }
        if !operation.produces_ciphertext() {
            return None;
        }
        let is_early = attributes.not_before.is_some_and(|from| now < from);
        let is_late = attributes.expires.is_some_and(|until| until <= now);
        match (is_early, is_late) {
            (true, _) => Some(KeyRestriction::NotYetValid),
            (_, true) => Some(KeyRestriction::Expired),
            _ => None,
        }
    }
}

fn transform_value(
    key: &RsaKey,
    padding: RsaPadding,
    input: &[u8],
    operation: VaultCryptoOperation,
) -> Result<Zeroizing<Vec<u8>>, ServiceReply> {
    let output = if operation.produces_ciphertext() {
        key.encrypt(padding, input).map(|output| output.map(Zeroizing::new))
    } else {
        key.decrypt(padding, input)
    };
    let unreadable = |error: RsaKeyError| {
        ServiceReply::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            .with_rejection_reason("key unreadable")
    };
    output.map_err(unreadable)?.ok_or_else(|| {
        let problem = if operation.produces_ciphertext() {
            "`value` is longer than this key and `alg` take"
        } else {
            "`value` was not made with this key and `alg`"
        };
        bad_parameter_reply(problem.to_owned())
    })
}
