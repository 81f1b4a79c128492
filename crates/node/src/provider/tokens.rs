//! The JSON form of a pod's tokens and secrets in the provider protocol.
//!
//! Errors never quote the input: text that is not JSON may still be a token.

use std::collections::BTreeMap;

use lanyard_keyvault::{PodCredentials, PublishSecrets, ServiceAccountTokens};
use serde::Deserialize;

use crate::wire_token::{ServiceAccountTokenJson, ZeroizedText};

/// Serializes the tokens as the kubelet does; `None` if there are none.
pub(crate) fn tokens_to_json(tokens: &ServiceAccountTokens) -> Option<String> {
    let written: BTreeMap<&str, ServiceAccountTokenJson> =
        tokens.0.iter().map(|(audience, token)| (audience.as_str(), token.into())).collect();
    if written.is_empty() { None } else { serde_json::to_string(&written).ok() }
}

/// Serializes the node publish secrets.
pub(crate) fn secrets_to_json(secrets: &PublishSecrets) -> String {
    let written: BTreeMap<&str, ZeroizedText> =
        secrets.0.iter().map(|(key, secret)| (key.as_str(), secret.as_ref().into())).collect();
    serde_json::to_string(&written).unwrap_or_else(|_error| "{}".to_owned())
}

/// Parses tokens as leniently as upstream providers do; the kubelet's requests are parsed strictly. An empty
/// text has no tokens. The error has the position only.
pub(crate) fn parse_tokens(text: &str) -> Result<ServiceAccountTokens, InvalidJsonError> {
    if text.is_empty() {
        return Ok(ServiceAccountTokens::default());
    }
    let written: BTreeMap<String, ServiceAccountTokenJson> = parse_json(text)?;
    let tokens = written.into_iter().map(|(audience, token)| (audience, token.into()));
    Ok(ServiceAccountTokens(tokens.collect()))
}

/// Parses a JSON object of strings, or `null`.
pub(crate) fn parse_secrets(text: &str) -> Result<PublishSecrets, InvalidJsonError> {
    let written: Option<BTreeMap<String, ZeroizedText>> = parse_json(text)?;
    let secrets = written.unwrap_or_default().into_iter();
    Ok(PublishSecrets(secrets.map(|(key, text)| (key, text.into())).collect()))
}

/// Parses JSON without quoting the input in the error.
pub(crate) fn parse_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, InvalidJsonError> {
    serde_json::from_str(text)
        .map_err(|error| InvalidJsonError { line: error.line(), column: error.column() })
}

/// The text is not the expected JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the expected JSON at line {line}, column {column}")]
pub(crate) struct InvalidJsonError {
    line: usize,
    column: usize,
}

/// Replaces every secret of the pod in a text.
pub(crate) fn redact(text: &str, pod_credentials: &PodCredentials) -> String {
    let tokens = pod_credentials.tokens.0.values().map(|token| &token.token);
    let secrets = tokens.chain(pod_credentials.secrets.0.values());
    let mut text = text.to_owned();
    for secret in secrets {
        if let Ok(secret) = std::str::from_utf8(secret.expose())
            && secret.len() >= MIN_REDACTED_LENGTH
        {
            text = text.replace(secret, "[redacted]");
        }
    }
    lanyard_credential::reply::excerpt_text(&text)
}

/// Shorter secrets would redact parts of every message.
const MIN_REDACTED_LENGTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: &str =
        r#"{"api://x":{"token":"planted","expirationTimestamp":"2026-11-21T12:00:00Z"}}"#;

    #[test]
    fn tokens_and_secrets_round_trip_as_json() {
        let tokens = parse_tokens(TOKENS).unwrap();
        assert_eq!(tokens_to_json(&tokens).unwrap(), TOKENS);
        assert_eq!(tokens_to_json(&parse_tokens("").unwrap()), None);
        let secrets = parse_secrets(r#"{"clientid":"c","clientsecret":"s"}"#).unwrap();
        assert_eq!(parse_secrets(&secrets_to_json(&secrets)).unwrap(), secrets);
        assert_eq!(parse_secrets("null").unwrap(), PublishSecrets::default());
        assert_eq!(secrets_to_json(&PublishSecrets::default()), "{}");
    }

    #[test]
    fn parse_errors_do_not_repeat_the_input() {
        for text in [
            "\"planted\"",
            "planted",
            "{\"planted\":5}",
            r#"{"a":{"token":"planted"}}"#,
            r#"{"a":{"token":"planted","expirationTimestamp":"planted"}}"#,
            r#"["planted"]"#,
            "{\"a\":\"planted\"",
        ] {
            let error = parse_tokens(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
            if !text.starts_with("{\"a\":\"") {
                assert!(parse_secrets(text).is_err(), "{text}");
            }
        }
    }

    #[test]
    fn echoed_secrets_are_redacted() {
        let pod_credentials = PodCredentials {
            tokens: parse_tokens(TOKENS).unwrap(),
            secrets: parse_secrets(r#"{"clientsecret":"hunter2","x":"a"}"#).unwrap(),
        };
        let shown = redact("bad planted and hunter2 at all", &pod_credentials);
        assert_eq!(shown, "bad [redacted] and [redacted] at all");
    }
}
