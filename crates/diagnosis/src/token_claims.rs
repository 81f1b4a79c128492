//! The claims of a ServiceAccount token.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::foreign_text::{quoted, quoted_list};

/// The claims of a token that Entra ID compares with federated credentials, and the id of its signing key. The
/// signature is not verified. None of the values is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenClaims {
    /// `iss`: the URL of the issuer.
    pub issuer: String,
    /// `sub`: `system:serviceaccount:<namespace>:<name>` in a token of Kubernetes.
    pub subject: String,
    /// `aud`: the audiences, of which one must match.
    pub audiences: Vec<String>,
    /// `exp`: the end of the validity.
    pub expires_at: Option<Timestamp>,
    /// `iat`: the time of issue.
    pub issued_at: Option<Timestamp>,
    /// `kid` of the header: the id of the signing key.
    pub key_id: Option<String>,
}

/// Why a text is not a token with the claims of a ServiceAccount token. Contains no part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenProblem {
    /// The text is longer than any token.
    #[error("it has more than {MAX_TOKEN_LENGTH} bytes")]
    TooLong,
    /// The text is not one compact JWT, or a claim has another type than RFC 7519 names.
    #[error("it is not one JWT")]
    NotJwt,
    /// A claim that Entra ID requires is missing, or longer than a field of a federated credential can be.
    #[error("its claim `{claim}` {problem}")]
    UnusableClaim {
        /// The name of the claim.
        claim: &'static str,
        /// What is wrong with the claim.
        problem: &'static str,
    },
}

impl TokenClaims {
    /// Reads the claims of a compact JWT, which white space may surround.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a JWT, is too long, or lacks `iss`, `sub` or `aud`.
    pub fn parse(content: &[u8]) -> Result<Self, TokenProblem> {
        if content.len() > MAX_TOKEN_LENGTH {
            return Err(TokenProblem::TooLong);
        }
        let text = str::from_utf8(content).or(Err(TokenProblem::NotJwt))?.trim();
        let parts: Vec<_> = text.split('.').collect();
        let [header, payload, _] = parts[..] else { return Err(TokenProblem::NotJwt) };
        let header: RawHeader = decode_part(header)?;
        let raw: RawClaims = decode_part(payload)?;
        let audiences = match raw.aud {
            None => Vec::new(),
            Some(RawAudience::One(audience)) => vec![audience],
            Some(RawAudience::Many(audiences)) => audiences,
        };
        if audiences.is_empty() {
            return Err(TokenProblem::UnusableClaim { claim: "aud", problem: MISSING });
        }
        let audiences = audiences.into_iter().map(|it| required("aud", Some(it)));
        let audiences = audiences.collect::<Result<_, _>>()?;
        let issuer = required("iss", raw.iss)?;
        let subject = required("sub", raw.sub)?;
        let time = |seconds| Timestamp::from_second(seconds).or(Err(TokenProblem::NotJwt));
        let expires_at = raw.exp.map(time).transpose()?;
        let issued_at = raw.iat.map(time).transpose()?;
        Ok(Self { issuer, subject, audiences, expires_at, issued_at, key_id: header.kid })
    }
}

impl fmt::Display for TokenClaims {
    /// The claims that a federated credential has to match, and the expiry.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (issuer, subject) = (quoted(&self.issuer), quoted(&self.subject));
        let audiences = quoted_list(&self.audiences);
        write!(formatter, "issuer {issuer}, subject {subject}, audience {audiences}")?;
        self.expires_at.map_or(Ok(()), |end| write!(formatter, ", expires at {end}"))
    }
}

#[derive(Deserialize)]
struct RawHeader {
    kid: Option<String>,
}

#[derive(Deserialize)]
struct RawClaims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<RawAudience>,
    exp: Option<i64>,
    iat: Option<i64>,
}

/// A text or a list of texts (RFC 7519, section 4.1.3).
#[derive(Deserialize)]
#[serde(untagged)]
enum RawAudience {
    One(String),
    Many(Vec<String>),
}

fn decode_part<T: DeserializeOwned>(text: &str) -> Result<T, TokenProblem> {
    let json = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).or(Err(TokenProblem::NotJwt))?;
    // The error of serde could quote the token.
    serde_json::from_slice(&json).or(Err(TokenProblem::NotJwt))
}

fn required(claim: &'static str, value: Option<String>) -> Result<String, TokenProblem> {
    let text = value.unwrap_or_default();
    let problem = match text.chars().count() {
        0 => MISSING,
        1..=MAX_CLAIM_LENGTH => return Ok(text),
        _ => "has more than 600 characters, so no federated credential can match it",
    };
    Err(TokenProblem::UnusableClaim { claim, problem })
}

