//! One generation of a credential: everything that one version of the file says, ready for use.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use url::Url;
use uuid::Uuid;

use crate::assertion::{AssertionError, AssertionOptions, AssertionSigner, ClientAssertion};
use crate::bundle::{BundleError, CertificateBundle, CertificateValidity};
use crate::document::{CredentialDocument, CredentialTimestamps, DocumentError};
use crate::identity::{Authority, ClientId, TenantId};
use crate::secret::SecretText;

/// One version of a credential. It never changes; a rotation makes a new one.
#[derive(Debug)]
pub struct CredentialGeneration {
    number: u64,
    loaded_at: Timestamp,
    candidate: CredentialCandidate,
}

/// A version of the file that has been understood and not yet been accepted.
pub struct CredentialCandidate {
    tenant_id: TenantId,
    client_id: ClientId,
    authority: Authority,
    token_endpoint: Url,
    signer: AssertionSigner,
    timestamps: CredentialTimestamps,
    content_hash: ContentHash,
}

/// How a file becomes a [`CredentialCandidate`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CandidateOptions {
    /// How assertions are made.
    pub assertion: AssertionOptions,
    /// The password of PKCS#12 archives; the reference system knows none.
    pub pkcs12_password: Option<Arc<SecretText>>,
}

/// Why bytes are not a usable credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CandidateError {
    /// The JSON document is at fault.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The certificate bundle is at fault.
    #[error("`client_secret` cannot be used")]
    Bundle(#[from] BundleError),
    /// The key cannot be used to sign in.
    #[error("`client_secret` cannot be used to sign in")]
    Key(#[from] AssertionError),
}

impl CandidateError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Document(source) => source.hint(),
            Self::Bundle(source) => source.hint().to_owned(),
            Self::Key(source) => source.hint().to_owned(),
        }
    }
}

/// SHA-256 over the bytes of a file; tells versions apart and says nothing about them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of `bytes`.
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

impl CredentialCandidate {
    /// Reads a credential document and the bundle in it.
    ///
    /// # Errors
    ///
    /// [`CandidateError`], with the part that is at fault.
    pub fn parse(bytes: &[u8], options: &CandidateOptions) -> Result<Self, CandidateError> {
        let document = CredentialDocument::parse(bytes)?;
        let password = options.pkcs12_password.as_deref();
        let bundle = CertificateBundle::parse_with_password(document.client_secret(), password)?;
        let signer = AssertionSigner::new(bundle, options.assertion)?;
        let authority = document.authentication_endpoint().clone();
        let tenant_id = document.tenant_id().clone();
        Ok(Self {
            token_endpoint: authority.token_endpoint(&tenant_id),
            client_id: document.client_id().clone(),
            timestamps: *document.timestamps(),
            content_hash: ContentHash::of(bytes),
            tenant_id,
            authority,
            signer,
        })
    }

    /// The four times of the document.
    pub fn timestamps(&self) -> &CredentialTimestamps {
        &self.timestamps
    }

    /// The hash of the file it came from.
    pub fn content_hash(&self) -> ContentHash {
        self.content_hash
    }
}

impl CredentialGeneration {
    pub(crate) fn new(number: u64, candidate: CredentialCandidate, loaded_at: Timestamp) -> Self {
        Self { number, loaded_at, candidate }
    }

    /// Counts the generations of one file, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The tenant to sign in to.
    pub fn tenant_id(&self) -> &TenantId {
        &self.candidate.tenant_id
    }

    /// The identity to sign in as.
    pub fn client_id(&self) -> &ClientId {
        &self.candidate.client_id
    }

    /// The base URL of the token service.
    pub fn authority(&self) -> &Url {
        self.candidate.authority.as_url()
    }

    /// The v2 token endpoint, made from authority and tenant without discovery.
    pub fn token_endpoint(&self) -> &Url {
        &self.candidate.token_endpoint
    }

    /// The certificates and the kind of key.
    pub fn bundle(&self) -> &CertificateBundle {
        self.candidate.signer.bundle()
    }

    /// The four times of the document.
    pub fn timestamps(&self) -> &CredentialTimestamps {
        &self.candidate.timestamps
    }

    /// From when the document says the credential may be used.
    pub fn not_before(&self) -> Timestamp {
        self.candidate.timestamps.not_before
    }

    /// Until when the document says the credential may be used, if it says so.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.candidate.timestamps.not_after
    }

    /// When the leaf certificate may be used.
    pub fn certificate_validity(&self) -> CertificateValidity {
        self.bundle().leaf().validity()
    }

    /// The last moment at which it can work: the end of the document's or of the certificate's
    /// time, whichever comes first.
    pub fn expires_at(&self) -> Timestamp {
        let certificate = self.certificate_validity().not_after;
        self.not_after().map_or(certificate, |stamp| stamp.min(certificate))
    }

    /// The hash of the file it came from.
    pub fn content_hash(&self) -> ContentHash {
        self.candidate.content_hash
    }

    /// When it was loaded.
    pub fn loaded_at(&self) -> Timestamp {
        self.loaded_at
    }

    /// Whether tokens of `other` are tokens of this one: same identity at the same authority.
    pub fn is_same_identity(&self, other: &Self) -> bool {
        self.client_id() == other.client_id() && self.token_endpoint() == other.token_endpoint()
    }

    /// Signs an assertion that is valid from a minute before `now` to ten minutes after it.
    ///
    /// # Errors
    ///
    /// [`AssertionError::Signing`] if the crypto library refuses.
    pub fn client_assertion(
        &self,
        now: Timestamp,
        jti: Uuid,
    ) -> Result<ClientAssertion, AssertionError> {
        self.client_assertion_for(self.token_endpoint(), now, jti)
    }

    /// Signs an assertion for another endpoint of the same authority: that of another tenant.
    pub(crate) fn client_assertion_for(
        &self,
        endpoint: &Url,
        now: Timestamp,
        jti: Uuid,
    ) -> Result<ClientAssertion, AssertionError> {
        self.candidate.signer.sign(self.client_id(), endpoint, now, jti)
    }

    /// The v2 token endpoint of another tenant at the same authority.
    pub(crate) fn token_endpoint_of(&self, tenant: &TenantId) -> Url {
        self.candidate.authority.token_endpoint(tenant)
    }
}

impl fmt::Debug for CredentialCandidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Candidate")
            .field("client_id", &self.client_id)
            .field("token_endpoint", &self.token_endpoint.as_str())
            .field("bundle", self.signer.bundle())
            .field("stamps", &self.timestamps)
            .field("content_hash", &self.content_hash)
            .finish_non_exhaustive()
    }
}
