//! Objects as their types say, and what is told of those that are not: where, and what was expected.
//! Never what is there: who reads a condition or a log may not be allowed to read the object.

use serde::de::{DeserializeOwned, Deserializer};

/// An object has a field of another type than the API says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The path of the field, such as `spec.platform`.
    pub(crate) field: String,
    pub(crate) problem: String,
}

/// Reads an object.
pub(crate) fn typed<'de, T, D>(reader: D) -> Result<T, Mismatch>
where
    T: DeserializeOwned,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let field = error.path().to_string();
        Mismatch { field, problem: told(&error.into_inner()) }
    })
}

/// The part of a problem that is about the type. What comes before it quotes the value.
fn told(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if text.starts_with(MISSING) => text.to_owned(),
        None => "the value is not what the API takes".to_owned(),
    }
}

const MISSING: &str = "missing field ";

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::Error as _;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Outer {
        #[serde(rename = "inner")]
        _inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        #[serde(rename = "count")]
        _count: u8,
        #[serde(rename = "word", default)]
        _word: Word,
        #[serde(rename = "own", default)]
        _own: Own,
    }

    #[derive(Debug, Default, Deserialize)]
    enum Word {
        #[default]
        Good,
    }

    /// A type with words of its own for what is wrong.
    #[derive(Debug, Default)]
    struct Own;

    impl<'de> Deserialize<'de> for Own {
        fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
            let text = String::deserialize(reader)?;
            Err(D::Error::custom(format!("`{text}` is bad")))
        }
    }

    #[test]
    fn what_is_told_names_the_field_and_quotes_nothing() {
        let cases = [
            (json!({"count": "planted"}), "inner[0].count", "expected u8"),
            (json!({"count": "planted, expected planted"}), "inner[0].count", "expected u8"),
            (json!({"count": 1, "word": "planted"}), "inner[0].word", "expected `Good`"),
            (json!({"count": 1, "own": "planted"}), "inner[0].own", "not what the API takes"),
            (json!({"word": "Good"}), "inner[0]", "missing field `count`"),
        ];
        for (inner, field, problem) in cases {
            let text = json!({"inner": [inner]}).to_string();
            let mut reader = serde_json::Deserializer::from_str(&text);
            let of_text = typed::<Outer, _>(&mut reader).unwrap_err();
            assert_eq!(of_text, typed::<Outer, _>(json!({"inner": [inner]})).unwrap_err());
            assert!(of_text.field == field && of_text.problem.contains(problem), "{of_text:?}");
            assert!(!of_text.problem.contains("planted"), "{of_text:?}");
        }
    }
}
