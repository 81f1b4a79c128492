//! Where secrets come from: the seam between reading a vault and making files.

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

/// A vault that can be read. [`crate::KeyVault`] is the one on Azure.
///
/// Where a version is not given, the current one is read.
#[async_trait]
pub trait VaultSource: fmt::Debug + Send + Sync {
    /// Reads a secret.
    async fn fetch_secret(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedSecret, VaultReadError>;

    /// Reads the public part of a key.
    async fn fetch_key(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedKey, VaultReadError>;

    /// Reads a certificate without its private key.
    async fn fetch_certificate(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedCertificate, VaultReadError>;

    /// Lists every version of an object, disabled ones too, in no particular order.
    async fn fetch_versions(
        &self,
        kind: VaultObjectKind,
        name: &SecretName,
    ) -> Result<Vec<ListedVersion>, VaultReadError>;
}

/// What a vault tells about a version of an object beside its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// Whether it may be read.
    pub enabled: Option<bool>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When its attributes changed last.
    pub updated: Option<Timestamp>,
    /// `nbf`. Reads do not enforce it.
    pub not_before: Option<Timestamp>,
    /// `exp`. Reads do not enforce it.
    pub expires: Option<Timestamp>,
    /// The tags that are read: the managed-identity data plane keeps `renew_after` and
    /// `cannot_renew_after` there. Others are dropped, and a listing has none.
    pub tags: BTreeMap<String, String>,
}

impl ObjectAttributes {
    /// The tag `renew_after`, where it is an RFC 3339 time.
    pub fn renew_after(&self) -> Option<Timestamp> {
        self.tags.get("renew_after")?.parse().ok()
    }

    /// How far the nearest renewal or expiry is from `now`, before or behind.
    pub(crate) fn time_to_nearest_change(&self, now: Timestamp) -> Option<Duration> {
        let times = [self.renew_after(), self.expires];
        times.into_iter().flatten().map(|time| time.duration_since(now).unsigned_abs()).min()
    }
}

/// A version of a secret.
#[derive(Debug)]
pub struct FetchedSecret {
    /// Which version it is.
    pub version: VaultObjectVersion,
    /// What the vault tells about it.
    pub attributes: ObjectAttributes,
    /// `contentType`.
    pub content_type: Option<String>,
    /// Whether it has a `kid`: it is the secret side of a certificate.
    pub is_certificate_secret: bool,
    /// The value, as text.
    pub value: SharedSecretBytes,
}

/// The public part of a version of a key.
#[derive(Debug)]
pub struct FetchedKey {
    /// Which version it is.
    pub version: VaultObjectVersion,
    /// What the vault tells about it.
    pub attributes: ObjectAttributes,
    /// The public part.
    pub key: PublicJwk,
}

/// A version of a certificate, without its private key.
#[derive(Debug)]
pub struct FetchedCertificate {
    /// Which version it is.
    pub version: VaultObjectVersion,
    /// What the vault tells about it.
    pub attributes: ObjectAttributes,
    /// The certificate, DER.
    pub der: Vec<u8>,
}

/// A version in a listing, which tells no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVersion {
    /// Which version it is.
    pub version: VaultObjectVersion,
    /// What the vault tells about it.
    pub attributes: ObjectAttributes,
}
