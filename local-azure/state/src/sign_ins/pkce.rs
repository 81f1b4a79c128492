//! Proof Key for Code Exchange (RFC 7636): only the client that requested an authorization code redeems it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The `code_challenge` of an authorization request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeChallenge {
    method: CodeChallengeMethod,
    challenge: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum CodeChallengeMethod {
    /// The challenge is the verifier.
    Plain,
    /// The challenge is the SHA-256 digest of the verifier in base64url.
    S256,
}

/// The challenge or its method is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`code_challenge` must have 43 to 128 characters, with the method `S256` or `plain`")]
pub struct InvalidCodeChallenge;

impl CodeChallenge {
    /// Parses `code_challenge` and `code_challenge_method`; the default method is `plain`.
    pub fn parse(challenge: &str, method: Option<&str>) -> Result<Self, InvalidCodeChallenge> {
        let method = match method {
            None | Some("plain") => CodeChallengeMethod::Plain,
            Some("S256") => CodeChallengeMethod::S256,
            Some(_) => return Err(InvalidCodeChallenge),
        };
        if !(43..=128).contains(&challenge.len()) {
            return Err(InvalidCodeChallenge);
        }
        Ok(Self { method, challenge: challenge.to_owned() })
    }

    /// Whether `verifier` is the secret of this challenge.
    pub fn is_verified_by(&self, verifier: &str) -> bool {
        let derived = match self.method {
            CodeChallengeMethod::Plain => verifier.to_owned(),
            CodeChallengeMethod::S256 => {
                URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
            }
        };
        verify_slices_are_equal(derived.as_bytes(), self.challenge.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_of_rfc_7636_matches_its_challenge() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        let hashed = CodeChallenge::parse(challenge, Some("S256")).unwrap();
        assert!(hashed.is_verified_by(verifier));
        assert!(!hashed.is_verified_by(challenge));
        let plain = CodeChallenge::parse(verifier, None).unwrap();
        assert!(plain.is_verified_by(verifier));
        assert!(!plain.is_verified_by(""));
    }

    #[test]
    fn challenges_of_unknown_methods_or_lengths_are_rejected() {
        let good = "a".repeat(43);
        for (challenge, method) in
            [(&*good, Some("S512")), (&good[1..], None), (&*"a".repeat(129), Some("plain"))]
        {
            assert_eq!(CodeChallenge::parse(challenge, method), Err(InvalidCodeChallenge));
        }
    }
}
