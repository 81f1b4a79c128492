//! What an error of the vaults is called where people look.

use lanyard_credential::TokenError;
use lanyard_keyvault::{
    FetchError, IdentityError, NodeVaultError, ReadError, ReaderError, VaultError,
};
use lanyard_vocabulary::{OutcomeCode, causes};

use crate::provider::Refusal;

/// The refusal that an error stands for.
pub(super) fn refusal_of(error: &NodeVaultError) -> Refusal {
    let refusal = Refusal::new(code_of(error), causes(error));
    let refusal = match error.hint() {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    };
    Refusal { retry: error.retry(), turned_away: error.turned_away(), ..refusal }
}

fn code_of(error: &NodeVaultError) -> OutcomeCode {
    match error {
        NodeVaultError::Identity(error) => code_of_identity(error),
        NodeVaultError::Reader(ReaderError::Token(_)) => OutcomeCode::TokenNotFound,
        NodeVaultError::Reader(_) => OutcomeCode::TokenUnavailable,
        NodeVaultError::Token(error) => code_of_vault(error),
        NodeVaultError::Fetch(FetchError::Read(ReadError::TooMuch { .. })) => {
            OutcomeCode::SecretProviderClassInvalid
        }
        NodeVaultError::Fetch(FetchError::Read(ReadError::NoRoom { .. })) => {
            OutcomeCode::VolumeMemoryExhausted
        }
        NodeVaultError::Fetch(FetchError::Read(error)) => {
            error.vault().map_or(OutcomeCode::ObjectNotFound, code_of_vault)
        }
        NodeVaultError::Fetch(FetchError::Decode(_)) => OutcomeCode::DecodeFailed,
        // What is left is about the class: its cloud, and what later versions add.
        _ => OutcomeCode::SecretProviderClassInvalid,
    }
}

fn code_of_identity(error: &IdentityError) -> OutcomeCode {
    match error {
        IdentityError::NoTokens
        | IdentityError::NoTokenFor { .. }
        | IdentityError::TokenExpired { .. } => OutcomeCode::TokenNotFound,
        IdentityError::NoSecret
        | IdentityError::NoSecretKey { .. }
        | IdentityError::MalformedSecret { .. }
        | IdentityError::SecretNotText => OutcomeCode::CredentialsNotFound,
        _ => OutcomeCode::SecretProviderClassInvalid,
    }
}

fn code_of_vault(error: &VaultError) -> OutcomeCode {
    match error {
        VaultError::NotFound(_) => OutcomeCode::ObjectNotFound,
        VaultError::Disabled(_) => OutcomeCode::ObjectDisabled,
        VaultError::Forbidden(_) | VaultError::Unauthorized(_) => OutcomeCode::VaultForbidden,
        // That it is the node itself, the text says.
        VaultError::Throttled { .. } | VaultError::CoolingDown { .. } | VaultError::Busy { .. } => {
            OutcomeCode::VaultThrottled
        }
        VaultError::Untrusted { .. } => OutcomeCode::VaultUntrusted,
        VaultError::Token { source } => {
            TokenError::of(source).map_or(OutcomeCode::TokenUnavailable, code_of_token)
        }
        // It failed, was not reached, or something else answered in its place.
        _ => OutcomeCode::VaultUnavailable,
    }
}

fn code_of_token(error: &TokenError) -> OutcomeCode {
    match error {
        TokenError::ManagedIdentity(answer) if answer.status() == 400 => {
            OutcomeCode::IdentityNotAssigned
        }
        TokenError::HeldToken { .. } | TokenError::HeldTokenExpired { .. } => {
            OutcomeCode::TokenNotFound
        }
        _ if error.is_refusal() => OutcomeCode::IdentityRefused,
        _ => OutcomeCode::TokenUnavailable,
    }
}
