//! Maps errors of the vault clients to provider errors.

use lanyard_clock::ErrorHint as _;
use lanyard_credential::TokenError;
use lanyard_keyvault::{
    FetchError, NodeVaultError, ReadError, ReaderCredentialError, ReaderIdentityError,
    VaultReadError,
};
use lanyard_vocabulary::{OutcomeCode, format_error_chain};

use crate::provider::ProviderError;

/// Returns the provider error for an error of the vault clients.
pub(super) fn provider_error(error: &NodeVaultError) -> ProviderError {
    let mapped = ProviderError::new(outcome_code(error), format_error_chain(error));
    let mapped = match error.hint() {
        Some(hint) => mapped.with_hint(hint),
        None => mapped,
    };
    ProviderError { retry: error.retry(), suppressed_for: error.circuit_open_for(), ..mapped }
}

fn outcome_code(error: &NodeVaultError) -> OutcomeCode {
    match error {
        NodeVaultError::Identity(error) => identity_outcome_code(error),
        NodeVaultError::Reader(ReaderCredentialError::Token(_)) => OutcomeCode::TokenNotFound,
        NodeVaultError::Reader(_) => OutcomeCode::TokenUnavailable,
        NodeVaultError::Token(error) => vault_outcome_code(error),
        NodeVaultError::Fetch(FetchError::Read(ReadError::VolumeTooLarge { .. })) => {
            OutcomeCode::SecretProviderClassInvalid
        }
        NodeVaultError::Fetch(FetchError::Read(ReadError::NotEnoughMemory { .. })) => {
            OutcomeCode::VolumeMemoryExhausted
        }
        NodeVaultError::Fetch(FetchError::Read(error)) => {
            error.vault_error().map_or(OutcomeCode::ObjectNotFound, vault_outcome_code)
        }
        NodeVaultError::Fetch(FetchError::Decode(_)) => OutcomeCode::DecodeFailed,
        // The remaining errors concern the SecretProviderClass, or are variants of later versions.
        _ => OutcomeCode::SecretProviderClassInvalid,
    }
}

fn identity_outcome_code(error: &ReaderIdentityError) -> OutcomeCode {
    match error {
        ReaderIdentityError::NoTokens
        | ReaderIdentityError::NoTokenForAudience { .. }
        | ReaderIdentityError::TokenExpired { .. } => OutcomeCode::TokenNotFound,
        ReaderIdentityError::NoPublishSecrets
        | ReaderIdentityError::SecretKeyMissing { .. }
        | ReaderIdentityError::MalformedSecret { .. }
        | ReaderIdentityError::SecretNotText => OutcomeCode::CredentialsNotFound,
        _ => OutcomeCode::SecretProviderClassInvalid,
    }
}

fn vault_outcome_code(error: &VaultReadError) -> OutcomeCode {
    match error {
        VaultReadError::NotFound(_) => OutcomeCode::ObjectNotFound,
        VaultReadError::Disabled(_) => OutcomeCode::ObjectDisabled,
        VaultReadError::Forbidden(_) | VaultReadError::Unauthorized(_) => {
            OutcomeCode::VaultForbidden
        }
        // The message says whether the node itself caused the throttling.
        VaultReadError::Throttled { .. }
        | VaultReadError::ThrottledCoolDown { .. }
        | VaultReadError::RequestQueueFull { .. } => OutcomeCode::VaultThrottled,
        VaultReadError::UntrustedVault { .. } => OutcomeCode::VaultUntrusted,
        VaultReadError::Token { source } => {
            TokenError::of(source).map_or(OutcomeCode::TokenUnavailable, token_outcome_code)
        }
        // The vault failed, was not reached, or a server other than the vault answered.
        _ => OutcomeCode::VaultUnavailable,
    }
}

fn token_outcome_code(error: &TokenError) -> OutcomeCode {
    match error {
        TokenError::ManagedIdentity(reply) if reply.is_unassigned() => {
            OutcomeCode::IdentityNotAssigned
        }
        TokenError::InMemoryToken { .. } | TokenError::InMemoryTokenExpired { .. } => {
            OutcomeCode::TokenNotFound
        }
        _ if error.is_refusal() => OutcomeCode::IdentityRefused,
        _ => OutcomeCode::TokenUnavailable,
    }
}
