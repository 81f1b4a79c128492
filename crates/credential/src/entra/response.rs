//! Parses successful token responses. Entra sends numbers; IMDS, App Service and old endpoints send them as
//! strings. The parser accepts both.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::secret::SecretText;
use crate::token::error::TokenResponseProblem;

/// The fields of a token response.
#[derive(Debug)]
pub(crate) struct TokenResponse {
    pub(crate) text: SecretText,
    pub(crate) expires_in: Duration,
    pub(crate) refresh_in: Option<Duration>,
}

/// Parses a token response. `now` converts `expires_on` to a lifetime if `expires_in` is absent.
pub(crate) fn parse_token_response(
    body: &[u8],
    now: Timestamp,
) -> Result<TokenResponse, TokenResponseProblem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(TokenResponseProblem::Empty);
    }
    // The parser's message may quote the body, so only its position is used.
    let wire: TokenResponseJson = serde_json::from_slice(body).map_err(|error| {
        TokenResponseProblem::Malformed { line: error.line(), column: error.column() }
    })?;
    let text = wire.access_token.filter(|text| !text.0.expose().trim().is_empty());
    let text = text.ok_or(TokenResponseProblem::NoToken)?.0;
    let seconds = match (wire.expires_in.0, wire.expires_on.0) {
        (Some(seconds), _) => seconds,
        (None, Some(moment)) => moment.saturating_sub(now.as_second()),
        (None, None) => return Err(TokenResponseProblem::NoLifetime),
    };
    let expires_in = positive_seconds(seconds).ok_or(TokenResponseProblem::Expired)?;
    let refresh_in = wire.refresh_in.0.and_then(positive_seconds);
    Ok(TokenResponse { text, expires_in, refresh_in })
}

fn positive_seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

#[derive(Deserialize)]
struct TokenResponseJson {
    access_token: Option<AccessTokenText>,
    #[serde(default)]
    expires_in: NumberOrString,
    #[serde(default)]
    expires_on: NumberOrString,
    #[serde(default)]
    refresh_in: NumberOrString,
}

struct AccessTokenText(SecretText);

impl<'de> Deserialize<'de> for AccessTokenText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(SecretText::from(text)))
    }
}

/// An integer, also as a string; any other value counts as absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NumberOrString(pub(crate) Option<i64>);

impl<'de> Deserialize<'de> for NumberOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = NumberOrString;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, bare or quoted")
    }

    fn visit_i64<E>(self, number: i64) -> Result<NumberOrString, E> {
        Ok(NumberOrString(Some(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<NumberOrString, E> {
        Ok(NumberOrString(i64::try_from(number).ok()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<NumberOrString, E> {
        Ok(NumberOrString(format!("{number:.0}").parse().ok()))
    }

    fn visit_str<E>(self, text: &str) -> Result<NumberOrString, E> {
        let whole = text.trim().split_once('.').map_or(text.trim(), |(whole, _)| whole);
        Ok(NumberOrString(whole.parse().ok()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<NumberOrString, E> {
        Ok(NumberOrString(None))
    }

    fn visit_unit<E>(self) -> Result<NumberOrString, E> {
        Ok(NumberOrString(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<NumberOrString, A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(NumberOrString(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NumberOrString, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(NumberOrString(None))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(body: &str) -> Result<(u64, Option<u64>), TokenResponseProblem> {
        let now = Timestamp::from_second(1_000).unwrap();
        let response = parse_token_response(body.as_bytes(), now)?;
        assert_eq!(response.text.expose(), "t");
        Ok((response.expires_in.as_secs(), response.refresh_in.map(|d| d.as_secs())))
    }

    #[test]
    fn numbers_are_read_bare_and_quoted() {
        for (body, expected) in [
            (r#"{"access_token":"t","expires_in":3599}"#, (3_599, None)),
            (r#"{"access_token":"t","expires_in":"3599"}"#, (3_599, None)),
            (r#"{"access_token":"t","expires_in":3599.0}"#, (3_599, None)),
            (r#"{"access_token":"t","expires_in":3599,"refresh_in":"1800"}"#, (3_599, Some(1_800))),
            (r#"{"access_token":"t","expires_in":3599,"refresh_in":null}"#, (3_599, None)),
            (r#"{"access_token":"t","expires_in":3599,"refresh_in":{"a":[1]}}"#, (3_599, None)),
            (r#"{"access_token":"t","expires_on":"4600"}"#, (3_600, None)),
            (r#"{"access_token":"t","expires_in":"","expires_on":4600}"#, (3_600, None)),
            (r#"{"access_token":"\u0074","expires_in":9,"extra":[{}]}"#, (9, None)),
        ] {
            assert_eq!(parse(body), Ok(expected), "{body}");
        }
    }

    #[test]
    fn response_without_a_usable_token_is_rejected_with_the_problem() {
        for (body, expected) in [
            ("", TokenResponseProblem::Empty),
            (" \r\n", TokenResponseProblem::Empty),
            (r#"{"expires_in":3599}"#, TokenResponseProblem::NoToken),
            (r#"{"access_token":"","expires_in":3599}"#, TokenResponseProblem::NoToken),
            (r#"{"access_token":null,"expires_in":3599}"#, TokenResponseProblem::NoToken),
            (r#"{"access_token":"t"}"#, TokenResponseProblem::NoLifetime),
            (r#"{"access_token":"t","expires_in":"soon"}"#, TokenResponseProblem::NoLifetime),
            (r#"{"access_token":"t","expires_in":0}"#, TokenResponseProblem::Expired),
            (r#"{"access_token":"t","expires_on":"999"}"#, TokenResponseProblem::Expired),
            (
                r#"{"access_token":"t","expires_on":"-9223372036854775808"}"#,
                TokenResponseProblem::Expired,
            ),
            ("<html>", TokenResponseProblem::Malformed { line: 1, column: 1 }),
            (r#"{"access_token":7}"#, TokenResponseProblem::Malformed { line: 1, column: 17 }),
        ] {
            assert_eq!(parse(body), Err(expected), "{body}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_token_responses_never_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _unread = parse_token_response(&body, Timestamp::UNIX_EPOCH);
        }

        #[test]
        fn truncated_response_errors_never_contain_the_token(cut in 0usize..60) {
            let body = r#"{"access_token":"planted-marker-0123456789","expires_in":"x"}"#;
            let problem = parse_token_response(&body.as_bytes()[..cut], Timestamp::UNIX_EPOCH);
            let printed = format!("{problem:?}");
            prop_assert!(!printed.contains("planted"));
        }
    }
}
