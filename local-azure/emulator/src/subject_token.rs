//! Subject tokens of emulated issuers, for workload identity federation.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::{RedactedText, RsaKeyError};
use serde_json::{Value, json};
use uuid::Uuid;

/// The lifetime of a subject token by default, in seconds.
pub(crate) const DEFAULT_LIFETIME_SECONDS: u32 = 600;

/// A subject token for workload identity federation could not be issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubjectTokenError {
    /// The state has no key pair of the issuer.
    #[error("the local Azure has no key pair of the issuer of subject tokens")]
    NoIssuer,
    /// The issuer's key could not sign.
    #[error("no subject token could be signed")]
    Signing(#[source] RsaKeyError),
}

/// The content of a subject token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubjectTokenSpec<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) lifetime_seconds: u32,
}

/// Issues a subject token, as the API server of a cluster does for a `TokenRequest` without a bound object. A subject
/// that is a ServiceAccount adds the claim `kubernetes.io`.
pub(crate) fn mint_subject_token(
    azure: &AzureState,
    spec: SubjectTokenSpec<'_>,
    ids: &mut IdGenerator,
    now: Timestamp,
) -> Result<RedactedText, SubjectTokenError> {
    let issuer = azure.directory.issuers.get(spec.issuer);
    let (kid, key) =
        issuer.and_then(|it| it.keys.first_key_value()).ok_or(SubjectTokenError::NoIssuer)?;
    let header = json!({ "alg": "RS256", "kid": kid, "typ": "JWT" });
    let issued = now.as_second();
    let mut claims = json!({
        "iss": spec.issuer,
        "sub": spec.subject,
        "aud": [spec.audience],
        "iat": issued,
        "nbf": issued,
        "exp": issued + i64::from(spec.lifetime_seconds),
        "jti": ids.next_uuid(),
    });
    if let Some(account) = kubernetes_claim(spec) {
        claims["kubernetes.io"] = account;
    }
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = key.sign_rs256(signed.as_bytes()).map_err(SubjectTokenError::Signing)?;
    Ok(RedactedText::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

/// The claim `kubernetes.io`. The uid of a ServiceAccount depends on issuer and subject only.
fn kubernetes_claim(spec: SubjectTokenSpec<'_>) -> Option<Value> {
    let (namespace, name) = spec.subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let text = format!("{} {}", spec.issuer, spec.subject);
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_URL, text.as_bytes());
    Some(json!({ "namespace": namespace, "serviceaccount": { "name": name, "uid": uid } }))
}
