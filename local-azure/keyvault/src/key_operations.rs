//! Key operations: encrypt and decrypt, wrap and unwrap, sign and verify.

use aws_lc_rs::digest::Digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::{AsymmetricKey, JwsAlgorithm, RedactedText, RsaKey, RsaPadding};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_kind::{
    DECRYPT, ENCRYPT, KeyVaultObjectKind, RELEASE_KEY, SIGN, UNWRAP, VERIFY, VaultPermission, WRAP,
};
use lanyard_emulator_state::vaults::object_store::StoredObjectAttributes;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::access::authorize_call;
use super::error::{KeyRestriction, VaultServiceError, internal_error_reply};
use super::keys::permitted_operations;
use super::object_errors::store_error_reply;
use super::request_body::{bad_parameter_reply, parse_body};
use super::stored_object::{requested_name_and_version, version_id};
use super::vault_view::VaultRef;

/// The operations that use a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VaultCryptoOperation {
    Encrypt,
    Decrypt,
    WrapKey,
    UnwrapKey,
    Sign,
    Verify,
}

impl VaultCryptoOperation {
    /// The name in `key_ops`.
    const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::WrapKey => "wrapKey",
            Self::UnwrapKey => "unwrapKey",
            Self::Sign => "sign",
            Self::Verify => "verify",
        }
    }

    const fn permission(self) -> VaultPermission {
        match self {
            Self::Encrypt => ENCRYPT,
            Self::Decrypt => DECRYPT,
            Self::WrapKey => WRAP,
            Self::UnwrapKey => UNWRAP,
            Self::Sign => SIGN,
            Self::Verify => VERIFY,
        }
    }

    /// Whether the operation protects new data, which a key outside of its validity must not do. Decrypting,
    /// unwrapping and verifying stay possible.
    const fn protects_data(self) -> bool {
        matches!(self, Self::Encrypt | Self::WrapKey | Self::Sign)
    }
}

#[derive(Deserialize)]
struct CryptoOperationBody {
    alg: Option<String>,
    value: Option<RedactedText>,
    digest: Option<RedactedText>,
}

/// `POST /keys/{name}[/{version}]/encrypt`.
pub(super) fn encrypt_value(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_encryption(call, VaultCryptoOperation::Encrypt)
}

/// `POST /keys/{name}[/{version}]/decrypt`.
pub(super) fn decrypt_value(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_encryption(call, VaultCryptoOperation::Decrypt)
}

/// `POST /keys/{name}[/{version}]/wrapkey`.
pub(super) fn wrap_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_encryption(call, VaultCryptoOperation::WrapKey)
}

/// `POST /keys/{name}[/{version}]/unwrapkey`.
pub(super) fn unwrap_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    run_encryption(call, VaultCryptoOperation::UnwrapKey)
}

/// `POST /keys/{name}[/{version}]/sign`: signs a digest.
pub(super) fn sign_digest(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, kid) = usable_key(call, VaultCryptoOperation::Sign)?;
    let body: CryptoOperationBody = parse_body(call)?;
    let algorithm = parse_signature_algorithm(body.alg.as_deref())?;
    let digest = parse_digest("value", body.value.as_ref(), algorithm)?;
    let signature = key
        .sign_digest(algorithm, &digest)
        .map_err(|error| internal_error_reply(&error))?
        .ok_or_else(|| incompatible_algorithm_reply(&key, &kid, algorithm))?;
    let value = URL_SAFE_NO_PAD.encode(signature);
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "kid": kid, "value": value })))
}

/// `POST /keys/{name}[/{version}]/verify`: verifies the signature of a digest.
pub(super) fn verify_signature(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, kid) = usable_key(call, VaultCryptoOperation::Verify)?;
    let body: CryptoOperationBody = parse_body(call)?;
    let algorithm = parse_signature_algorithm(body.alg.as_deref())?;
    let digest = parse_digest("digest", body.digest.as_ref(), algorithm)?;
    let signature = decode_value("value", body.value.as_ref())?;
    let is_valid = key
        .verify_digest(algorithm, &digest, &signature)
        .map_err(|error| internal_error_reply(&error))?
        .ok_or_else(|| incompatible_algorithm_reply(&key, &kid, algorithm))?;
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "value": is_valid })))
}

/// `POST /keys/{name}[/{version}]/release`: not implemented, because it needs a hardware security module.
pub(super) fn release_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authorize_call(call, RELEASE_KEY)?;
    let message = "The emulator does not implement Secure Key Release (`release`): its keys are software \
                   keys, which cannot be released.";
    Err(VaultServiceError::NotImplemented(message.to_owned()).to_reply())
}

