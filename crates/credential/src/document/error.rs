//! Errors of parsing a document.

use std::borrow::Cow;
use std::fmt;

use lanyard_clock::ErrorHint;

use crate::detected_format::{DetectedFormat, DetectedInnerFormat};
use crate::identity::{ParseAuthorityError, ParseIdError};

/// All problems of a document that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    /// The problems. Never empty.
    pub problems: Vec<DocumentProblem>,
}

/// A problem of one field. Never contains the field's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentProblem {
    /// The field's path, or `document` for the whole document.
    pub field: &'static str,
    /// The kind of the problem.
    pub kind: FieldProblem,
}

/// The kinds of problems of a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldProblem {
    /// The document is not a JSON object.
    #[error("is not a JSON object but looks like {looks_like}")]
    NotADocument {
        /// The detected format.
        looks_like: DetectedFormat,
    },
    /// The document starts as a JSON object and has a syntax error.
    #[error("has a JSON syntax error at line {line}, column {column}")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
    },
    /// The object is of another type of msi-dataplane.
    #[error(
        "is a `ManagedIdentityCredentials` object, which holds identities instead of being one"
    )]
    ManagedIdentityCredentialsObject,
    /// The field is absent or `null`.
    #[error("is missing")]
    Missing,
    /// The field is empty.
    #[error("is empty")]
    Empty,
    /// The field has the wrong JSON type.
    #[error("is {found}, not what the field takes")]
    WrongType {
        /// The JSON type of the value, with its article.
        found: &'static str,
    },
    /// The key is in camelCase or misspelled, and no reader accepts it.
    #[error("is written as `{written}`")]
    Misspelled {
        /// The key as in the document.
        written: String,
    },
    /// The key occurs twice.
    #[error("occurs more than once")]
    Repeated,
    /// The text is not an id.
    #[error("is not an id: {0}")]
    Id(ParseIdError),
    /// The text is not an authority.
    #[error("cannot be used: {0}")]
    Authority(ParseAuthorityError),
    /// The text is not an RFC 3339 time.
    #[error("is not an RFC 3339 time")]
    InvalidTimestamp,
    /// The list is longer than Azure allows.
    #[error("has more than {limit} members")]
    TooMany {
        /// The maximum length.
        limit: usize,
    },
}

impl ErrorHint for DocumentProblem {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Owned(match &self.kind {
            FieldProblem::NotADocument { looks_like } => wrong_format_hint(*looks_like).to_owned(),
            FieldProblem::Syntax { .. } => "write the file again with a JSON encoder".to_owned(),
            FieldProblem::ManagedIdentityCredentialsObject => {
                "write one member of `explicit_identities` to the file, on its own".to_owned()
            }
            FieldProblem::Missing | FieldProblem::Empty => {
                format!("add `{}` to the document", self.field)
            }
            FieldProblem::WrongType { .. } if self.field.starts_with("custom_claims") => {
                "write `xms_az_tm` as a string and `xms_az_nwperimid` as an array of strings".into()
            }
            FieldProblem::WrongType { .. } => format!("write `{}` as a JSON string", self.field),
            FieldProblem::Misspelled { .. } => format!("name the key `{}`", self.field),
            FieldProblem::Repeated => format!("keep `{}` once", self.field),
            FieldProblem::Id(source) => return source.hint(),
            FieldProblem::Authority(source) => return source.hint(),
            FieldProblem::InvalidTimestamp => {
                "write the time as 2026-01-02T03:04:05Z or with an offset such as +00:00".to_owned()
            }
            FieldProblem::TooMany { limit } => format!("keep {limit} members at most"),
        }))
    }
}

fn wrong_format_hint(looks_like: DetectedFormat) -> &'static str {
    match looks_like {
        DetectedFormat::Empty => "wait for the writer to finish, or write the file",
        DetectedFormat::JsonCutShort => "wait for the writer to finish; the file ends too early",
        DetectedFormat::Base64(DetectedInnerFormat::Json) => {
            "the secret is base64: set `objectEncoding: base64` so that the driver decodes it"
        }
        DetectedFormat::Hex(DetectedInnerFormat::Json) => {
            "the secret is hexadecimal: set `objectEncoding: hex` so that the driver decodes it"
        }
        DetectedFormat::Pem
        | DetectedFormat::Pkcs12
        | DetectedFormat::Base64(DetectedInnerFormat::Pem | DetectedInnerFormat::Pkcs12)
        | DetectedFormat::Hex(DetectedInnerFormat::Pem | DetectedInnerFormat::Pkcs12) => {
            "the file holds the bare certificate: write the JSON document that has it as `client_secret`"
        }
        DetectedFormat::ByteOrderMark | DetectedFormat::Utf16 => {
            "write the file as UTF-8 without a byte order mark"
        }
        DetectedFormat::Html => {
            "fetch the secret again: a proxy or a sign-in page answered instead"
        }
        _ => "write the JSON document with `client_id`, `tenant_id`, `client_secret` and the rest",
    }
}

impl DocumentError {
    pub(crate) fn from_problem(problem: DocumentProblem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl ErrorHint for DocumentError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let mut hints = Vec::new();
        for hint in self.problems.iter().filter_map(DocumentProblem::hint) {
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        Some(hints.join("; ").into())
    }
}

impl fmt::Display for DocumentProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` {}", self.field, self.kind)
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the credential document cannot be used: ")?;
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DocumentError {}
