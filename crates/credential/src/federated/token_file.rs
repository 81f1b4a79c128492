//! The file that holds the federated token.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::FederatedTokenProvider;
use crate::secret::SecretText;
use crate::token::error::TokenError;
use crate::transport::sender::TokenTransport;

/// The environment variable that names the file by convention.
pub(super) const VARIABLE: &str = "AZURE_FEDERATED_TOKEN_FILE";

/// The federated token file. The kubelet rotates it at 80% of its lifetime.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
}

/// A federated token: its holder can act as the workload. Wiped on drop, cannot be printed.
#[derive(Debug)]
pub(super) struct FederatedToken(SecretText);

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[async_trait]
impl FederatedTokenProvider for TokenFile {
    async fn load(&self, _transport: &TokenTransport) -> Result<Arc<FederatedToken>, TokenError> {
        let content = tokio::fs::read(&self.path).await.map_err(|error| TokenError::TokenFile {
            path: self.path.clone(),
            variable: VARIABLE,
            source: Arc::new(error),
        })?;
        let content = Zeroizing::new(content);
        let token = FederatedToken::parse(&content);
        token.map(Arc::new).map_err(|problem| TokenError::TokenFileContent {
            path: self.path.clone(),
            variable: VARIABLE,
            problem,
        })
    }
}

impl FederatedToken {
    /// Parses one compact JWT, surrounded by optional white space.
    pub(super) fn parse(content: &[u8]) -> Result<Self, &'static str> {
        let text = str::from_utf8(content).or(Err("is not text"))?.trim();
        if text.is_empty() {
            return Err("is empty");
        }
        let encoded =
            |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=".contains(&b));
        if text.split('.').count() != 3 || !text.split('.').all(encoded) {
            return Err("does not hold a JWT");
        }
        Ok(Self(SecretText::from(text)))
    }

    /// The compact JWT, for the request form.
    pub(super) fn text(&self) -> &str {
        self.0.expose()
    }

    /// The expiry of the token, from its `exp` claim.
    pub(super) fn expires(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.claims()?.exp?).ok()
    }

    /// Whether the token's `exp` claim has passed.
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.text() == other.text()
    }

    /// Describes the token by its issuer, subject, audience and expiry. Entra compares these claims with the
    /// federated credential; they are not secret.
    pub(super) fn describe(&self, now: Timestamp) -> String {
        let Some(claims) = self.claims() else {
            return "the token's claims cannot be read".to_owned();
        };
        let (issuer, subject) = (claims.iss.display_text(), claims.sub.display_text());
        let text =
            format!("the token says iss={issuer} sub={subject} aud={}", claims.aud.display_text());
        if let Some(expired) =
            claims.exp.map(|exp| now.as_second().saturating_sub(exp)).filter(|age| *age >= 0)
        {
            return format!("{text}; it expired {expired} s ago");
        }
        text
    }

    fn claims(&self) -> Option<FederatedTokenClaims> {
        let payload = self.text().split('.').nth(1)?.trim_end_matches('=');
        let payload = Zeroizing::new(URL_SAFE_NO_PAD.decode(payload).ok()?);
        serde_json::from_slice(&payload).ok()
    }
}

#[derive(Deserialize)]
struct FederatedTokenClaims {
    #[serde(default)]
    iss: StringOrList,
    #[serde(default)]
    sub: StringOrList,
    #[serde(default)]
    aud: StringOrList,
    exp: Option<i64>,
}

/// A claim that is a string or a list of strings, as `aud` may be (RFC 7519, 4.1.3).
#[derive(Deserialize)]
#[serde(untagged)]
enum StringOrList {
    One(String),
    Many(Vec<String>),
    Other(serde::de::IgnoredAny),
}

impl Default for StringOrList {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl StringOrList {
    fn display_text(&self) -> String {
        match self {
            Self::One(text) => format!("{text:?}"),
            Self::Many(texts) if texts.is_empty() => "(none)".to_owned(),
            Self::Many(texts) => {
                texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(",")
            }
            Self::Other(_) => "(not text)".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(payload: &str) -> FederatedToken {
        let text = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload));
        FederatedToken::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_file_holds_one_jwt_and_white_space() {
        assert_eq!(FederatedToken::parse(b" a.b.c\n").unwrap().text(), "a.b.c");
        for (content, problem) in [
            (&b""[..], "is empty"),
            (b"\n\n", "is empty"),
            (b"\xff\xfe", "is not text"),
            (b"a.b", "does not hold a JWT"),
            (b"a.b.c\nd.e.f", "does not hold a JWT"),
            (b"{\"token\":\"a.b.c\"}", "does not hold a JWT"),
        ] {
            assert_eq!(FederatedToken::parse(content).unwrap_err(), problem);
        }
    }

    #[test]
    fn token_description_contains_issuer_subject_and_audience() {
        let now = Timestamp::from_second(1_000).unwrap();
        for (payload, expected) in [
            (
                r#"{"iss":"https://oidc/","sub":"system:serviceaccount:ns:sa","aud":["api://AzureADTokenExchange"],"exp":1001}"#,
                r#"the token says iss="https://oidc/" sub="system:serviceaccount:ns:sa" aud="api://AzureADTokenExchange""#,
            ),
            (
                r#"{"iss":7,"aud":"one","exp":940}"#,
                r#"the token says iss=(not text) sub=(none) aud="one"; it expired 60 s ago"#,
            ),
            ("not json", "the token's claims cannot be read"),
        ] {
            assert_eq!(token(payload).describe(now), expected);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_token_files_never_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(token) = FederatedToken::parse(&content) {
                let _unread = token.describe(Timestamp::UNIX_EPOCH);
            }
        }
    }
}
