//! The problems of a SecretProviderClass's parameters.

use std::borrow::Cow;

/// A problem of one parameter. [`ParameterProblem::field`] returns its location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterProblem {
    /// A required parameter is absent or blank.
    #[error("`{key}` is not set")]
    Missing {
        key: &'static str,
        /// An existing key that differs only in case; keys are case-sensitive.
        similar: Option<String>,
    },
    /// A boolean parameter is neither true nor false.
    #[error("`{key}` is `{text}`, which is neither true nor false")]
    NotBoolean {
        key: &'static str,
        /// The value.
        text: String,
    },
    /// More than one identity mode is enabled.
    #[error("only one identity mode can be used, and {} are true", keys.join(" and "))]
    MultipleIdentityModes {
        /// The keys that are true.
        keys: Vec<&'static str>,
    },
    /// A value is invalid.
    #[error("`{key}`: {reason}")]
    Invalid {
        key: &'static str,
        /// The reason why the value is invalid.
        reason: String,
    },
    /// `objects` as a whole cannot be parsed.
    #[error("`objects` cannot be read: {reason}")]
    InvalidObjects { reason: String },
    /// `objects` exceeds a limit.
    #[error("`objects` has {found} {what}; the maximum is {most}")]
    TooManyObjects {
        /// The limited quantity: bytes, entries or files to write.
        what: &'static str,
        /// The actual number.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// `objects` has more problems than are listed.
    #[error("`objects` has {more} more problems")]
    MoreObjectProblems {
        /// The number of problems that are not listed.
        more: usize,
    },
    /// An entry of `objects` is invalid.
    #[error("objects[{index}]{}{field}: {reason}", if field.is_empty() { "" } else { "." })]
    InvalidObject {
        /// The index of the entry, from 0.
        index: usize,
        /// The field of the entry; empty for the entry as a whole.
        field: &'static str,
        reason: String,
    },
}

impl ParameterProblem {
    /// Returns the location of the problem below `spec.parameters`: a key, or an entry of
    /// `objects`.
    pub fn field(&self) -> String {
        match self {
            Self::Missing { key, .. }
            | Self::NotBoolean { key, .. }
            | Self::Invalid { key, .. } => (*key).to_owned(),
            Self::MultipleIdentityModes { keys } => keys.join(", "),
            Self::InvalidObjects { .. }
            | Self::TooManyObjects { .. }
            | Self::MoreObjectProblems { .. } => "objects".to_owned(),
            Self::InvalidObject { index, field: "", .. } => format!("objects[{index}]"),
            Self::InvalidObject { index, field, .. } => format!("objects[{index}].{field}"),
        }
    }

    /// Returns the next step of the reader, usually to repair the cause; `None` if the error message already says
    /// everything.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Missing { similar: Some(similar), key } => {
                Some(format!("keys are case-sensitive: rename `{similar}` to `{key}`").into())
            }
            Self::Missing { key, .. } => Some(format!("set `{key}` in spec.parameters").into()),
            Self::NotBoolean { .. } => Some("write \"true\" or \"false\", in quotes".into()),
            Self::MultipleIdentityModes { .. } => {
                Some("leave one of them \"true\" and set the others to \"false\"".into())
            }
            Self::InvalidObjects { .. } => Some(
                "write `array:` and below it one `- |` for each object, with its fields indented"
                    .into(),
            ),
            Self::TooManyObjects { .. } => {
                Some("divide the objects among several SecretProviderClasses".into())
            }
            Self::Invalid { .. } | Self::InvalidObject { .. } | Self::MoreObjectProblems { .. } => {
                None
            }
        }
    }
}
