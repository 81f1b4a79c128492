//! Containers as stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::lease::Lease;
use super::store::BlobEtag;

/// Metadata: the names are in lower case, as the HTTP library delivers them.
pub(crate) type BlobMetadata = BTreeMap<String, String>;

/// A container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BlobContainer {
    pub(crate) last_modified: Timestamp,
    pub(crate) etag: BlobEtag,
    #[serde(default)]
    pub(crate) metadata: BlobMetadata,
    #[serde(default)]
    pub(crate) public_access: PublicAccess,
    /// The stored access policies by id.
    #[serde(default)]
    pub(crate) policies: BTreeMap<String, StoredAccessPolicy>,
    #[serde(default)]
    pub(crate) lease: Lease,
}

/// What clients may read without authentication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PublicAccess {
    #[default]
    None,
    /// Blobs.
    Blob,
    /// Blobs, and the list of blobs.
    Container,
}

impl PublicAccess {
    /// Parses the value of `x-ms-blob-public-access`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "blob" => Some(Self::Blob),
            // The value before 2009-09-19.
            "container" | "true" => Some(Self::Container),
            _ => None,
        }
    }

    /// The value of `x-ms-blob-public-access`; there is no header without public access.
    pub(crate) const fn header_value(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Blob => Some("blob"),
            Self::Container => Some("container"),
        }
    }
}

/// A policy that shared access signatures refer to by its id. Fields are texts as in the signature.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredAccessPolicy {
    #[serde(rename = "Start", default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<String>,
    #[serde(rename = "Expiry", default, skip_serializing_if = "Option::is_none")]
    pub(crate) expiry: Option<String>,
    #[serde(rename = "Permission", default, skip_serializing_if = "Option::is_none")]
    pub(crate) permission: Option<String>,
}

impl BlobContainer {
    /// Creates an empty container.
    pub(crate) fn new(etag: BlobEtag, now: Timestamp) -> Self {
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
    pub(crate) fn lease_state_and_status(&self, now: Timestamp) -> (String, String) {
        let capitalized = |text: &str| {
            let (first, rest) = text.split_at(1);
            first.to_ascii_uppercase() + rest
        };
        let state = self.lease.state_at(now);
        (capitalized(state.name()), capitalized(state.status()))
    }

    /// Records a change of properties or metadata.
    pub(crate) fn touch(&mut self, etag: BlobEtag, now: Timestamp) {
        (self.etag, self.last_modified) = (etag, now);
    }
}
