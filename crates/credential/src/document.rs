//! The credential document: the JSON file that carries the identity of one component.
//!
//! It is `UserAssignedIdentityCredentials` of msi-dataplane (v0.4.3): thirteen `snake_case` keys,
//! matched exactly, `null` as good as absent, unknown keys passed over. Two rules are stricter than
//! in Go: `not_before` must be there (Go dereferences nil without it), and stamps are read on the
//! first load as well.

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

/// A credential document whose fields have been read and checked.
///
/// It cannot be cloned, serialized or printed as a whole: `client_secret` holds a private key, and
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

/// The four times of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CredentialTimestamps {
    /// From when the credential may be used; the newest one wins at a reload.
    pub not_before: Timestamp,
    /// Until when the credential may be used.
    pub not_after: Option<Timestamp>,
    /// From when it should be replaced.
    pub renew_after: Option<Timestamp>,
    /// From when it can no longer be replaced.
    pub cannot_renew_after: Option<Timestamp>,
}

/// Claims that the identity's tokens carry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CustomClaims {
    /// `azureinfra` or `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xms_az_tm: Option<String>,
    /// Network perimeter ids, GUIDs, five at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xms_az_nwperimid: Vec<String>,
}

impl CredentialDocument {
    /// Reads a document and collects every problem it has.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] lists all problems, each with its field and what to do.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        DocumentFields::read(bytes)?.into_document()
    }

    /// The application id of the identity.
    pub fn client_id(&self) -> &ClientId {
        &self.client_id
    }

    /// The tenant of the identity.
    pub fn tenant_id(&self) -> &TenantId {
        &self.tenant_id
    }

    /// The base URL of the token service; it may be regional.
    pub fn authentication_endpoint(&self) -> &Authority {
        &self.authentication_endpoint
    }

    /// Base64 of a certificate bundle, see [`crate::bundle`].
    pub fn client_secret(&self) -> &SecretText {
        &self.client_secret
    }

    /// The four times.
    pub fn timestamps(&self) -> &CredentialTimestamps {
        &self.timestamps
    }

    /// Where a fresh document comes from. The query holds a signature, hence a secret.
    pub fn client_secret_url(&self) -> Option<&SecretText> {
        self.client_secret_url.as_ref()
    }

    /// The host of the token endpoint that takes the certificate by mutual TLS.
    pub fn mtls_authentication_endpoint(&self) -> Option<&str> {
        self.mtls_authentication_endpoint.as_deref()
    }

    /// The service principal's object id.
    pub fn object_id(&self) -> Option<&str> {
        self.object_id.as_deref()
    }

    /// The ARM id of the identity.
    pub fn resource_id(&self) -> Option<&str> {
        self.resource_id.as_deref()
    }

    /// The claims that its tokens carry.
    pub fn custom_claims(&self) -> Option<&CustomClaims> {
        self.custom_claims.as_ref()
    }

    /// Keys that are not among the thirteen, shortened to what can be shown.
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

/// The fields that could be read, and the problems of those that could not.
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
    /// Reads what can be read.
    ///
    /// # Errors
    ///
    /// If the bytes are not a JSON object at all.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut wire = raw_document::parse(bytes).map_err(DocumentError::from_problem)?;
        let keys = wire.keys();
        let mut problems = std::mem::take(&mut wire.problems);
        let (wire, found) = (&mut wire, &mut problems);
        Ok(Self {
            client_id: parse_required(wire, "client_id", found, parse_id),
            tenant_id: parse_required(wire, "tenant_id", found, parse_id),
            authentication_endpoint: parse_required(
                wire,
                "authentication_endpoint",
                found,
                |text| Authority::from_str(text).map_err(FieldProblem::Authority),
            ),
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

    /// The four times, if the one that must be there is.
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
        // Whatever is required and absent has left a problem behind.
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

/// A field that must be there, with its own reader.
fn parse_required<T>(
    wire: &mut RawDocument,
    field: &'static str,
    problems: &mut DocumentProblems,
    parse: impl FnOnce(&str) -> Result<T, FieldProblem>,
) -> Option<T> {
    if matches!(wire.value(field), None | Some(RawFieldValue::Null)) {
        // A key that was misspelled has been named already.
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

/// Takes a text out of the wire form.
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

/// What the bytes of a would-be document look like: [`DetectedFormat::of`], with the parser's verdict.
fn detect_document_format(bytes: &[u8], cut_short: bool) -> DetectedFormat {
    match DetectedFormat::of(bytes) {
        DetectedFormat::JsonObject if cut_short => DetectedFormat::JsonCutShort,
        other => other,
    }
}
