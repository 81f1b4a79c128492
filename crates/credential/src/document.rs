//! The credential document: the JSON file that carries the identity of one component.
//!
//! The format is `UserAssignedIdentityCredentials` of msi-dataplane (v0.4.3): thirteen `snake_case` keys,
//! matched exactly; `null` counts as absent, and unknown keys are ignored. Two rules are stricter than in Go:
//! `not_before` is required (Go dereferences nil without it), and the first load parses the timestamps, too.

mod error;
mod raw_document;
#[cfg(test)]
mod tests;
mod timestamp;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;

pub use error::{DocumentError, DocumentProblem, FieldProblem};

use crate::detected_format::DetectedFormat;
use crate::identity::{Authority, ClientId, TenantId};
use crate::secret::SecretText;
use raw_document::{RawDocument, RawFieldValue};

/// A parsed and validated credential document.
///
/// It cannot be cloned, serialized or printed as a whole: `client_secret` contains a private key, and
/// `client_secret_url` a signature.
pub struct CredentialDocument {
    client_id: ClientId,
    tenant_id: TenantId,
    authentication_endpoint: Authority,
    client_secret: SecretText,
    timestamps: CredentialTimestamps,
    client_secret_url: Option<SecretText>,
    mtls_authentication_endpoint: Option<String>,
    object_id: Option<String>,
    resource_id: Option<String>,
    custom_claims: Option<CustomClaims>,
    unknown_keys: Vec<String>,
}

/// The four timestamps of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialTimestamps {
    /// The start of the credential's validity. A reload accepts only a document with a newer one.
    pub not_before: Timestamp,
    /// The end of the credential's validity.
    pub not_after: Option<Timestamp>,
    /// The time after which the credential should be replaced.
    pub renew_after: Option<Timestamp>,
    /// The time after which the credential can no longer be replaced.
    pub cannot_renew_after: Option<Timestamp>,
}

/// Claims that Entra adds to the identity's tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CustomClaims {
    /// `azureinfra` or `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xms_az_tm: Option<String>,
    /// GUIDs of network security perimeters, at most five.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xms_az_nwperimid: Vec<String>,
}

impl CredentialDocument {
    /// Parses a document and collects all its problems.
    ///
    /// # Errors
    ///
    /// Returns a [`DocumentError`] that lists all problems, each with its field and a hint.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        DocumentFields::read(bytes)?.into_document()
    }

    /// The application (client) id of the identity.
    pub fn client_id(&self) -> &ClientId {
        &self.client_id
    }

    /// The tenant of the identity.
    pub fn tenant_id(&self) -> &TenantId {
        &self.tenant_id
    }

    /// The base URL of the token service. It may be regional.
    pub fn authentication_endpoint(&self) -> &Authority {
        &self.authentication_endpoint
    }

    /// Base64 of a certificate bundle, see [`crate::bundle`].
    pub fn client_secret(&self) -> &SecretText {
        &self.client_secret
    }

    /// The four timestamps.
    pub fn timestamps(&self) -> &CredentialTimestamps {
        &self.timestamps
    }

    /// The URL that serves the next document. Its query contains a signature and is therefore secret.
    pub fn client_secret_url(&self) -> Option<&SecretText> {
        self.client_secret_url.as_ref()
    }

    /// The host of the token endpoint that authenticates the certificate by mutual TLS.
    pub fn mtls_authentication_endpoint(&self) -> Option<&str> {
        self.mtls_authentication_endpoint.as_deref()
    }

    /// The object id of the service principal.
    pub fn object_id(&self) -> Option<&str> {
        self.object_id.as_deref()
    }

    /// The ARM resource id of the identity.
    pub fn resource_id(&self) -> Option<&str> {
        self.resource_id.as_deref()
    }

    /// The claims that Entra adds to the identity's tokens.
    pub fn custom_claims(&self) -> Option<&CustomClaims> {
        self.custom_claims.as_ref()
    }

    /// Unknown keys, shortened for display.
    pub fn unknown_keys(&self) -> &[String] {
        &self.unknown_keys
    }
}

impl fmt::Debug for CredentialDocument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CredentialDocument")
            .field("client_id", &self.client_id)
            .field("tenant_id", &self.tenant_id)
            .field("authentication_endpoint", &self.authentication_endpoint.as_url().as_str())
            .field("client_secret", &self.client_secret)
            .field("stamps", &self.timestamps)
            .finish_non_exhaustive()
    }
}

/// The fields that could be parsed, and the problems of the other fields.
pub(crate) struct DocumentFields {
    pub(crate) client_id: Option<ClientId>,
    pub(crate) tenant_id: Option<TenantId>,
    pub(crate) authentication_endpoint: Option<Authority>,
    pub(crate) client_secret: Option<SecretText>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) not_after: Option<Timestamp>,
    pub(crate) renew_after: Option<Timestamp>,
    pub(crate) cannot_renew_after: Option<Timestamp>,
    pub(crate) client_secret_url: Option<SecretText>,
    pub(crate) mtls_authentication_endpoint: Option<String>,
    pub(crate) object_id: Option<String>,
    pub(crate) resource_id: Option<String>,
    pub(crate) custom_claims: Option<CustomClaims>,
    pub(crate) keys: Vec<&'static str>,
    pub(crate) unknown_keys: Vec<String>,
    pub(crate) problems: Vec<DocumentProblem>,
}