fn run_encryption(
    call: &mut OperationContext<'_>,
    operation: VaultCryptoOperation,
) -> Result<ServiceReply, ServiceReply> {
    let (key, kid) = usable_key(call, operation)?;
    // Elliptic curve keys lack these operations, so they were rejected before.
    let AsymmetricKey::Rsa(key) = key else {
        return Err(VaultServiceError::KeyOperationForbidden {
            operation: operation.name(),
            restriction: KeyRestriction::NotPermitted,
        }
        .to_reply());
    };
    let body: CryptoOperationBody = parse_body(call)?;
    let alg = body.alg.ok_or_else(|| bad_parameter_reply("`alg` is missing".to_owned()))?;
    let padding = RsaPadding::from_jwe_algorithm(&alg).ok_or_else(|| {
        bad_parameter_reply(format!("`alg` `{alg}` is none of RSA-OAEP-256, RSA-OAEP, RSA1_5"))
    })?;
    let input = decode_value("value", body.value.as_ref())?;
    let output = transform_value(&key, padding, &input, operation)?;
    let value = Zeroizing::new(URL_SAFE_NO_PAD.encode(&*output));
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "kid": kid, "value": &*value })))
}

/// Returns the requested key and its id URL, if caller and key may perform the operation.
fn usable_key(
    call: &mut OperationContext<'_>,
    operation: VaultCryptoOperation,
) -> Result<(AsymmetricKey, String), ServiceReply> {
    let (name, version) = requested_name_and_version(call);
    let now = call.now;
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, operation.permission())?;
    let found = vaults.keys.version(&vault.host, name, version).map(|(object, held)| {
        let restriction = key_restriction(&held.content, held.attributes, operation, now);
        let kid = version_id(reference.view(), &object.name, held);
        (restriction, held.content.key.clone(), kid)
    });
    let (restriction, key, kid) =
        found.map_err(|it| store_error_reply(it, KeyVaultObjectKind::Key, call))?;
    match restriction {
        None => Ok((key, kid)),
        Some(restriction) => {
            let operation = operation.name();
            Err(VaultServiceError::KeyOperationForbidden { operation, restriction }.to_reply())
        }
    }
}

/// Returns why the state or the validity of a key forbids the operation; `None` if it is permitted.
fn key_restriction(
    content: &KeyContent,
    attributes: StoredObjectAttributes,
    operation: VaultCryptoOperation,
    now: Timestamp,
) -> Option<KeyRestriction> {
    if !attributes.enabled {
        return Some(KeyRestriction::Disabled);
    }
    if !permitted_operations(content).any(|known| known == operation.name()) {
        return Some(KeyRestriction::NotPermitted);
    }
    if !operation.protects_data() {
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

fn decode_value(
    field: &str,
    text: Option<&RedactedText>,
) -> Result<Zeroizing<Vec<u8>>, ServiceReply> {
    let text = text.ok_or_else(|| bad_parameter_reply(format!("`{field}` is missing")))?;
    URL_SAFE_NO_PAD.decode(text.expose()).map(Zeroizing::new).map_err(|_malformed| {
        bad_parameter_reply(format!("`{field}` is not base64url without padding"))
    })
}

fn parse_signature_algorithm(name: Option<&str>) -> Result<JwsAlgorithm, ServiceReply> {
    let name = name.ok_or_else(|| bad_parameter_reply("`alg` is missing".to_owned()))?;
    JwsAlgorithm::from_name(name).ok_or_else(|| {
        let known = JwsAlgorithm::ALL.map(JwsAlgorithm::name).join(", ");
        bad_parameter_reply(format!("`alg` `{name}` is none of {known}"))
    })
}

fn parse_digest(
    field: &str,
    text: Option<&RedactedText>,
    algorithm: JwsAlgorithm,
) -> Result<Digest, ServiceReply> {
    let bytes = decode_value(field, text)?;
    let hash = algorithm.digest_algorithm();
    Digest::import_less_safe(&bytes, hash).map_err(|aws_lc_rs::error::Unspecified| {
        bad_parameter_reply(format!(
            "Invalid length of '{field}': {} bytes. {} requires {} bytes, encoded with base64url.",
            bytes.len(),
            algorithm.name(),
            hash.output_len()
        ))
    })
}

fn incompatible_algorithm_reply(
    key: &AsymmetricKey,
    kid: &str,
    algorithm: JwsAlgorithm,
) -> ServiceReply {
    let kind = match key {
        AsymmetricKey::Rsa(_) => "RSA".to_owned(),
        AsymmetricKey::Ec(key) => format!("EC with the curve {}", key.curve().name()),
    };
    bad_parameter_reply(format!(
        "Key and signing key algorithm are incompatible. Key {kid} is of type '{kind}', and algorithm \
         '{}' can only be used with a key of type '{}'.",
        algorithm.name(),
        algorithm.curve().map_or_else(
            || "RSA".to_owned(),
            |curve| format!("EC with the curve {}", curve.name())
        )
    ))
}

fn transform_value(
    key: &RsaKey,
    padding: RsaPadding,
    input: &[u8],
    operation: VaultCryptoOperation,
) -> Result<Zeroizing<Vec<u8>>, ServiceReply> {
    let output = if operation.protects_data() {
        key.encrypt(padding, input).map(|output| output.map(Zeroizing::new))
    } else {
        key.decrypt(padding, input)
    };
    output.map_err(|error| internal_error_reply(&error))?.ok_or_else(|| {
        let problem = if operation.protects_data() {
            "`value` is longer than this key and `alg` permit"
        } else {
            "`value` was not encrypted with this key and `alg`"
        };
        bad_parameter_reply(problem.to_owned())
    })
}

#[cfg(test)]
mod tests;
