//! The memory of the node that reads take, asked for before they take it.
//!
//! What a class asks for is chosen by its tenant, and the memory of the process is that of all
//! tenants. So nothing is read, decoded or cached that was not accounted for first.

use std::fmt;

use async_trait::async_trait;
use lanyard_api::VaultObjectEntry;
use lanyard_vocabulary::ObjectEncoding;

use crate::fetch::FetchedVaultObject;
use crate::source::ListedVersion;

/// The memory that one volume takes while it is read and decoded.
///
/// The implementation releases every reservation of a volume when the volume is written or refused, so
/// callers need no clean-up on errors or cancellation.
#[async_trait]
pub trait ReadMemory: fmt::Debug + Send + Sync {
    /// Waits until `room` bytes more may be held. [`ReadMemory::end`] follows as soon as it is known
    /// how many of them are in use.
    ///
    /// # Errors
    ///
    /// Where waiting is of no use, or took too long.
    async fn reserve_read_memory(&self, room: u64) -> Result<(), MemoryExhausted>;

    /// Gives back all of `room` but the `kept` bytes that stay in use.
    fn finish_read(&self, room: u64, kept: u64);

    /// How many bytes more may be held at most, if all others gave back theirs.
    fn max_read_reservation(&self) -> u64;

    /// How many bytes a file of `length` bytes takes of the node's memory once it is mounted.
    fn mounted_size(&self, length: u64) -> u64;

    /// Checks a volume whose files take at least `size` bytes once they are mounted.
    ///
    /// # Errors
    ///
    /// Where it could not be mounted though nothing else were on the node.
    fn check_volume_fits(&self, size: u64) -> Result<(), MemoryExhausted>;
}

/// The memory of a cache: what values take that are kept for the next reader.
pub trait CacheMemory: fmt::Debug + Send + Sync {
    /// How many bytes the cache may hold.
    fn limit_bytes(&self) -> u64;

    /// Takes `bytes` for the cache.
    ///
    /// # Errors
    ///
    /// If there is no room. Nothing is taken then.
    fn reserve_cache_memory(&self, bytes: u64) -> Result<(), CacheReserveError>;

    /// Gives bytes back.
    fn release_cache_memory(&self, bytes: u64);
}

/// Why a cache was refused memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheReserveError {
    /// The cache would exceed its own limit. Evicting older entries of this cache helps.
    #[error("the cache would exceed its own limit")]
    CacheFull,
    /// The node has no memory left for caches. Evicting entries of this cache does not help:
    /// a waiting read or a new volume would take the freed bytes.
    #[error("the node has no memory left for caches")]
    NodeFull,
}

/// There is no memory for what a class asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MemoryExhausted {
    /// What was needed and what there is.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Whether it would not fit though nothing else were on the node.
    pub exceeds_node_capacity: bool,
}

/// Memory without a limit, for programs that read on behalf of one owner.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnlimitedMemory;

#[async_trait]
impl ReadMemory for UnlimitedMemory {
    async fn reserve_read_memory(&self, _: u64) -> Result<(), MemoryExhausted> {
        Ok(())
    }

    fn finish_read(&self, _: u64, _: u64) {}

    fn max_read_reservation(&self) -> u64 {
        u64::MAX
    }

    fn mounted_size(&self, length: u64) -> u64 {
        length
    }

    fn check_volume_fits(&self, _: u64) -> Result<(), MemoryExhausted> {
        Ok(())
    }
}

impl CacheMemory for UnlimitedMemory {
    fn limit_bytes(&self) -> u64 {
        u64::MAX
    }

    fn reserve_cache_memory(&self, _: u64) -> Result<(), CacheReserveError> {
        Ok(())
    }

    fn release_cache_memory(&self, _: u64) {}
}

/// What a value takes in memory, in bytes: its content, and what is known about it.
pub(crate) trait MemoryFootprint {
    fn footprint_bytes(&self) -> u64;
}

impl MemoryFootprint for FetchedVaultObject {
    fn footprint_bytes(&self) -> u64 {
        let content = match self {
            Self::Secret(secret) => secret.value.len(),
            Self::Certificate(certificate) => certificate.der.len(),
            Self::Key(_) => MAX_KEY_BYTES,
        };
        saturating_u64(content).saturating_add(OBJECT_OVERHEAD_BYTES)
    }
}

impl MemoryFootprint for Vec<ListedVersion> {
    fn footprint_bytes(&self) -> u64 {
        saturating_u64(self.capacity())
            .saturating_mul(LISTED_VERSION_BYTES)
            .saturating_add(OBJECT_OVERHEAD_BYTES)
    }
}

/// What decoding an object for an entry takes at most, in bytes: what comes out, and what lies
/// beside it meanwhile.
pub(crate) fn max_decoding_bytes(entry: &VaultObjectEntry, object: &FetchedVaultObject) -> u64 {
    let (length, times) = match object {
        FetchedVaultObject::Secret(secret) if secret.is_certificate_secret => {
            (secret.value.len(), 8)
        }
        FetchedVaultObject::Secret(secret) => match entry.encoding {
            // The value itself.
            None | Some(ObjectEncoding::Utf8) => return 0,
            Some(_) => (secret.value.len(), 2),
        },
        FetchedVaultObject::Certificate(certificate) => (certificate.der.len(), 4),
        FetchedVaultObject::Key(_) => (MAX_KEY_BYTES, 4),
    };
    saturating_u64(length).saturating_mul(times).saturating_add(OBJECT_OVERHEAD_BYTES)
}

pub(crate) fn saturating_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The largest answer for one object that is read, in bytes. A value has 25 KB at most (Key Vault's
/// service limits); JSON may write a byte of text in three, and tags follow.
pub(crate) const MAX_OBJECT_RESPONSE_BYTES: usize = 96 * 1024;
/// The largest page of a list of versions that is read, in bytes: 25 versions with their tags.
pub(crate) const MAX_LIST_PAGE_BYTES: usize = 512 * 1024;
/// The most versions of one object that are looked at, the newest.
pub(crate) const MAX_LISTED_VERSIONS: usize = 2_048;
/// What reading an object takes: the answer, and the value that is parsed from it.
pub(crate) const OBJECT_READ_BYTES: u64 = 128 * 1024;
/// What reading a list of versions takes: a page, and the versions of all pages.
pub(crate) const VERSION_LIST_BYTES: u64 = 1024 * 1024;
/// What a file takes beside its content until it is written: its paths, ids, times and places in
/// lists.
pub(crate) const FILE_OVERHEAD_BYTES: u64 = 1024;
/// What an object takes beside its content: version, times, tags and places in maps.
const OBJECT_OVERHEAD_BYTES: u64 = 1024;
const LISTED_VERSION_BYTES: u64 = 240;
const MAX_KEY_BYTES: usize = 1024;
