//! A lenient parser for error bodies, which may have any content.

use serde_json::{Map, Value};

use crate::reply::MAX_MESSAGE_LENGTH;
use crate::transport::redact::{excerpt, excerpt_of_length, redact};

/// The fields of an error body, as far as they are present. Secrets are redacted from every field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TokenErrorBody {
    pub(crate) error: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) codes: Vec<u32>,
    pub(crate) trace_id: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) timestamp: Option<String>,
    pub(crate) claims: Option<String>,
    pub(crate) suberror: Option<String>,
    /// The beginning of a body that is not the expected JSON.
    pub(crate) excerpt: Option<String>,
}

/// Parses an error body. The body need not be JSON: throttling sends plain text, proxies send HTML, and a
/// broken connection leaves truncated JSON.
pub(crate) fn parse_error_body(body: &[u8], secrets: &[&str]) -> TokenErrorBody {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    let mut answer = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(fields)) => ErrorBodyReader { fields: &fields, secrets }.read(),
        _ => TokenErrorBody::default(),
    };
    if answer.error.is_none() && answer.description.is_none() {
        answer.excerpt = Some(excerpt(&redact(text, secrets))).filter(|text| !text.is_empty());
    }
    if answer.codes.is_empty() {
        let text = answer.description.as_deref().unwrap_or(text);
        answer.codes.extend(aadsts_code(text));
    }
    answer
}

struct ErrorBodyReader<'a> {
    fields: &'a Map<String, Value>,
    secrets: &'a [&'a str],
}

impl ErrorBodyReader<'_> {
    fn read(&self) -> TokenErrorBody {
        // ARM, gateways and API Management wrap code and message in an object.
        let nested = self.fields.get("error").and_then(Value::as_object);
        let nested = |key: &str| nested.and_then(|fields| self.redacted_text(fields.get(key)));
        let description = self.text("error_description").or_else(|| self.text("message"));
        let description = description.or_else(|| nested("message"));
        TokenErrorBody {
            error: self.text("error").or_else(|| nested("code")),
            description: description.map(|text| self.without_ids(&text)),
            codes: self.codes(),
            trace_id: self.text("trace_id"),
            correlation_id: self.text("correlation_id"),
            timestamp: self.text("timestamp"),
            claims: self.text("claims"),
            suberror: self.text("suberror"),
            excerpt: None,
        }
    }

    /// A description as one line, without the ids at its end, which are also fields of the body.
    fn without_ids(&self, description: &str) -> String {
        let line = excerpt_of_length(description, MAX_MESSAGE_LENGTH);
        match line.split_once(" Trace ID: ") {
            Some((message, _)) if self.fields.contains_key("trace_id") => message.to_owned(),
            _ => line,
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.redacted_text(self.fields.get(key))
    }

    fn redacted_text(&self, value: Option<&Value>) -> Option<String> {
        let text = value?.as_str()?.trim();
        (!text.is_empty()).then(|| redact(text, self.secrets))
    }

    fn codes(&self) -> Vec<u32> {
        let codes = self.fields.get("error_codes").and_then(Value::as_array);
        codes.into_iter().flatten().filter_map(parse_error_code).collect()
    }
}

fn parse_error_code(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => number.as_u64().and_then(|code| u32::try_from(code).ok()),
        Value::String(text) => text.trim_start_matches("AADSTS").parse().ok(),
        _ => None,
    }
}

fn aadsts_code(text: &str) -> Option<u32> {
    let (_, after) = text.split_once("AADSTS")?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn complete_error_body_is_parsed() {
        let body = br#"{"error":"invalid_client","error_description":"AADSTS700027: The certificate \"x\" isn\u0027t registered.\r\nTrace ID: t\r\n","error_codes":[700027],"timestamp":"2026-11-21 12:00:00Z","trace_id":"t-1","correlation_id":"c-1","error_uri":"https://login/error?code=700027","suberror":"bad","claims":"{\"access_token\":{}}"}"#;
        let answer = parse_error_body(body, &[]);
        assert_eq!(answer.error.as_deref(), Some("invalid_client"));
        assert_eq!(
            answer.description.as_deref(),
            Some("AADSTS700027: The certificate \"x\" isn't registered.")
        );
        assert_eq!(answer.codes, [700_027]);
        assert_eq!(answer.trace_id.as_deref(), Some("t-1"));
        assert_eq!(answer.correlation_id.as_deref(), Some("c-1"));
        assert_eq!(answer.claims.as_deref(), Some("{\"access_token\":{}}"));
        assert_eq!(answer.suberror.as_deref(), Some("bad"));
        assert_eq!(answer.excerpt, None);
    }

    #[test]
    fn unstructured_bodies_yield_an_excerpt_and_any_error_code() {
        for (case, body, excerpt, codes) in [
            ("plain text", &b"Too Many Requests"[..], Some("Too Many Requests"), &[][..]),
            ("html", b"<html>\n<b>503</b>\n</html>", Some("<html> <b>503</b> </html>"), &[]),
            ("nothing", b"", None, &[]),
            ("blanks", b" \r\n ", None, &[]),
            (
                "cut json",
                b"{\"error\":\"invalid_client\",\"error_desc",
                Some("{\"error\":\"invalid_client\",\"error_desc"),
                &[],
            ),
            (
                "cut json with a code",
                b"{\"error_description\":\"AADSTS90002: Ten",
                Some("{\"error_description\":\"AADSTS90002: Ten"),
                &[90_002],
            ),
            ("not utf-8", b"\xff\xfe?", Some("\u{fffd}\u{fffd}?"), &[]),
            ("an array", b"[1]", Some("[1]"), &[]),
        ] {
            let answer = parse_error_body(body, &[]);
            assert_eq!(answer.excerpt.as_deref(), excerpt, "{case}");
            assert_eq!(answer.codes, codes, "{case}");
        }
    }

    #[test]
    fn error_bodies_of_arm_and_gateways_are_parsed() {
        for (body, error, description, codes) in [
            (r#"{"error":{"code":"Busy","message":"later"}}"#, Some("Busy"), Some("later"), vec![]),
            (r#"{"statusCode":400,"message":"no identity"}"#, None, Some("no identity"), vec![]),
            (
                r#"{"error":"x","error_codes":["90033","AADSTS50196",7]}"#,
                Some("x"),
                None,
                vec![90_033, 50_196, 7],
            ),
            ("\u{feff}{\"error\":\"x\"}", Some("x"), None, vec![]),
        ] {
            let answer = parse_error_body(body.as_bytes(), &[]);
            assert_eq!(answer.error.as_deref(), error, "{body}");
            assert_eq!(answer.description.as_deref(), description, "{body}");
            assert_eq!(answer.codes, codes, "{body}");
        }
    }

    #[test]
    fn echoed_assertion_is_redacted_from_every_field() {
        let secret = "planted.marker.value";
        for body in [
            format!("<pre>client_assertion={secret}</pre>"),
            format!(
                r#"{{"error":"{secret}","error_description":"got {secret}","claims":"{secret}"}}"#
            ),
            format!(r#"{{"error":{{"code":"{secret}","message":"{secret}"}}}}"#),
            format!(r#"{{"error":"x","trace_id":"{secret}","timestamp":"{secret}"#),
        ] {
            let answer = parse_error_body(body.as_bytes(), &[secret]);
            assert!(!format!("{answer:?}").contains(secret), "{body}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_error_bodies_never_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _unread = parse_error_body(&body, &["planted-marker"]);
        }
    }
}
