//! Memory accounting for reads.
//!
//! A tenant chooses the objects of a class, and all tenants share the memory of the process. So memory is
//! reserved before an object is read, decoded or cached.

use std::fmt;

use async_trait::async_trait;
use lanyard_api::VaultObjectEntry;
use lanyard_vocabulary::ObjectEncoding;

use crate::source::{FetchedVaultObject, ListedVersion};

/// The memory account of one volume while it is read and decoded.
///
/// The implementation releases all reservations of a volume when the volume is written or rejected, so
/// callers need no clean-up after errors or cancellation.
#[async_trait]
pub trait ReadMemory: fmt::Debug + Send + Sync {
    /// Waits until `room` more bytes are available and reserves them. The caller calls
    /// [`ReadMemory::finish_read`] as soon as the actual size is known.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes cannot become available, or after a timeout.
    async fn reserve_read_memory(&self, room: u64) -> Result<(), MemoryExhausted>;

    /// Releases all of `room` except `retained` bytes that stay in use.
    fn finish_read(&self, room: u64, retained: u64);

    /// Keeps all reservations of the volume until the returned value is dropped, for work on another thread, which
    /// continues if its caller is cancelled.
    fn hold_reservations(&self) -> Box<dyn Send>;

    /// The maximum number of bytes that could be reserved if all other volumes released theirs.
    fn max_read_reservation(&self) -> u64;

    /// The memory of the node that a mounted file of `length` bytes takes.
    fn mounted_size(&self, length: u64) -> u64;

    /// Checks a volume whose mounted files take at least `size` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the volume would not even fit on an empty node.
    fn check_volume_fits(&self, size: u64) -> Result<(), MemoryExhausted>;
}

/// The memory account of a cache.
pub trait CacheMemory: fmt::Debug + Send + Sync {
    /// The size limit of the cache in bytes.
    fn limit_bytes(&self) -> u64;

    /// Reserves `bytes` for the cache.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory. Nothing is reserved then.
    fn reserve_cache_memory(&self, bytes: u64) -> Result<(), CacheReserveError>;

    /// Releases `bytes`.
    fn release_cache_memory(&self, bytes: u64);
}

/// The reason why a cache reservation failed.
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

/// There is not enough memory for the objects of a SecretProviderClass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MemoryExhausted {
    /// The required and the available memory, as a message.
    pub message: String,
    /// Advises what to do next.
    pub hint: String,
    /// Whether the volume would not even fit on an empty node.
    pub exceeds_node_capacity: bool,
}

/// A memory account without a limit, for programs with a single owner.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnlimitedMemory;

#[async_trait]
impl ReadMemory for UnlimitedMemory {
    async fn reserve_read_memory(&self, _: u64) -> Result<(), MemoryExhausted> {
        Ok(())
    }

    fn finish_read(&self, _: u64, _: u64) {}

    fn hold_reservations(&self) -> Box<dyn Send> {
        Box::new(())
    }

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

/// The memory of a value in bytes: its content and its metadata.
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

/// The maximum memory for decoding an object for an entry, in bytes: the result and temporary buffers.
pub(crate) fn max_decoding_bytes(
    entry: &VaultObjectEntry,
    object: &FetchedVaultObject,
    converts_archive: bool,
) -> u64 {
    let (length, times) = match object {
        FetchedVaultObject::Secret(secret) if converts_archive => {
            (secret.value.len(), ARCHIVE_FACTOR)
        }
        FetchedVaultObject::Secret(secret) if secret.is_certificate_secret => {
            (secret.value.len(), CERTIFICATE_SECRET_FACTOR)
        }
        FetchedVaultObject::Secret(secret) => match entry.encoding {
            // The value's own buffer is used.
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

/// The maximum size of the response for one object, in bytes. A value has at most 25 KB (Key Vault's service
/// limits); JSON may need three bytes for one byte of text, and tags follow.
pub(crate) const MAX_OBJECT_RESPONSE_BYTES: usize = 96 * 1024;
/// The maximum size of a page of a version list, in bytes: 25 versions with their tags.
pub(crate) const MAX_LIST_PAGE_BYTES: usize = 512 * 1024;
/// The maximum number of versions of one object, the newest ones.
pub(crate) const MAX_LISTED_VERSIONS: usize = 2_048;
/// The memory for reading an object, in bytes: the response, and the parsed value.
pub(crate) const OBJECT_READ_BYTES: u64 = 128 * 1024;
/// The memory for reading a version list, in bytes: one page, and the versions of all pages.
pub(crate) const VERSION_LIST_BYTES: u64 = 1024 * 1024;
/// The memory of a file besides its content until it is written, in bytes: paths, ids, timestamps and list
/// entries.
pub(crate) const FILE_OVERHEAD_BYTES: u64 = 1024;
/// The memory of an object besides its content, in bytes: version, timestamps, tags and map entries.
const OBJECT_OVERHEAD_BYTES: u64 = 1024;
const LISTED_VERSION_BYTES: u64 = 240;
/// The memory for converting an archive, as a multiple of its length: the smallest names and extensions of a
/// certificate take 40 times the bytes of their encoding while they are parsed.
const ARCHIVE_FACTOR: u64 = 64;
/// The memory for decoding another secret of a certificate, as a multiple of its length.
const CERTIFICATE_SECRET_FACTOR: u64 = 8;
const MAX_KEY_BYTES: usize = 1024;
