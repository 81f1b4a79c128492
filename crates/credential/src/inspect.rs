//! Inspects a credential file and reports its content and problems without showing secrets.
//!
//! The loader stops at the first unusable layer. The inspection continues as far as possible and gives a hint
//! for each problem. It needs no network and no clock.
//!
//! ```
//! use lanyard_credential::inspect::{FindingSeverity, inspect};
//!
//! let inspection = inspect(br#"{"clientId": "x"}"#, "2027-01-01T00:00:00Z".parse()?);
//! assert!(!inspection.is_usable());
//! assert_eq!(inspection.findings[0].severity, FindingSeverity::Error);
//! assert_eq!(inspection.findings[0].field, "client_id");
//! # Ok::<(), jiff::Error>(())
//! ```

mod check;
mod facts;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use serde::Serialize;

pub use facts::{BundleFacts, CertificateFacts, DocumentFacts, KeyFacts, TimeFacts};

use crate::assertion::AssertionError;
use crate::bundle::{CertificateBundle, KeyKind};
use crate::document::DocumentFields;
use crate::generation::ContentHash;
use crate::secret::SecretText;

/// The result of inspecting a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Inspection {
    /// The SHA-256 digest of the file, which distinguishes versions.
    pub content_hash: String,
    /// The fields of the JSON document, if the file is one.
    pub document: Option<DocumentFacts>,
    /// The content of `client_secret`, as far as it can be opened.
    pub bundle: Option<BundleFacts>,
    /// The timestamps and the remaining times.
    pub times: Option<TimeFacts>,
    /// Problems and irregularities, the most severe first.
    pub findings: Vec<InspectionFinding>,
}

/// A problem or an irregularity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectionFinding {
    /// The severity of the finding.
    pub severity: FindingSeverity,
    /// The affected field of the document, or `document` for the whole document.
    pub field: String,
    /// A description of the finding.
    pub what: String,
    /// Advises what to do next.
    pub next_step: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// The file cannot be used to sign in at present.
    Error,
    /// The file works here and now, but may fail elsewhere or later.
    Warning,
    /// Information only.
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
    /// Whether the file can be used to sign in now: there is no finding of severity `Error`.
    pub fn is_usable(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != FindingSeverity::Error)
    }
}

/// Inspects the bytes of a credential file as of `now`.
pub fn inspect(bytes: &[u8], now: Timestamp) -> Inspection {
    inspect_with_password(bytes, None, now)
}

/// Like [`inspect`], with a password for PKCS#12 archives.
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
                findings.error(
                    problem.field,
                    problem.kind.to_string(),
                    problem.hint().unwrap_or_default(),
                );
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
                findings.error(
                    "client_secret",
                    error.to_string(),
                    error.hint().unwrap_or_default(),
                );
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
            findings.error("client_secret", what, error.hint().unwrap_or_default());
            BundleFacts::from_certificates_only(CertificateBundle::certificates_of(
                secret, password,
            ))
        }
    }
}

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