/// A token has 1 to 2 KB.
const MAX_TOKEN_LENGTH: usize = 64 * 1024;
/// The longest issuer, subject and audience of a federated credential, in characters.
const MAX_CLAIM_LENGTH: usize = 600;
const MISSING: &str = "is missing, although each projected token has it";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(header: &str, payload: &str) -> Vec<u8> {
        let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!("{header}.{payload}.c2lnbmF0dXJl").into_bytes()
    }

    const COMPLETE: &str = r#"{"iss":"https://oidc.example/","sub":"system:serviceaccount:a:app",
        "aud":["api://AzureADTokenExchange"],"exp":1000,"iat":400,"kubernetes.io":{"namespace":"a"}}"#;

    #[test]
    fn claims_and_key_id_of_a_projected_token_are_read() {
        let mut content = token(r#"{"alg":"RS256","kid":"key-1"}"#, COMPLETE);
        content.extend(b"\n");
        let claims = TokenClaims::parse(&content).unwrap();
        assert_eq!(claims.key_id.as_deref(), Some("key-1"));
        assert_eq!(claims.expires_at, Some(Timestamp::from_second(1_000).unwrap()));
        assert_eq!(claims.issued_at, Some(Timestamp::from_second(400).unwrap()));
        assert_eq!(
            claims.to_string(),
            "issuer `https://oidc.example/`, subject `system:serviceaccount:a:app`, audience \
             `api://AzureADTokenExchange`, expires at 1970-01-01T00:16:40Z"
        );
    }

    #[test]
    fn audience_is_a_text_or_a_list() {
        let claims = |aud: &str| {
            let payload = format!(r#"{{"iss":"i","sub":"s","aud":{aud}}}"#);
            TokenClaims::parse(&token("{}", &payload)).map(|claims| claims.audiences)
        };
        assert_eq!(claims(r#""one""#).unwrap(), ["one"]);
        assert_eq!(claims(r#"["one","two"]"#).unwrap(), ["one", "two"]);
        for aud in ["[]", "null", r#"[""]"#] {
            let missing = TokenProblem::UnusableClaim { claim: "aud", problem: MISSING };
            assert_eq!(claims(aud), Err(missing), "{aud}");
        }
        assert_eq!(claims("7"), Err(TokenProblem::NotJwt));
    }

    #[test]
    fn other_texts_and_incomplete_tokens_are_errors() {
        let long = "x".repeat(601);
        let long_subject = format!(r#"{{"iss":"i","sub":"{long}","aud":"a"}}"#);
        let long_audience = format!(r#"{{"iss":"i","sub":"s","aud":["a","{long}"]}}"#);
        for (content, expected) in [
            (Vec::new(), "it is not one JWT"),
            (b"a.b".to_vec(), "it is not one JWT"),
            (b"a.b.c.d".to_vec(), "it is not one JWT"),
            (b"\xff.\xfe.c".to_vec(), "it is not one JWT"),
            (br#"{"client_id": "x"}"#.to_vec(), "it is not one JWT"),
            (token("[]", COMPLETE), "it is not one JWT"),
            (token("{}", "not json"), "it is not one JWT"),
            (token("{}", r#"{"iss":1}"#), "it is not one JWT"),
            (
                token("{}", r#"{"iss":"i","sub":"s","aud":"a","exp":9223372036854775807}"#),
                "it is not one JWT",
            ),
            (token("{}", r#"{"sub":"s","aud":"a"}"#), "its claim `iss` is missing"),
            (token("{}", r#"{"iss":"i","sub":"","aud":"a"}"#), "its claim `sub` is missing"),
            // A token of a Secret, which older clusters have.
            (token("{}", r#"{"iss":"i","sub":"s"}"#), "its claim `aud` is missing"),
            (token("{}", &long_subject), "its claim `sub` has more than 600 characters"),
            (token("{}", &long_audience), "its claim `aud` has more than 600 characters"),
            (vec![b' '; MAX_TOKEN_LENGTH + 1], "it has more than 65536 bytes"),
        ] {
            let text = String::from_utf8_lossy(&content[..content.len().min(80)]).into_owned();
            let problem = TokenClaims::parse(&content).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{text}: {problem}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_contents_never_panic(content in prop::collection::vec(any::<u8>(), 0..300)) {
            let _unread = TokenClaims::parse(&content);
        }

        #[test]
        fn parsed_claims_are_within_the_limits_and_texts_contain_no_signature(
            header in "\\{(\"kid\":\"[a-z]{0,8}\")?\\}",
            issuer in ".{0,620}",
            audiences in prop::collection::vec(".{0,620}", 0..3),
            exp in any::<Option<i64>>(),
        ) {
            let payload = serde_json::json!({"iss": issuer, "sub": "s", "aud": audiences, "exp": exp});
            match TokenClaims::parse(&token(&header, &payload.to_string())) {
                Ok(claims) => {
                    let texts = claims.audiences.iter().chain([&claims.issuer]);
                    prop_assert!(texts.into_iter().all(|text| (1..=MAX_CLAIM_LENGTH).contains(&text.chars().count())));
                    let shown = format!("{claims} {claims:?}");
                    prop_assert!(!shown.contains("c2lnbmF0dXJl") && !claims.to_string().contains('\n'));
                }
                Err(problem) => prop_assert!(!problem.to_string().contains("c2lnbmF0dXJl")),
            }
        }
    }
}
