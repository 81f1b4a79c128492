//! The source of vault objects: the interface between reading a vault and creating files.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::{VaultObjectKind, VaultObjectVersion};
use lanyard_vocabulary::SecretName;

use crate::error::VaultReadError;
use crate::public_key::PublicJwk;
use crate::secret_bytes::SharedSecretBytes;

/// A readable vault. [`crate::KeyVault`] is the implementation for Azure.
///
/// Without a version, the methods read the current one.
#[async_trait]
pub trait VaultSource: fmt::Debug + Send + Sync {
    /// Fetches a secret.
    async fn fetch_secret(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedSecret, VaultReadError>;

    /// Fetches the public part of a key.
    async fn fetch_key(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedKey, VaultReadError>;

    /// Fetches a certificate without its private key.
    async fn fetch_certificate(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedCertificate, VaultReadError>;

    /// Lists every version of an object, including disabled ones, in no particular order.
    async fn fetch_versions(
        &self,
        kind: VaultObjectKind,
        name: &SecretName,
    ) -> Result<Vec<ListedVersion>, VaultReadError>;
}

/// The attributes of an object version in a vault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// Whether the version is enabled.
    pub enabled: Option<bool>,
    /// When the version was created.
    pub created: Option<Timestamp>,
    /// When the attributes were last changed.
    pub updated: Option<Timestamp>,
    /// The `nbf` attribute. Reads do not enforce it.
    pub not_before: Option<Timestamp>,
    /// The `exp` attribute. Reads do not enforce it.
    pub expires: Option<Timestamp>,
    /// The tags that the project uses: the managed-identity data plane stores `renew_after` and
    /// `cannot_renew_after` in them. Other tags are dropped, and lists contain none.
    pub tags: BTreeMap<String, String>,
}

impl ObjectAttributes {
    /// The tag `renew_after`, if it is an RFC 3339 timestamp.
    pub fn renew_after(&self) -> Option<Timestamp> {
        self.tags.get("renew_after")?.parse().ok()
    }

    /// The distance of the nearest renewal or expiry time from `now`, in the future or past.
    pub(crate) fn time_to_nearest_change(&self, now: Timestamp) -> Option<Duration> {
        let times = [self.renew_after(), self.expires];
        times.into_iter().flatten().map(|time| time.duration_since(now).unsigned_abs()).min()
    }
}

/// A version of a secret.
#[derive(Debug)]
pub struct FetchedSecret {
    /// The version of the object.
    pub version: VaultObjectVersion,
    /// The attributes of the version.
    pub attributes: ObjectAttributes,
    /// The value of `contentType`.
    pub content_type: Option<String>,
    /// Whether the secret has a `kid`, that is, belongs to a certificate.
    pub is_certificate_secret: bool,
    /// The value as text.
    pub value: SharedSecretBytes,
}

/// The public part of a version of a key.
#[derive(Debug)]
pub struct FetchedKey {
    /// The version of the object.
    pub version: VaultObjectVersion,
    /// The attributes of the version.
    pub attributes: ObjectAttributes,
    /// The public part.
    pub key: PublicJwk,
}

/// A version of a certificate, without its private key.
#[derive(Debug)]
pub struct FetchedCertificate {
    /// The version of the object.
    pub version: VaultObjectVersion,
    /// The attributes of the version.
    pub attributes: ObjectAttributes,
    /// The certificate in DER.
    pub der: Vec<u8>,
}

/// A version in a list, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVersion {
    /// The version of the object.
    pub version: VaultObjectVersion,
    /// The attributes of the version.
    pub attributes: ObjectAttributes,
}

/// An object of any type that was fetched from a vault.
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchedVaultObject {
    Secret(FetchedSecret),
    /// The public part of a key.
    Key(FetchedKey),
    /// A certificate without its private key.
    Certificate(FetchedCertificate),
}

impl FetchedVaultObject {
    /// Whether this is the secret of a certificate: its chain and private key.
    pub fn is_certificate_secret(&self) -> bool {
        matches!(self, Self::Secret(secret) if secret.is_certificate_secret)
    }

    /// The version of the object.
    pub fn version(&self) -> &VaultObjectVersion {
        match self {
            Self::Secret(secret) => &secret.version,
            Self::Key(key) => &key.version,
            Self::Certificate(certificate) => &certificate.version,
        }
    }

    /// The attributes of the version.
    pub fn attributes(&self) -> &ObjectAttributes {
        match self {
            Self::Secret(secret) => &secret.attributes,
            Self::Key(key) => &key.attributes,
            Self::Certificate(certificate) => &certificate.attributes,
        }
    }
}
