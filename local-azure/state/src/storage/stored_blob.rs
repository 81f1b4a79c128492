//! Blobs as stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::blob_etag::BlobEtag;
use super::container::BlobMetadata;
use super::lease::Lease;

/// A blob without its content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredBlob {
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub etag: BlobEtag,
    /// The type, which never changes.
    #[serde(default)]
    pub kind: BlobKind,
    /// The length of the content, in bytes.
    pub length: usize,
    #[serde(default)]
    pub properties: ContentProperties,
    #[serde(default)]
    pub metadata: BlobMetadata,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub lease: Lease,
    /// The committed blocks in order; empty if the blob was not uploaded in blocks.
    #[serde(default)]
    pub blocks: Vec<CommittedBlock>,
    /// The last copy to this blob.
    #[serde(default)]
    pub copy: Option<CompletedCopy>,
    /// The access tier, if a client set it.
    #[serde(default)]
    pub tier: Option<ExplicitTier>,
}

/// The type of a blob.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum BlobKind {
    #[default]
    Block,
    Append {
        /// The number of appended blocks.
        blocks: usize,
    },
}

impl BlobKind {
    /// The value of `x-ms-blob-type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "BlockBlob",
            Self::Append { .. } => "AppendBlob",
        }
    }

    /// The number of appended blocks of an append blob.
    pub const fn appended_blocks(self) -> Option<usize> {
        match self {
            Self::Block => None,
            Self::Append { blocks } => Some(blocks),
        }
    }
}

/// The properties that the service returns as HTTP headers of the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentProperties {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub content_disposition: Option<String>,
    pub cache_control: Option<String>,
    /// The MD5 of the content, base64.
    pub content_md5: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedBlock {
    /// The id of the block, in base64 as sent.
    pub id: String,
    pub length: usize,
}

/// A copy; copies complete within the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedCopy {
    pub id: Uuid,
    /// The URL of the source, without a signature.
    pub source: String,
    pub completed: Timestamp,
    /// The number of copied bytes.
    pub length: usize,
}

/// An access tier that a client set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplicitTier {
    pub tier: AccessTier,
    pub changed: Timestamp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessTier {
    #[default]
    Hot,
    Cool,
    Cold,
}

impl AccessTier {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "Hot",
            Self::Cool => "Cool",
            Self::Cold => "Cold",
        }
    }

    /// The tier with this name, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Hot, Self::Cool, Self::Cold]
            .into_iter()
            .find(|tier| tier.name().eq_ignore_ascii_case(text))
    }
}

impl StoredBlob {
    /// The content type, `application/octet-stream` by default.
    pub fn content_type(&self) -> &str {
        self.properties.content_type.as_deref().unwrap_or("application/octet-stream")
    }

    /// Records a change.
    pub fn touch(&mut self, etag: BlobEtag, now: Timestamp) {
        (self.etag, self.last_modified) = (etag, now);
        self.lease = self.lease.after_write(now);
    }
}
