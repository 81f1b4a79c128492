//! Refresh tokens: opaque to clients, and revoked when the user's password changes.
//!
//! A token contains its own data, encrypted with a key of the state, as Entra's tokens do, so that
//! a session with many refreshes needs no storage. It is not bound to a resource.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::directory::User;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::sign_ins::sign_in_state::RequestedScope;
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::error::{
    GRANT_INVALID, GRANT_MALFORMED, GRANT_REVOKED, INTERNAL, REFRESH_TOKEN_EXPIRED,
    TokenServiceError, USER_DELETED,
};
use super::token_directory;
use super::user_sign_in::require_enabled;

/// The start of every refresh token: the version of its format.
const PREFIX: &str = "1.";

/// The content of a refresh token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RefreshToken {
    pub(super) user: Uuid,
    pub(super) client_id: EntraClientId,
    pub(super) issued: Timestamp,
    /// The scope of the last request, for requests without a scope.
    pub(super) scope: RequestedScope,
    /// Identifies the password with which the user signed in.
    password_fingerprint: String,
}

impl RefreshToken {
    pub(super) fn new(
        user: &User,
        client_id: EntraClientId,
        issued: Timestamp,
        scope: RequestedScope,
    ) -> Self {
        let password_fingerprint = password_fingerprint(user);
        Self { user: user.object_id, client_id, issued, scope, password_fingerprint }
    }

    /// The encrypted form that clients receive.
    pub(super) fn seal(
        &self,
        call: &mut OperationContext<'_>,
    ) -> Result<RedactedText, TokenServiceError> {
        let key = refresh_token_key(call)?;
        let failed = |what: &str| INTERNAL.with_description(format!("no refresh token: {what}"));
        let mut content = serde_json::to_vec(self).map_err(|error| failed(&error.to_string()))?;
        let nonce = new_nonce(call.ids);
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut content,
        )
        .map_err(|aws_lc_rs::error::Unspecified| failed("encryption"))?;
        let text = URL_SAFE_NO_PAD.encode([&nonce[..], &content].concat());
        Ok(RedactedText::new(format!("{PREFIX}{text}")))
    }

    /// Decrypts a token of this state; `None` for any other text.
    fn open(call: &OperationContext<'_>, text: &str) -> Option<Self> {
        let key = call.azure().sign_ins.settings.refresh_token_key.as_ref()?;
        let key = encryption_key(key)?;
        let sealed = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (nonce, content) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut content = content.to_vec();
        let content = key.open_in_place(nonce, Aad::empty(), &mut content).ok()?;
        serde_json::from_slice(content).ok()
    }
}

/// Verifies a refresh token, and returns it with its user.
pub(super) fn redeem_refresh_token(
    call: &OperationContext<'_>,
    text: &str,
    client_id: EntraClientId,
) -> Result<(RefreshToken, User), TokenServiceError> {
    let token = RefreshToken::open(call, text).ok_or_else(|| {
        GRANT_MALFORMED.with_description("Invalid request. Request is malformed or invalid.")
    })?;
    if token.client_id != client_id {
        return Err(GRANT_INVALID.with_description(
            "The provided value for the input parameter 'refresh_token' is not valid: the token \
             was issued to another application.",
        ));
    }
    let lifetime = SignedDuration::from_secs(i64::from(call.azure().tokens.refresh_token_seconds));
    if call.now.duration_since(token.issued) >= lifetime {
        return Err(REFRESH_TOKEN_EXPIRED.with_description(format!(
            "The refresh token has expired due to inactivity. The token was issued on {} and was \
             inactive for {}.",
            token.issued,
            dotted_duration(lifetime)
        )));
    }
    let user = token_directory(call).user(token.user).cloned().ok_or_else(|| {
        USER_DELETED.with_description(
            "The user account does not exist in the directory. To sign into this application, the \
             account must be added to the directory.",
        )
    })?;
    require_enabled(&user)?;
    let valid_from = sessions_valid_from(&user);
    if token.password_fingerprint != password_fingerprint(&user)
        || valid_from.is_some_and(|valid_from| token.issued < valid_from)
    {
        return Err(GRANT_REVOKED.with_description(format!(
            "The provided grant has expired due to it being revoked, a fresh auth token is \
             needed. The user might have changed or reset their password. The grant was issued on \
             '{}'.",
            token.issued
        )));
    }
    Ok((token, user))
}

/// A duration as Entra writes it: days, hours, minutes and seconds.
fn dotted_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}.{:02}:{:02}:{:02}", rest / 3_600, rest % 3_600 / 60, rest % 60)
}

/// The time before which Microsoft Graph's `revokeSignInSessions` invalidated all sessions of a user.
fn sessions_valid_from(user: &User) -> Option<Timestamp> {
    user.properties.get("signInSessionsValidFromDateTime").and_then(Value::as_str)?.parse().ok()
}

fn password_fingerprint(user: &User) -> String {
    let mut context = Context::new(&SHA256);
    context.update(user.object_id.as_bytes());
    context.update(user.password.expose().as_bytes());
    URL_SAFE_NO_PAD.encode(&context.finish().as_ref()[..12])
}

/// A nonce that differs for each token: ids are unique within a state.
fn new_nonce(ids: &mut IdGenerator) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&ids.next_uuid().as_bytes()[..NONCE_LEN]);
    nonce
}

/// The key of the state, which the first token creates.
fn refresh_token_key(call: &mut OperationContext<'_>) -> Result<LessSafeKey, TokenServiceError> {
    if call.azure().sign_ins.settings.refresh_token_key.is_none() {
        let (azure, ids) = call.azure_and_ids();
        let text = format!("{}{}", ids.next_hex32(), ids.next_hex32());
        azure.sign_ins.settings.refresh_token_key = Some(RedactedText::new(text));
    }
    let text = call.azure().sign_ins.settings.refresh_token_key.as_ref();
    text.and_then(encryption_key)
        .ok_or_else(|| INTERNAL.with_description("the key of refresh tokens is not usable"))
}

fn encryption_key(text: &RedactedText) -> Option<LessSafeKey> {
    let key = digest(&SHA256, text.expose().as_bytes());
    UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
}
