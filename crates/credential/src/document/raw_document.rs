//! The JSON object before its fields are parsed.
//!
//! The parser reads the text once and moves each value to its final place: a general JSON tree would leave
//! copies of `client_secret` behind.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::{CustomClaims, DocumentProblem, FieldProblem, detect_document_format};
use crate::secret::SecretText;

/// A field value whose type is not checked yet.
pub(super) enum RawFieldValue {
    Null,
    Text(SecretText),
    Other(&'static str),
}

/// The fields by key, and the problems that concern the object as a whole.
#[derive(Default)]
pub(super) struct RawDocument {
    values: Vec<(&'static str, RawFieldValue)>,
    pub(super) custom_claims: Option<CustomClaims>,
    pub(super) unknown_keys: Vec<String>,
    pub(super) problems: Vec<DocumentProblem>,
}

impl RawDocument {
    /// The keys that are present and not `null`, in document order.
    pub(super) fn keys(&self) -> Vec<&'static str> {
        let there = self.values.iter().filter(|(_, value)| !matches!(value, RawFieldValue::Null));
        let claims = self.custom_claims.iter().map(|_| CUSTOM_CLAIMS);
        there.map(|(key, _)| *key).chain(claims).collect()
    }

    pub(super) fn value(&self, field: &str) -> Option<&RawFieldValue> {
        self.values.iter().find(|(key, _)| *key == field).map(|(_, value)| value)
    }

    pub(super) fn take(&mut self, field: &str) -> Option<RawFieldValue> {
        let index = self.values.iter().position(|(key, _)| *key == field)?;
        Some(self.values.swap_remove(index).1)
    }
}

/// The keys with string values.
const TEXT_KEYS: [&str; 12] = [
    "client_id",
    "tenant_id",
    "client_secret",
    "authentication_endpoint",
    "not_before",
    "not_after",
    "renew_after",
    "cannot_renew_after",
    "client_secret_url",
    "object_id",
    "resource_id",
    "mtls_authentication_endpoint",
];

const CUSTOM_CLAIMS: &str = "custom_claims";
const MAX_PERIMETERS: usize = 5;

/// Parses the JSON object.
pub(super) fn parse(bytes: &[u8]) -> Result<RawDocument, DocumentProblem> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = deserializer
        .deserialize_any(DocumentVisitor)
        .and_then(|document| deserializer.end().map(|()| document));
    let mut document = match parsed {
        Ok(document) => document,
        // The parser's own message may quote the text, so only its position is used.
        Err(error) => return Err(syntax_problem(bytes, &error)),
    };
    let holds_identities = document
        .unknown_keys
        .iter()
        .any(|key| matches!(key.as_str(), "explicit_identities" | "delegated_resources"));
    if holds_identities && document.value("client_secret").is_none() {
        let problem = DocumentProblem {
            field: "document",
            kind: FieldProblem::ManagedIdentityCredentialsObject,
        };
        document.problems.insert(0, problem);
    }
    Ok(document)
}

fn syntax_problem(bytes: &[u8], error: &serde_json::Error) -> DocumentProblem {
    use crate::detected_format::DetectedFormat;
    let fault = match detect_document_format(bytes, error.classify() == Category::Eof) {
        DetectedFormat::JsonObject => {
            FieldProblem::Syntax { line: error.line(), column: error.column() }
        }
        looks_like => FieldProblem::NotADocument { looks_like },
    };
    DocumentProblem { field: "document", kind: fault }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = RawDocument;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawDocument, A::Error> {
        let mut document = RawDocument::default();
        let mut unrecognised = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(field) = TEXT_KEYS.into_iter().find(|known| *known == key) {
                let value = map.next_value::<RawFieldValue>()?;
                if document.value(field).is_some() {
                    document.problems.push(DocumentProblem { field, kind: FieldProblem::Repeated });
                } else {
                    document.values.push((field, value));
                }
            } else if key == CUSTOM_CLAIMS {
                let claims = map.next_value::<RawCustomClaims>()?;
                document.problems.extend(claims.problems);
                document.custom_claims = claims.claims;
            } else {
                map.next_value::<IgnoredAny>()?;
                unrecognised.push(key);
            }
        }
        document.classify_unknown_keys(unrecognised);
        Ok(document)
    }
}

