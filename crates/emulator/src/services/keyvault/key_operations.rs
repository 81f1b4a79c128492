//! What keys are used for: encrypt and decrypt, wrap and unwrap.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::gate::{enter, refuse};
use super::keys::{KeyOperation, permitted};
use super::kind::{DECRYPT, ENCRYPT, ObjectKind, Right, UNWRAP, WRAP};
use super::objects::{requested, version_id};
use super::refusal::{KeyRestriction, Refusal};
use super::secrets::{bad, body};
use super::shelf::Attributes;
use super::vault::VaultKey;
use crate::call::Call;
use crate::keys::{KeyError, Padding, RsaKey, SecretText};
use crate::request::Reply;

#[derive(Deserialize)]
struct OperationBody {
    alg: Option<String>,
    value: Option<SecretText>,
}

/// `POST /keys/{name}[/{version}]/encrypt`.
pub(super) fn encrypt(call: &mut Call<'_>) -> Result<Reply, Reply> {
    operate(call, KeyOperation::Encrypt, ENCRYPT)
}

/// `POST /keys/{name}[/{version}]/decrypt`.
pub(super) fn decrypt(call: &mut Call<'_>) -> Result<Reply, Reply> {
    operate(call, KeyOperation::Decrypt, DECRYPT)
}

/// `POST /keys/{name}[/{version}]/wrapkey`.
pub(super) fn wrap(call: &mut Call<'_>) -> Result<Reply, Reply> {
    operate(call, KeyOperation::WrapKey, WRAP)
}

/// `POST /keys/{name}[/{version}]/unwrapkey`.
pub(super) fn unwrap(call: &mut Call<'_>) -> Result<Reply, Reply> {
    operate(call, KeyOperation::UnwrapKey, UNWRAP)
}

fn operate(call: &mut Call<'_>, operation: KeyOperation, right: Right) -> Result<Reply, Reply> {
    let (name, version) = requested(call);
    let found = enter(call, right).map(|vault| {
        vault.keys.version(&name, version.as_deref()).map(|(object, held)| {
            let restriction = restriction(&held.content, held.attributes, operation);
            let kid = version_id(vault, &object.name, held);
            (restriction, held.content.key.clone(), kid)
        })
    })?;
    let (restriction, key, kid) = found.map_err(|it| refuse(it, ObjectKind::Key, call))?;
    if let Some(because) = restriction(call.now) {
        return Err(Refusal::Forbidden { operation: operation.name(), because }.reply());
    }
    // A key of a curve has no such operation, so it did not come this far.
    let VaultKey::Rsa(key) = key else {
        let because = KeyRestriction::NotPermitted;
        return Err(Refusal::Forbidden { operation: operation.name(), because }.reply());
    };
    let OperationBody { alg, value } = body(call)?;
    let alg = alg.ok_or_else(|| bad("`alg` is missing".to_owned()))?;
    let padding = Padding::of_algorithm(&alg)
        .ok_or_else(|| bad(format!("`alg` `{alg}` is none of RSA-OAEP-256, RSA-OAEP, RSA1_5")))?;
    let value = value.ok_or_else(|| bad("`value` is missing".to_owned()))?;
    let input = URL_SAFE_NO_PAD
        .decode(value.expose())
        .map(Zeroizing::new)
        .map_err(|_malformed| bad("`value` is not base64url without padding".to_owned()))?;
    let output = apply(&key, padding, &input, operation)?;
    let value = Zeroizing::new(URL_SAFE_NO_PAD.encode(&*output));
    Ok(Reply::json(StatusCode::OK, &json!({ "kid": kid, "value": &*value })))
}

/// What keeps a key from an operation, as a question of time. What an expired key protected can
/// still be read, as at the service.
fn restriction(
    content: &super::vault::KeyContent,
    attributes: Attributes,
    operation: KeyOperation,
) -> impl Fn(Timestamp) -> Option<KeyRestriction> + use<> {
    let is_permitted = permitted(content).any(|known| known == operation.name());
    move |now| {
        if !attributes.enabled {
            return Some(KeyRestriction::Disabled);
        }
        if !is_permitted {
            return Some(KeyRestriction::NotPermitted);
        }
        if !operation.protects() {
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

fn apply(
    key: &RsaKey,
    padding: Padding,
    input: &[u8],
    operation: KeyOperation,
) -> Result<Zeroizing<Vec<u8>>, Reply> {
    let output = if operation.protects() {
        key.encrypt(padding, input).map(|output| output.map(Zeroizing::new))
    } else {
        key.decrypt(padding, input)
    };
    let unreadable = |error: KeyError| {
        Reply::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).because("key unreadable")
    };
    output.map_err(unreadable)?.ok_or_else(|| {
        let problem = if operation.protects() {
            "`value` is longer than this key and `alg` take"
        } else {
            "`value` was not made with this key and `alg`"
        };
        bad(problem.to_owned())
    })
}
