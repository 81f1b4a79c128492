//! Parses the ServiceAccount tokens that the kubelet passes as JSON.

use std::collections::BTreeMap;
use std::fmt;

use lanyard_keyvault::ServiceAccountTokens;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::error::Category;

use crate::wire_token::ServiceAccountTokenJson;

/// The tokens cannot be parsed. The error has the position and the kind of problem, never the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseTokensError {
    /// The text is not JSON.
    #[error("not JSON at line {line}, column {column}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The JSON is not an object of tokens by audience.
    #[error(
        "not an object of `token` and `expirationTimestamp` by audience at line {line}, column {column}"
    )]
    Shape {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// A token is empty.
    #[error("a token is empty")]
    Empty,
}

/// Parses the JSON object `{audience: {token, expirationTimestamp}}`. Ignores unknown fields, which a newer
/// kubelet may add; rejects duplicate audiences.
pub(super) fn parse_tokens(text: &str) -> Result<ServiceAccountTokens, ParseTokensError> {
    // serde's error text quotes the input.
    let TokensByAudience(tokens) = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        match error.classify() {
            Category::Data => ParseTokensError::Shape { line, column },
            Category::Syntax | Category::Eof | Category::Io => {
                ParseTokensError::Syntax { line, column }
            }
        }
    })?;
    if tokens.values().any(|it| it.token.is_empty()) {
        return Err(ParseTokensError::Empty);
    }
    let tokens = tokens.into_iter().map(|(audience, wire)| (audience, wire.into()));
    Ok(ServiceAccountTokens(tokens.collect()))
}

struct TokensByAudience(BTreeMap<String, ServiceAccountTokenJson>);

impl<'de> Deserialize<'de> for TokensByAudience {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TokensByAudienceVisitor)
    }
}

struct TokensByAudienceVisitor;

impl<'de> Visitor<'de> for TokensByAudienceVisitor {
    type Value = TokensByAudience;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of tokens by audience")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TokensByAudience, A::Error> {
        let mut tokens = BTreeMap::new();
        while let Some((audience, token)) = map.next_entry()? {
            if tokens.insert(audience, token).is_some() {
                return Err(serde::de::Error::custom("duplicate audience"));
            }
        }
        Ok(TokensByAudience(tokens))
    }
}
