//! Parses objects and reports type mismatches: the field and the expected type, never the value. A
//! reader of a condition or a log may not be allowed to read the object.

use serde::de::{DeserializeOwned, Deserializer};

/// A field of an object does not have the type of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeMismatch {
    /// The path of the field, such as `spec.platform`.
    pub(crate) field: String,
    pub(crate) problem: String,
}

/// Parses an object.
pub(crate) fn parse_typed<'de, T, D>(reader: D) -> Result<T, TypeMismatch>
where
    T: DeserializeOwned,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let field = error.path().to_string();
        TypeMismatch { field, problem: describe_without_value(&error.into_inner()) }
    })
}

/// The part of a parse error about the expected type. The part before it quotes the value.
fn describe_without_value(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if text.starts_with(MISSING_FIELD_PREFIX) => text.to_owned(),
        None => "the value does not match the type of the API".to_owned(),
    }
}

const MISSING_FIELD_PREFIX: &str = "missing field ";

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::Error as _;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct MismatchOuter {
        #[serde(rename = "inner")]
        _inner: Vec<MismatchInner>,
    }

    #[derive(Debug, Deserialize)]
    struct MismatchInner {
        #[serde(rename = "count")]
        _count: u8,
        #[serde(rename = "word", default)]
        _word: MismatchWord,
        #[serde(rename = "own", default)]
        _own: CustomErrorField,
    }

    #[derive(Debug, Default, Deserialize)]
    enum MismatchWord {
        #[default]
        Good,
    }

    /// A type with a custom parse error.
    #[derive(Debug, Default)]
    struct CustomErrorField;

    impl<'de> Deserialize<'de> for CustomErrorField {
        fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
            let text = String::deserialize(reader)?;
            Err(D::Error::custom(format!("`{text}` is bad")))
        }
    }

    #[test]
    fn type_mismatch_names_field_and_quotes_no_value() {
        let cases = [
            (json!({"count": "planted"}), "inner[0].count", "expected u8"),
            (json!({"count": "planted, expected planted"}), "inner[0].count", "expected u8"),
            (json!({"count": 1, "word": "planted"}), "inner[0].word", "expected `Good`"),
            (json!({"count": 1, "own": "planted"}), "inner[0].own", "does not match the type"),
            (json!({"word": "Good"}), "inner[0]", "missing field `count`"),
        ];
        for (inner, field, problem) in cases {
            let text = json!({"inner": [inner]}).to_string();
            let mut reader = serde_json::Deserializer::from_str(&text);
            let of_text = parse_typed::<MismatchOuter, _>(&mut reader).unwrap_err();
            assert_eq!(
                of_text,
                parse_typed::<MismatchOuter, _>(json!({"inner": [inner]})).unwrap_err()
            );
            assert!(of_text.field == field && of_text.problem.contains(problem), "{of_text:?}");
            assert!(!of_text.problem.contains("planted"), "{of_text:?}");
        }
    }
}
