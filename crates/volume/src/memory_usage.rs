//! The memory that a volume uses and needs, and the request to grow.
//!
//! The accounting of a node counts the actual usage of each volume, not the size limit of its
//! tmpfs. That limit assumes the largest page size of any machine for every file, and would reject
//! volumes ten times too early. One `statvfs` call returns the usage of a tmpfs, including retired
//! generations and the marker.

use std::borrow::Cow;
use std::fmt;

use lanyard_clock::ErrorHint;
use rustix::fs::StatVfs;

use crate::file_path::FilePath;

/// The memory usage of a tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TmpfsUsage {
    /// The bytes in use: its pages, and the kernel memory of its inodes. Retired generations keep
    /// their inodes as long as the volume exists.
    pub used: u64,
    /// The part of `used` for inodes.
    pub(crate) inode_bytes: u64,
    /// The page size, in bytes.
    pub(crate) page_size: u64,
}

impl TmpfsUsage {
    /// Returns the usage in the result of `statvfs`.
    pub fn of(stat: &StatVfs) -> Self {
        let page_size = stat.f_frsize.max(1);
        let pages = stat.f_blocks.saturating_sub(stat.f_bfree);
        let inodes = stat.f_files.saturating_sub(stat.f_ffree);
        let inode_bytes = inodes.saturating_mul(INODE_BYTES);
        Self {
            used: pages.saturating_mul(page_size).saturating_add(inode_bytes),
            inode_bytes,
            page_size,
        }
    }
}

/// Returns the maximum memory of a generation with these files (path, length) and its marker, in
/// bytes. `page` is the page size.
pub fn max_generation_size<'a>(
    files: impl IntoIterator<Item = (&'a FilePath, u64)>,
    page: u64,
) -> u64 {
    let of_inodes =
        |count: usize| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(INODE_BYTES);
    let of_file = |(path, length): (&FilePath, u64)| {
        let link = if path.top_level_name().len() > MAX_INLINE_LINK_BYTES { page } else { 0 };
        // The file, each directory above it, and the link to it.
        let inodes = of_inodes(path.components().count().saturating_add(1));
        length.div_ceil(page).saturating_mul(page).saturating_add(link).saturating_add(inodes)
    };
    let (mut count, mut bytes) = (0_usize, of_inodes(LAYOUT_INODES));
    for file in files {
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(of_file(file));
    }
    bytes.saturating_add(max_marker_size(count))
}

/// Returns the minimum memory of a file of this length, in bytes, anywhere in a volume.
pub fn min_file_size(length: u64) -> u64 {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(1);
    let content = length.div_ceil(page).saturating_mul(page);
    content.saturating_add(2 * INODE_BYTES).saturating_add(MARKER_BYTES_PER_OBJECT)
}

/// Returns the maximum memory that the next marker needs in addition to the current one, in bytes,
/// for a volume with this many files. The marker lists every object, and each object has a file.
pub(crate) fn max_marker_size(files: usize) -> u64 {
    let objects = u64::try_from(files).unwrap_or(u64::MAX).saturating_mul(MARKER_BYTES_PER_OBJECT);
    MARKER_BASE_BYTES.saturating_add(objects)
}

/// The reason why a volume needs more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPurpose {
    /// A new volume that no pod uses yet.
    Mount,
    /// An update of a mounted volume.
    Rotation,
}

/// The usage of a volume and its planned growth, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthRequest {
    /// The current usage.
    pub used: u64,
    /// The usage after the retired generations are scrubbed.
    pub used_after_scrub: u64,
    /// The most memory that the volume needs while it grows.
    pub needed: u64,
    /// The size of the response, which stays in memory until it is written.
    pub read_bytes: u64,
    /// Why the volume grows.
    pub purpose: MemoryPurpose,
}

impl GrowthRequest {
    /// Whether the volume uses more than twice its content. The excess is the inodes of retired
    /// generations, which it keeps as long as it exists.
    pub const fn has_excess_generations(self) -> bool {
        matches!(self.purpose, MemoryPurpose::Rotation) && self.used > self.needed.saturating_mul(2)
    }
}

/// The memory budget of a volume.
pub trait MemoryBudget {
    /// Claims memory before anything is written.
    ///
    /// # Errors
    ///
    /// Fails if all volumes together would exceed the limit. Then nothing was claimed.
    fn claim(&self, growth: GrowthRequest) -> Result<(), VolumesMemoryLimitError>;
}

