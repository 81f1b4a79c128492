//! The proof of possession that `addKey` and `removeKey` require: a token that one of the registered keys signed.
//!
//! Reference: "Generating proof of possession tokens for rolling keys".

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_state::certificates::parse_certificate;
use lanyard_emulator_state::directory::KeyCredential;
use lanyard_emulator_state::jose::{AssertionAlgorithm, UnverifiedToken};
use uuid::Uuid;

use super::error::GraphError;
use super::path::parse_object_id;

/// The audience of proofs: the predecessor of Microsoft Graph.
const PROOF_AUDIENCE: &str = "00000002-0000-0000-c000-000000000000";
/// The longest lifetime of a proof, in seconds.
const MAX_LIFETIME_SECONDS: f64 = 600.0;

/// Verifies a proof for an object with these keys: audience, issuer, lifetime and signature.
pub(super) fn verify_key_proof(
    proof: &str,
    object_id: Uuid,
    keys: &[KeyCredential],
    now: Timestamp,
) -> Result<(), GraphError> {
    let token = UnverifiedToken::parse(proof).ok_or_else(invalid_proof)?;
    let issuer = token.text_claim("iss").and_then(parse_object_id);
    if !token.audiences().contains(&PROOF_AUDIENCE) || issuer != Some(object_id) {
        return Err(invalid_proof());
    }
    if !token.is_valid_at(now) || !is_short_lived(&token) {
        return Err(invalid_proof());
    }
    let algorithm = AssertionAlgorithm::parse(&token.header.alg).ok_or_else(invalid_proof)?;
    let is_valid = |key: &&KeyCredential| key.starts <= now && now < key.expires;
    let signed = keys.iter().filter(is_valid).any(|key| {
        parse_certificate(&key.certificate).is_some_and(|certificate| {
            let public_key = certificate.public_key().subject_public_key.data.as_ref();
            token.is_signed_by(algorithm, public_key)
        })
    });
    if signed { Ok(()) } else { Err(invalid_proof()) }
}

fn is_short_lived(token: &UnverifiedToken) -> bool {
    let lifetime = || Some(token.number_claim("exp")? - token.number_claim("nbf")?);
    lifetime().is_some_and(|seconds| seconds <= MAX_LIFETIME_SECONDS)
}

fn invalid_proof() -> GraphError {
    GraphError::new(
        StatusCode::UNAUTHORIZED,
        "Authentication_MissingOrMalformed",
        "Access Token missing or malformed.",
    )
}