impl DocumentFields {
    /// Parses as many fields as possible.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a JSON object.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut wire = raw_document::parse(bytes).map_err(DocumentError::from_problem)?;
        let keys = wire.keys();
        let mut problems = std::mem::take(&mut wire.problems);
        let (wire, found) = (&mut wire, &mut problems);
        let client_id = parse_required(wire, "client_id", found, parse_id);
        let tenant_id: Option<TenantId> = parse_required(wire, "tenant_id", found, parse_id);
        let parse_authority = |text: &str| {
            let authority = Authority::from_str(text)?;
            tenant_id.as_ref().map_or(Ok(()), |tenant| authority.check_tenant(tenant))?;
            Ok(authority)
        };
        Ok(Self {
            client_id,
            authentication_endpoint: parse_required(
                wire,
                "authentication_endpoint",
                found,
                |text| parse_authority(text).map_err(FieldProblem::Authority),
            ),
            tenant_id,
            client_secret: parse_required(wire, "client_secret", found, parse_secret),
            not_before: parse_required(wire, "not_before", found, parse_timestamp),
            not_after: parse_optional(wire, "not_after", found, parse_timestamp),
            renew_after: parse_optional(wire, "renew_after", found, parse_timestamp),
            cannot_renew_after: parse_optional(wire, "cannot_renew_after", found, parse_timestamp),
            client_secret_url: take_secret(wire, "client_secret_url", found),
            mtls_authentication_endpoint: take_text(wire, "mtls_authentication_endpoint", found),
            object_id: take_text(wire, "object_id", found),
            resource_id: take_text(wire, "resource_id", found),
            custom_claims: wire.custom_claims.take(),
            keys,
            unknown_keys: std::mem::take(&mut wire.unknown_keys),
            problems,
        })
    }

    /// The four timestamps, if the required `not_before` is present.
    pub(crate) fn timestamps(&self) -> Option<CredentialTimestamps> {
        Some(CredentialTimestamps {
            not_before: self.not_before?,
            not_after: self.not_after,
            renew_after: self.renew_after,
            cannot_renew_after: self.cannot_renew_after,
        })
    }

    fn into_document(self) -> Result<CredentialDocument, DocumentError> {
        let stamps = self.timestamps();
        let problems = self.problems;
        // Each absent required field has already recorded a problem.
        let (Some(client_id), Some(tenant_id), Some(authentication_endpoint), true) =
            (self.client_id, self.tenant_id, self.authentication_endpoint, problems.is_empty())
        else {
            return Err(DocumentError { problems });
        };
        let (Some(client_secret), Some(stamps)) = (self.client_secret, stamps) else {
            return Err(DocumentError { problems });
        };
        Ok(CredentialDocument {
            client_id,
            tenant_id,
            authentication_endpoint,
            client_secret,
            timestamps: stamps,
            client_secret_url: self.client_secret_url,
            mtls_authentication_endpoint: self.mtls_authentication_endpoint,
            object_id: self.object_id,
            resource_id: self.resource_id,
            custom_claims: self.custom_claims,
            unknown_keys: self.unknown_keys,
        })
    }
}

type DocumentProblems = Vec<DocumentProblem>;

/// Parses a required field with `parse`.
fn parse_required<T>(
    wire: &mut RawDocument,
    field: &'static str,
    problems: &mut DocumentProblems,
    parse: impl FnOnce(&str) -> Result<T, FieldProblem>,
) -> Option<T> {
    if matches!(wire.value(field), None | Some(RawFieldValue::Null)) {
        // A misspelled key is already among the problems.
        if !problems.iter().any(|problem| problem.field == field) {
            problems.push(DocumentProblem { field, kind: FieldProblem::Missing });
        }
        return None;
    }
    parse_optional(wire, field, problems, parse)
}

fn parse_optional<T>(
    wire: &mut RawDocument,
    field: &'static str,
    problems: &mut DocumentProblems,
    parse: impl FnOnce(&str) -> Result<T, FieldProblem>,
) -> Option<T> {
    let text = take_secret(wire, field, problems)?;
    match parse(text.expose()) {
        Ok(value) => Some(value),
        Err(fault) => {
            problems.push(DocumentProblem { field, kind: fault });
            None
        }
    }
}

fn take_text(
    wire: &mut RawDocument,
    field: &'static str,
    problems: &mut DocumentProblems,
) -> Option<String> {
    parse_optional(wire, field, problems, |text| Ok(text.to_owned()))
}

/// Moves a text out of the raw document.
fn take_secret(
    wire: &mut RawDocument,
    field: &'static str,
    problems: &mut DocumentProblems,
) -> Option<SecretText> {
    match wire.take(field)? {
        RawFieldValue::Null => None,
        RawFieldValue::Text(text) => Some(text),
        RawFieldValue::Other(found) => {
            problems.push(DocumentProblem { field, kind: FieldProblem::WrongType { found } });
            None
        }
    }
}

fn parse_id<T: FromStr<Err = crate::identity::ParseIdError>>(
    text: &str,
) -> Result<T, FieldProblem> {
    text.parse().map_err(FieldProblem::Id)
}

fn parse_secret(text: &str) -> Result<SecretText, FieldProblem> {
    if text.trim().is_empty() { Err(FieldProblem::Empty) } else { Ok(SecretText::from(text)) }
}

fn parse_timestamp(text: &str) -> Result<Timestamp, FieldProblem> {
    timestamp::parse_timestamp(text).ok_or(FieldProblem::InvalidTimestamp)
}

/// Detects the format of a malformed document: [`DetectedFormat::of`], combined with the parser's verdict.
fn detect_document_format(bytes: &[u8], cut_short: bool) -> DetectedFormat {
    match DetectedFormat::of(bytes) {
        DetectedFormat::JsonObject if cut_short => DetectedFormat::JsonCutShort,
        other => other,
    }
}
