//! A credential generation: the parsed content of one version of the credential file.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use lanyard_clock::ErrorHint;
use url::Url;

use crate::assertion::{AssertionError, AssertionOptions, AssertionSigner};
use crate::bundle::{BundleError, CertificateBundle, CertificateValidity};
use crate::document::{CredentialDocument, CredentialTimestamps, DocumentError};
use crate::identity::{ClientId, EntraApplication, TenantId};
use crate::secret::SecretText;

/// One immutable version of a credential. A rotation creates a new generation.
#[derive(Debug)]
pub struct CredentialGeneration {
    number: u64,
    loaded_at: Timestamp,
    credential: ParsedCredential,
}

/// The parsed content of a credential file: identity, authority and signing key.
pub struct ParsedCredential {
    application: EntraApplication,
    signer: AssertionSigner,
    timestamps: CredentialTimestamps,
    content_hash: ContentHash,
}

/// Options for parsing a file into a [`ParsedCredential`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ParseCredentialOptions {
    /// Options for client assertions.
    pub assertion: AssertionOptions,
    /// The password of PKCS#12 archives. The reference system does not support one.
    pub pkcs12_password: Option<Arc<SecretText>>,
}

/// Errors of parsing a credential file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCredentialError {
    /// The JSON document is invalid.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The certificate bundle is invalid.
    #[error("`client_secret` cannot be used")]
    Bundle(#[from] BundleError),
    /// The key cannot sign client assertions.
    #[error("`client_secret` cannot be used to sign in")]
    Key(#[from] AssertionError),
}

impl ErrorHint for ParseCredentialError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Document(source) => source.hint(),
            Self::Bundle(source) => source.hint(),
            Self::Key(source) => source.hint(),
        }
    }
}

/// The SHA-256 digest of a file's bytes. It distinguishes versions and reveals no content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(hash)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl ParsedCredential {
    /// Parses a credential document and its bundle.
    ///
    /// # Errors
    ///
    /// Returns a [`ParseCredentialError`] that names the invalid part.
    pub fn parse(
        bytes: &[u8],
        options: &ParseCredentialOptions,
    ) -> Result<Self, ParseCredentialError> {
        let document = CredentialDocument::parse(bytes)?;
        let password = options.pkcs12_password.as_deref();
        let bundle = CertificateBundle::parse_with_password(document.client_secret(), password)?;
        let signer = AssertionSigner::new(bundle, options.assertion)?;
        let (tenant, client) = (document.tenant_id().clone(), document.client_id().clone());
        let authority = document.authentication_endpoint().clone();
        Ok(Self {
            application: EntraApplication::new(tenant, client, authority),
            timestamps: *document.timestamps(),
            content_hash: ContentHash::of(bytes),
            signer,
        })
    }

    /// The four timestamps of the document.
    pub fn timestamps(&self) -> &CredentialTimestamps {
        &self.timestamps
    }

    /// The hash of the file that the credential was parsed from.
    pub fn content_hash(&self) -> ContentHash {
        self.content_hash
    }
}

impl CredentialGeneration {
    pub(crate) fn new(number: u64, credential: ParsedCredential, loaded_at: Timestamp) -> Self {
        Self { number, loaded_at, credential }
    }

    /// The sequence number of the generation within its file, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The tenant of the identity.
    pub fn tenant_id(&self) -> &TenantId {
        &self.credential.application.tenant
    }

    /// The application (client) id of the identity.
    pub fn client_id(&self) -> &ClientId {
        &self.credential.application.client
    }

    /// The base URL of the token service.
    pub fn authority(&self) -> &Url {
        self.credential.application.authority.as_url()
    }

    /// The v2 token endpoint, built from authority and tenant without discovery.
    pub fn token_endpoint(&self) -> &Url {
        &self.credential.application.token_endpoint
    }

    /// The certificates and the private key.
    pub fn bundle(&self) -> &CertificateBundle {
        self.credential.signer.bundle()
    }

    /// The four timestamps of the document.
    pub fn timestamps(&self) -> &CredentialTimestamps {
        &self.credential.timestamps
    }

    /// The start of validity in the document.
    pub fn not_before(&self) -> Timestamp {
        self.credential.timestamps.not_before
    }

    /// The end of validity in the document, if present.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.credential.timestamps.not_after
    }

    /// The validity period of the leaf certificate.
    pub fn certificate_validity(&self) -> CertificateValidity {
        self.bundle().leaf().validity()
    }

    /// The end of the document's or of the certificate's validity, whichever is earlier.
    pub fn expires_at(&self) -> Timestamp {
        let certificate = self.certificate_validity().not_after;
        self.not_after().map_or(certificate, |stamp| stamp.min(certificate))
    }

    /// The hash of the file that the generation was parsed from.
    pub fn content_hash(&self) -> ContentHash {
        self.credential.content_hash
    }

    /// When the generation was loaded.
    pub fn loaded_at(&self) -> Timestamp {
        self.loaded_at
    }

    /// Whether tokens of `other` are also valid for this generation: same identity and same authority.
    pub fn is_same_identity(&self, other: &Self) -> bool {
        self.client_id() == other.client_id() && self.token_endpoint() == other.token_endpoint()
    }

    pub(crate) fn application(&self) -> &EntraApplication {
        &self.credential.application
    }

    pub(crate) fn signer(&self) -> &AssertionSigner {
        &self.credential.signer
    }
}

impl fmt::Debug for ParsedCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ParsedCredential")
            .field("client_id", &self.application.client)
            .field("token_endpoint", &self.application.token_endpoint.as_str())
            .field("bundle", self.signer.bundle())
            .field("stamps", &self.timestamps)
            .field("content_hash", &self.content_hash)
            .finish_non_exhaustive()
    }
}
