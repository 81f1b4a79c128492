//! The discovery document of an issuer (`OpenID` Connect Discovery 1.0, section 3).

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use serde::{Deserialize, Serialize};

use crate::issuer::IssuerUrl;
use crate::key_set::{RS256, to_indented_json};

/// The discovery document of an issuer. A document that was read can lack any member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerDiscovery {
    // The order of the fields is that of ccoctl's files.
    #[serde(default)]
    issuer: Option<String>,
    #[serde(default)]
    jwks_uri: Option<String>,
    #[serde(default)]
    response_types_supported: Vec<String>,
    #[serde(default)]
    subject_types_supported: Vec<String>,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
}

/// A discovery document cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The document is not JSON, or a known member has another type.
    #[error("the discovery document is not the JSON of OpenID Connect Discovery: {source}")]
    Unparsable {
        /// The reason.
        source: serde_json::Error,
    },
    /// The document cannot be written as JSON.
    #[error("cannot write the discovery document as JSON: {source}")]
    Unwritable {
        /// The reason.
        source: serde_json::Error,
    },
}

impl ErrorHint for DiscoveryError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unparsable { .. } => {
                "check that the file or URL is the issuer's `.well-known/openid-configuration`"
            }
            Self::Unwritable { .. } => "report a bug",
        }))
    }
}

impl IssuerDiscovery {
    /// The document of an issuer whose tokens are signed with RS256.
    pub fn of_issuer(issuer: &IssuerUrl) -> Self {
        Self {
            issuer: Some(issuer.as_str().to_owned()),
            jwks_uri: Some(issuer.key_set_url()),
            response_types_supported: vec!["id_token".to_owned()],
            subject_types_supported: vec!["public".to_owned()],
            id_token_signing_alg_values_supported: vec![RS256.to_owned()],
        }
    }

    /// Reads a document. Missing members are accepted, and other members are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the document is not JSON, or a known member has another type.
    pub fn parse(document: &[u8]) -> Result<Self, DiscoveryError> {
        serde_json::from_slice(document).map_err(|source| DiscoveryError::Unparsable { source })
    }

    /// The member `issuer`, which must equal the issuer's URL byte for byte.
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The member `jwks_uri`: the URL of the key set.
    pub fn key_set_url(&self) -> Option<&str> {
        self.jwks_uri.as_deref()
    }

    /// The member `id_token_signing_alg_values_supported`.
    pub(crate) fn algorithms(&self) -> &[String] {
        &self.id_token_signing_alg_values_supported
    }

    /// The document with the members and the order of ccoctl: indented by 4 spaces, without a line
    /// feed at its end.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON cannot be written.
    pub fn to_document(&self) -> Result<String, DiscoveryError> {
        to_indented_json(self).map_err(|source| DiscoveryError::Unwritable { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_the_members_and_order_of_ccoctl() {
        let issuer = "https://a.blob.core.windows.net/c".parse().unwrap();
        let document = IssuerDiscovery::of_issuer(&issuer).to_document().unwrap();
        let expected = r#"{
    "issuer": "https://a.blob.core.windows.net/c",
    "jwks_uri": "https://a.blob.core.windows.net/c/openid/v1/jwks",
    "response_types_supported": [
        "id_token"
    ],
    "subject_types_supported": [
        "public"
    ],
    "id_token_signing_alg_values_supported": [
        "RS256"
    ]
}"#;
        assert_eq!(document, expected);
        let read = IssuerDiscovery::parse(document.as_bytes()).unwrap();
        assert_eq!(read, IssuerDiscovery::of_issuer(&issuer));
    }

    #[test]
    fn other_members_are_ignored_and_missing_members_accepted() {
        let read = IssuerDiscovery::parse(br#"{"claims_supported": ["sub"]}"#).unwrap();
        assert_eq!((read.issuer(), read.key_set_url()), (None, None));
        assert!(IssuerDiscovery::parse(b"<html>").is_err());
        assert!(IssuerDiscovery::parse(br#"{"issuer": 1}"#).is_err());
    }
}
