//! Reads JSON of clients. The errors repeat none of it, because it may contain secrets.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// JSON does not have the expected form. The message has the field's path and the expected type. Neither keys nor
/// values of the JSON are in it, other than the names of known fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct JsonError {
    problem: String,
    line: usize,
    column: usize,
}

impl JsonError {
    /// The line of the problem, from 1; 0 if the JSON was not read from text.
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The column of the problem, from 1; 0 if the JSON was not read from text.
    pub const fn column(&self) -> usize {
        self.column
    }

    fn new(path: Option<&Path>, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let problem = if error.is_data() {
            let message = error.to_string();
            let position = format!(" at line {line} column {column}");
            let message = message.strip_suffix(&position).unwrap_or(&message);
            let field = path.map(|path| field_path(path, message)).unwrap_or_default();
            let problem = data_problem(message);
            if field.is_empty() { problem } else { format!("`{field}`: {problem}") }
        } else {
            format!("the text is not JSON at line {line}, column {column}")
        };
        Self { problem, line, column }
    }
}

/// Reads JSON text.
///
/// # Errors
///
/// Returns an error that repeats nothing of the text.
pub fn from_json_text<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    serde_json::from_slice(text).map_err(|error| {
        // Only errors need the path, and finding it is slower.
        let mut reader = serde_json::Deserializer::from_slice(text);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(located) => JsonError::new(Some(located.path()), located.inner()),
            Ok(_) => JsonError::new(None, &error),
        }
    })
}

/// Reads a JSON value.
///
/// # Errors
///
/// Returns an error that repeats nothing of the value.
pub fn from_json_value<T: DeserializeOwned>(json: Value) -> Result<T, JsonError> {
    serde_path_to_error::deserialize(json)
        .map_err(|located| JsonError::new(Some(located.path()), located.inner()))
}

/// The path of the field that contains the problem, such as `steps[0].afterSeconds`. An unknown field is a part of
/// the JSON, so the path ends above it.
fn field_path(path: &Path, message: &str) -> String {
    let mut segments: Vec<_> = path.iter().collect();
    if message.starts_with("unknown field") {
        segments.pop();
    }
    let mut text = String::new();
    for segment in segments {
        match segment {
            Segment::Map { key } => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Segment::Seq { index } => text.extend(["[", &index.to_string(), "]"]),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    text
}

/// The part of a message of serde that does not depend on the JSON: what is expected, or the field that is missing
/// or repeated. Other messages may contain the value.
fn data_problem(message: &str) -> String {
    if message.starts_with("missing field `") || message.starts_with("duplicate field `") {
        return message.to_owned();
    }
    let kinds = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant `"];
    let expected = message.rsplit_once(", expected ").map(|(_, expected)| expected);
    match expected {
        Some(fields) if message.starts_with("unknown field `") => {
            format!("unknown field, expected {fields}")
        }
        Some(known) if kinds.iter().any(|kind| message.starts_with(kind)) => {
            let known = if known.starts_with("struct ") { "an object" } else { known };
            format!("expected {known}")
        }
        _ => "the value is invalid".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only errors are of interest")]
    struct Outer {
        items: Vec<Inner>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only errors are of interest")]
    struct Inner {
        after_seconds: u32,
        id: Option<Uuid>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn errors_name_the_field_and_what_it_expects() {
        const MARKER: &str = "marker, expected marker at line 1";
        for (json, expected) in [
            (json!({}), "missing field `items`"),
            (json!({ "items": [], MARKER: 1 }), "unknown field, expected `items` or `kind`"),
            (json!({ "items": MARKER }), "`items`: expected a sequence"),
            (json!({ "items": [MARKER] }), "`items[0]`: expected an object"),
            (
                json!({ "items": [{ "afterSeconds": 1 }, { "afterSeconds": MARKER }] }),
                "`items[1].afterSeconds`: expected u32",
            ),
            (
                json!({ "items": [{ "afterSeconds": -987 }] }),
                "`items[0].afterSeconds`: expected u32",
            ),
            (
                json!({ "items": [{ "afterSeconds": 1, MARKER: 1 }] }),
                "`items[0]`: unknown field, expected `afterSeconds` or `id`",
            ),
            (
                json!({ "items": [{ "afterSeconds": 1, "id": MARKER }] }),
                "`items[0].id`: the value is invalid",
            ),
            (json!({ "items": [], "kind": MARKER }), "`kind`: expected `one` or `two`"),
            (json!(MARKER), "expected an object"),
        ] {
            let of_text = from_json_text::<Outer>(json.to_string().as_bytes()).unwrap_err();
            assert_eq!(of_text.to_string(), expected, "{json}");
            let of_value = from_json_value::<Outer>(json.clone()).unwrap_err();
            assert_eq!(of_value.to_string(), expected, "{json}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_named_by_its_position() {
        for (text, expected) in [
            ("{\n marker", "the text is not JSON at line 2, column 2"),
            ("{} marker", "the text is not JSON at line 1, column 4"),
            ("", "the text is not JSON at line 1, column 0"),
        ] {
            let error = from_json_text::<Value>(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
