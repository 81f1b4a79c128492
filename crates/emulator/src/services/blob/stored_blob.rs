//! Blobs as stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::container::BlobMetadata;
use super::lease::Lease;
use super::store::BlobEtag;

/// A blob without its content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredBlob {
    pub(crate) created: Timestamp,
    pub(crate) last_modified: Timestamp,
    pub(crate) etag: BlobEtag,
    /// The type, which never changes.
    #[serde(default)]
    pub(crate) kind: BlobKind,
    /// The length of the content, in bytes.
    pub(crate) length: usize,
    #[serde(default)]
    pub(crate) properties: ContentProperties,
    #[serde(default)]
    pub(crate) metadata: BlobMetadata,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) lease: Lease,
    /// The committed blocks in order; empty if the blob was not uploaded in blocks.
    #[serde(default)]
    pub(crate) blocks: Vec<CommittedBlock>,
    /// The last copy to this blob.
    #[serde(default)]
    pub(crate) copy: Option<CompletedCopy>,
    /// The access tier, if a client set it.
    #[serde(default)]
    pub(crate) tier: Option<ExplicitTier>,
}

/// The type of a blob.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub(crate) enum BlobKind {
    #[default]
    Block,
    Append {
        /// The number of appended blocks.
        blocks: usize,
    },
}

impl BlobKind {
    /// The value of `x-ms-blob-type`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Block => "BlockBlob",
            Self::Append { .. } => "AppendBlob",
        }
    }

    /// The number of appended blocks of an append blob.
    pub(super) const fn appended_blocks(self) -> Option<usize> {
        match self {
            Self::Block => None,
            Self::Append { blocks } => Some(blocks),
        }
    }
}

/// The properties that the service returns as HTTP headers of the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContentProperties {
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) cache_control: Option<String>,
    /// The MD5 of the content, base64.
    pub(crate) content_md5: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommittedBlock {
    /// The id of the block, in base64 as sent.
    pub(crate) id: String,
    pub(crate) length: usize,
}

/// A copy; copies complete within the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompletedCopy {
    pub(crate) id: Uuid,
    /// The URL of the source, without a signature.
    pub(crate) source: String,
    pub(crate) completed: Timestamp,
    /// The number of copied bytes.
    pub(crate) length: usize,
}

/// An access tier that a client set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExplicitTier {
    pub(crate) tier: AccessTier,
    pub(crate) changed: Timestamp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AccessTier {
    #[default]
    Hot,
    Cool,
    Cold,
}

impl AccessTier {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hot => "Hot",
            Self::Cool => "Cool",
            Self::Cold => "Cold",
        }
    }

    /// The tier with this name, in any case.
    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Hot, Self::Cool, Self::Cold]
            .into_iter()
            .find(|tier| tier.name().eq_ignore_ascii_case(text))
    }
}

impl StoredBlob {
    /// The content type, `application/octet-stream` by default.
    pub(super) fn content_type(&self) -> &str {
        self.properties.content_type.as_deref().unwrap_or("application/octet-stream")
    }

    /// Records a change.
    pub(super) fn touch(&mut self, etag: BlobEtag, now: Timestamp) {
        (self.etag, self.last_modified) = (etag, now);
        self.lease = self.lease.after_write(now);
    }
}