impl RawDocument {
    /// Classifies keys that are not among the thirteen. A misspelled key is a problem unless the correct key
    /// is present, too; all others are unknown keys.
    fn classify_unknown_keys(&mut self, unrecognised: Vec<String>) {
        for written in unrecognised {
            match canonical_key(&written) {
                Some(field) if !self.has_key(field) => {
                    let fault = FieldProblem::Misspelled { written };
                    self.problems.push(DocumentProblem { field, kind: fault });
                }
                _ => self.unknown_keys.push(displayable_key(&written)),
            }
        }
    }

    fn has_key(&self, field: &str) -> bool {
        self.keys().contains(&field)
    }
}

/// The key that `written` misspells: the two are equal without underscores and case.
fn canonical_key(written: &str) -> Option<&'static str> {
    let letters = |key: &str| key.replace('_', "").to_ascii_lowercase();
    let meant = letters(written);
    TEXT_KEYS.into_iter().chain([CUSTOM_CLAIMS]).find(|key| letters(key) == meant)
}

/// The key in displayable form: text that does not look like a key might be content.
fn displayable_key(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if key.len() <= 40 && !key.is_empty() && key.chars().all(plain) {
        key.to_owned()
    } else {
        "(unprintable key)".to_owned()
    }
}

impl<'de> Deserialize<'de> for RawFieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawFieldValueVisitor)
    }
}

struct RawFieldValueVisitor;

impl<'de> Visitor<'de> for RawFieldValueVisitor {
    type Value = RawFieldValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<RawFieldValue, E> {
        Ok(RawFieldValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawFieldValue, E> {
        Ok(RawFieldValue::Other("a boolean"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawFieldValue, E> {
        Ok(RawFieldValue::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawFieldValue, E> {
        Ok(RawFieldValue::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawFieldValue, E> {
        Ok(RawFieldValue::Other("a number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<RawFieldValue, E> {
        Ok(RawFieldValue::Text(SecretText::from(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawFieldValue, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(RawFieldValue::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawFieldValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(RawFieldValue::Other("an object"))
    }
}

/// `custom_claims`: not secret, so a JSON tree may hold it.
struct RawCustomClaims {
    claims: Option<CustomClaims>,
    problems: Vec<DocumentProblem>,
}

impl<'de> Deserialize<'de> for RawCustomClaims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(deserializer).map(|tree| Self::of(&tree))
    }
}

impl RawCustomClaims {
    fn of(tree: &serde_json::Value) -> Self {
        let mut problems = Vec::new();
        let mut wrong = |field, found| {
            problems.push(DocumentProblem { field, kind: FieldProblem::WrongType { found } });
        };
        let claims = match tree {
            serde_json::Value::Null => None,
            serde_json::Value::Object(members) => {
                let mut claims = CustomClaims::default();
                match members.get("xms_az_tm") {
                    None | Some(serde_json::Value::Null) => {}
                    Some(serde_json::Value::String(mode)) => claims.xms_az_tm = Some(mode.clone()),
                    Some(other) => wrong("custom_claims.xms_az_tm", json_type_name(other)),
                }
                match members.get("xms_az_nwperimid") {
                    None | Some(serde_json::Value::Null) => {}
                    Some(serde_json::Value::Array(ids)) => {
                        for id in ids {
                            match id.as_str() {
                                Some(id) => claims.xms_az_nwperimid.push(id.to_owned()),
                                None => wrong("custom_claims.xms_az_nwperimid", json_type_name(id)),
                            }
                        }
                    }
                    Some(other) => wrong("custom_claims.xms_az_nwperimid", json_type_name(other)),
                }
                Some(claims)
            }
            other => {
                wrong(CUSTOM_CLAIMS, json_type_name(other));
                None
            }
        };
        if claims.as_ref().is_some_and(|claims| claims.xms_az_nwperimid.len() > MAX_PERIMETERS) {
            let fault = FieldProblem::TooMany { limit: MAX_PERIMETERS };
            problems.push(DocumentProblem { field: "custom_claims.xms_az_nwperimid", kind: fault });
        }
        Self { claims, problems }
    }
}

fn json_type_name(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "a boolean",
        serde_json::Value::Number(_) => "a number",
        serde_json::Value::String(_) => "a string",
        serde_json::Value::Array(_) => "an array",
        serde_json::Value::Object(_) => "an object",
    }
}