/// A volume would exceed the memory limit of all volumes of the node (`--volumes-memory-limit`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} up to {}{}; the volumes of this node{} use {}, and the limit is {}{}",
    if *during_read { "reading it needs" } else { "it needs" },
    ByteAmount(*needed),
    if *can_never_fit && *purpose == MemoryPurpose::Mount && !during_read {
        ", and the same amount again to rotate"
    } else {
        ""
    },
    if *during_read { " and the responses read for them" } else { "" },
    ByteAmount(*used),
    ByteAmount(*limit),
    match purpose {
        MemoryPurpose::Mount if !can_never_fit => " for new volumes: the rest is reserved for rotations",
        MemoryPurpose::Rotation if *has_excess_generations => {
            " for a volume with so many retired generations: the rest is reserved for others"
        }
        MemoryPurpose::Mount | MemoryPurpose::Rotation => "",
    }
)]
pub struct VolumesMemoryLimitError {
    /// Why the volume grows.
    pub purpose: MemoryPurpose,
    /// The most memory that the volume needs, in bytes.
    pub needed: u64,
    /// The memory of all volumes of the node, this one included, in bytes.
    pub used: u64,
    /// The limit of all volumes for this purpose, in bytes.
    pub limit: u64,
    /// Whether the volume would not fit on an otherwise empty node.
    pub can_never_fit: bool,
    /// Whether the volume may not use the share of rotations, because its retired generations use
    /// more memory than its content.
    pub has_excess_generations: bool,
    /// Whether the error occurred while objects were read, before the size of the files was known.
    pub during_read: bool,
}

impl ErrorHint for VolumesMemoryLimitError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(if self.has_excess_generations {
            "restart the pod: a volume keeps the inodes of every retired generation as long as it \
             exists; or give the node plugin more memory \
             (`linux.resources.limits.memory` of the chart, or `--volumes-memory-limit`)"
        } else if self.can_never_fit {
            "ask for fewer or smaller objects in the SecretProviderClass, or give the node plugin \
             more memory: `linux.resources.limits.memory` of the chart, or `--volumes-memory-limit`"
        } else {
            "give the node plugin more memory (`linux.resources.limits.memory` of the chart, or \
             `--volumes-memory-limit`), ask for fewer or smaller objects, or spread the pods over \
             more nodes; `lanyard_node_volumes_memory_bytes` shows the usage by class"
        }))
    }
}

/// Formats a number of bytes for messages.
#[derive(Debug, Clone, Copy)]
pub struct ByteAmount(pub u64);

impl fmt::Display for ByteAmount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        if bytes < MEBIBYTE {
            return write!(formatter, "{} KiB", bytes.div_ceil(1024));
        }
        let tenths = bytes % MEBIBYTE * 10 / MEBIBYTE;
        write!(formatter, "{}.{tenths} MiB", bytes / MEBIBYTE)
    }
}

/// The kernel memory of an inode and its directory entry, as the kernel estimates it
/// (`BOGO_INODE_SIZE` of `mm/shmem.c`, 1024 since Linux 6.6; actually some 950 bytes). It is
/// charged like pages.
const INODE_BYTES: u64 = 1024;

/// The inodes of a volume without files: the root, the directories of the generation and the
/// marker, the marker and the next one, `..data` and the next one, and a spare one.
const LAYOUT_INODES: usize = 8;

/// The size of a marker without objects, in bytes. Most markers fit in a page.
const MARKER_BASE_BYTES: u64 = 64 * 1024;

/// The bytes that an object adds to the marker: its type and name (at most 127 in a vault), its
/// version (32), four timestamps (30 each) and the JSON field names.
const MARKER_BYTES_PER_OBJECT: u64 = 512;

/// Links through `..data/` of at most 127 bytes take no page (`SHORT_SYMLINK_LEN` of `mm/shmem.c`).
const MAX_INLINE_LINK_BYTES: usize = 127 - "..data/".len();

const MEBIBYTE: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    #[test]
    fn a_file_takes_whole_pages_an_inode_for_each_name_and_a_page_for_a_long_link() {
        let needed = |path: &str, length| {
            let path: FilePath = path.parse().unwrap();
            max_generation_size([(&path, length)], 4096)
                - max_generation_size([], 4096)
                - MARKER_BYTES_PER_OBJECT
        };
        assert_eq!(needed("a", 0), 2 * KIB);
        assert_eq!(needed("a", 1), 2 * KIB + 4096);
        assert_eq!(needed("a", 4097), 2 * KIB + 8192);
        assert_eq!(needed("a/b/c", 4096), 4 * KIB + 4096);
        assert_eq!(needed(&"a".repeat(120), 0), 2 * KIB);
        assert_eq!(needed(&"a".repeat(121), 0), 2 * KIB + 4096);
        let path = "a".parse().unwrap();
        assert_eq!(max_generation_size([(&path, u64::MAX)], 4096), u64::MAX);
    }
}
