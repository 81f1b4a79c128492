//! What a credential file holds and what is wrong with it, without showing any secret.
//!
//! The loader stops at the first layer that cannot be used; this looks on as far as it can see, and
//! says what to do next. It needs no network and no clock.
//!
//! ```
//! use lanyard_credential::inspect::{Severity, inspect};
//!
//! let inspection = inspect(br#"{"clientId": "x"}"#, "2027-01-01T00:00:00Z".parse()?);
//! assert!(!inspection.is_usable());
//! assert_eq!(inspection.findings[0].severity, Severity::Error);
//! assert_eq!(inspection.findings[0].field, "client_id");
//! # Ok::<(), jiff::Error>(())
//! ```

mod check;
mod facts;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

pub use facts::{BundleFacts, CertificateFacts, DocumentFacts, KeyFacts, TimeFacts};

use crate::assertion::AssertionError;
use crate::bundle::{CertificateBundle, KeyKind};
use crate::document::DocumentFields;
use crate::generation::ContentHash;
use crate::secret::SecretText;

/// What was found in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// SHA-256 of the file, to tell versions apart.
    pub content_hash: String,
    /// What the JSON document says, if it is one.
    pub document: Option<DocumentFacts>,
    /// What `client_secret` holds, as far as it can be opened.
    pub bundle: Option<BundleFacts>,
    /// The times and how far away they are.
    pub times: Option<TimeFacts>,
    /// What is wrong or unusual, the gravest first.
    pub findings: Vec<InspectionFinding>,
}

/// One thing that is wrong or unusual.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectionFinding {
    /// How grave it is.
    pub severity: FindingSeverity,
    /// Where: a field of the document, or `document` for the whole.
    pub field: String,
    /// What.
    pub what: String,
    /// What to do next.
    pub next_step: String,
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// Nobody can sign in with this file now.
    Error,
    /// It works here and now; elsewhere or later it may not.
    Warning,
    /// Worth knowing.
    Note,
}

impl fmt::Display for FindingSeverity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

impl Inspection {
    /// Whether nothing grave was found: the file can be used to sign in now.
    pub fn is_usable(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != FindingSeverity::Error)
    }
}

/// Looks at the bytes of a credential file as they are used at `now`.
pub fn inspect(bytes: &[u8], now: Timestamp) -> Inspection {
    inspect_with_password(bytes, None, now)
}

/// As [`inspect`], with a password for PKCS#12.
pub fn inspect_with_password(
    bytes: &[u8],
    password: Option<&SecretText>,
    now: Timestamp,
) -> Inspection {
    let mut findings = FindingList::default();
    let mut inspection = Inspection {
        content_hash: ContentHash::of(bytes).to_string(),
        document: None,
        bundle: None,
        times: None,
        findings: Vec::new(),
    };
    match DocumentFields::read(bytes) {
        Ok(fields) => {
            inspection.bundle = fields
                .client_secret
                .as_ref()
                .map(|secret| inspect_bundle(secret, password, &mut findings));
            let leaf = inspection.bundle.as_ref().and_then(BundleFacts::leaf_validity);
            inspection.times = fields.timestamps().map(|stamps| TimeFacts::of(&stamps, leaf, now));
            check::check_fields(&fields, leaf, now, &mut findings);
            inspection.document = Some(DocumentFacts::of(&fields));
        }
        Err(error) => {
            for problem in &error.problems {
                findings.error(problem.field, problem.kind.to_string(), problem.hint());
            }
        }
    }
    findings.0.sort_by_key(|finding| finding.severity);
    inspection.findings = findings.0;
    inspection
}

fn inspect_bundle(
    secret: &SecretText,
    password: Option<&SecretText>,
    findings: &mut FindingList,
) -> BundleFacts {
    match CertificateBundle::parse_with_password(secret, password) {
        Ok(bundle) => {
            if matches!(bundle.key_kind(), KeyKind::Ec { .. }) {
                let error = AssertionError::RsaOnly { kind: bundle.key_kind() };
                findings.error("client_secret", error.to_string(), error.hint());
            }
            check::check_bundle(&bundle, findings);
            BundleFacts::of(&bundle)
        }
        Err(error) => {
            let mut what = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(source) = cause {
                what = format!("{what}: {source}");
                cause = source.source();
            }
            findings.error("client_secret", what, error.hint());
            BundleFacts::from_certificates_only(CertificateBundle::certificates_of(
                secret, password,
            ))
        }
    }
}

/// The findings so far.
#[derive(Default)]
struct FindingList(Vec<InspectionFinding>);

impl FindingList {
    fn error(&mut self, field: &str, what: impl Into<String>, next_step: impl Into<String>) {
        self.push(FindingSeverity::Error, field, what.into(), next_step.into());
    }

    fn warn(&mut self, field: &str, what: impl Into<String>, next_step: impl Into<String>) {
        self.push(FindingSeverity::Warning, field, what.into(), next_step.into());
    }

    fn note(&mut self, field: &str, what: impl Into<String>, next_step: impl Into<String>) {
        self.push(FindingSeverity::Note, field, what.into(), next_step.into());
    }

    fn push(&mut self, severity: FindingSeverity, field: &str, what: String, next_step: String) {
        self.0.push(InspectionFinding { severity, field: field.to_owned(), what, next_step });
    }
}
