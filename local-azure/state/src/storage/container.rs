//! Containers as stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::blob_etag::BlobEtag;
use super::lease::Lease;

/// Metadata: the names are in lower case, as the HTTP library delivers them.
pub type BlobMetadata = BTreeMap<String, String>;

/// A container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BlobContainer {
    pub last_modified: Timestamp,
    pub etag: BlobEtag,
    #[serde(default)]
    pub metadata: BlobMetadata,
    #[serde(default)]
    pub public_access: PublicAccess,
    /// The stored access policies by id.
    #[serde(default)]
    pub policies: BTreeMap<String, StoredAccessPolicy>,
    #[serde(default)]
    pub lease: Lease,
}

/// What clients may read without authentication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublicAccess {
    #[default]
    None,
    /// Blobs.
    Blob,
    /// Blobs, and the list of blobs.
    Container,
}

impl PublicAccess {
    /// Parses the value of `x-ms-blob-public-access`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "blob" => Some(Self::Blob),
            // The value before 2009-09-19.
            "container" | "true" => Some(Self::Container),
            _ => None,
        }
    }

    /// The value of `x-ms-blob-public-access`; `None` without public access: no header is sent.
    pub const fn header_value(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Blob => Some("blob"),
            Self::Container => Some("container"),
        }
    }
}

/// A policy that shared access signatures refer to by its id. Fields are texts as in the signature.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAccessPolicy {
    #[serde(rename = "Start", default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(rename = "Expiry", default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<String>,
    #[serde(rename = "Permission", default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

impl BlobContainer {
    /// Creates an empty container.
    pub fn new(etag: BlobEtag, now: Timestamp) -> Self {
        Self {
            last_modified: now,
            etag,
            metadata: BlobMetadata::new(),
            public_access: PublicAccess::None,
            policies: BTreeMap::new(),
            lease: Lease::Available,
        }
    }

    /// State and status of the lease with an upper-case initial, as in Resource Manager.
    pub fn lease_state_and_status(&self, now: Timestamp) -> (String, String) {
        let capitalized = |text: &str| {
            let (first, rest) = text.split_at(1);
            first.to_ascii_uppercase() + rest
        };
        let state = self.lease.state_at(now);
        (capitalized(state.name()), capitalized(state.status()))
    }

    /// Records a change of properties or metadata.
    pub fn touch(&mut self, etag: BlobEtag, now: Timestamp) {
        (self.etag, self.last_modified) = (etag, now);
    }
}
