//! How much memory the volumes of a node may hold together, and what is read for them.
//!
//! The kernel charges the memory of a volume to the node plugin, which writes it and serves all tenants.
//! The classes of one tenant must not cause the plugin to be killed. What is read for a volume is in memory
//! beside its files until they are written, so it counts too.
//!
//! What counts is what a volume holds, not the bound of its tmpfs: the bound is rounded up to the
//! largest page of any machine for every file, and would refuse ten times too early. A tmpfs tells
//! what it holds in one call, retired generations and the note of the publisher included.

use std::fmt;

use rustix::fs::StatVfs;

use crate::file_path::FilePath;

/// The memory of one file system in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TmpfsUsage {
    /// What it holds, in bytes: its pages, and what its inodes take of the kernel's own memory.
    /// Retired generations keep their inodes for as long as the volume lives.
    pub(crate) used: u64,
    /// What of that its inodes take.
    pub(crate) inode_bytes: u64,
    /// The size of its pages.
    pub(crate) page_size: u64,
}

impl TmpfsUsage {
    pub(crate) fn of(stat: &StatVfs) -> Self {
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

/// What a generation of these files takes at most, with the note beside it, in bytes.
pub(crate) fn max_generation_size<'a>(
    files: impl IntoIterator<Item = (&'a FilePath, u64)>,
    page: u64,
) -> u64 {
    let of_inodes =
        |count: usize| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(INODE_BYTES);
    let of_file = |(path, length): (&FilePath, u64)| {
        let link = if path.top_level_name().len() > MAX_INLINE_LINK_BYTES { page } else { 0 };
        // The file, each directory above it, and the link that leads to it.
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

/// What a file of this length takes at least, in bytes, wherever it lies in its volume.
pub(crate) fn min_file_size(length: u64) -> u64 {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(1);
    let content = length.div_ceil(page).saturating_mul(page);
    content.saturating_add(2 * INODE_BYTES).saturating_add(MARKER_BYTES_PER_OBJECT)
}

/// What the next note takes at most beside the last one, in bytes, where the volume has so many
/// files: it names every object, and each object has a file.
pub(crate) fn max_marker_size(files: usize) -> u64 {
    let objects = u64::try_from(files).unwrap_or(u64::MAX).saturating_mul(MARKER_BYTES_PER_OBJECT);
    MARKER_BASE_BYTES.saturating_add(objects)
}

/// Why a volume grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryPurpose {
    /// Nobody has it yet.
    Mount,
    /// A pod has it already, and follows its source through it.
    Rotation,
}

/// What a volume holds, and what it is about to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrowthRequest {
    pub(crate) used: u64,
    /// What it holds at least once the content of its retired generations is gone, which is gone
    /// by itself.
    pub(crate) used_after_scrub: u64,
    pub(crate) needed: u64,
    /// What was read for it and is in memory until it is written.
    pub(crate) read_bytes: u64,
    pub(crate) purpose: MemoryPurpose,
}

impl GrowthRequest {
    /// Whether the volume holds more than its content can explain: what is mounted, and what is to
    /// be. The rest are the names of retired generations, which it holds for as long as it lives.
    const fn has_excess_generations(self) -> bool {
        matches!(self.purpose, MemoryPurpose::Rotation) && self.used > self.needed.saturating_mul(2)
    }
}

/// What all volumes of a node, what is read for them and what is cached may hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimit(pub(crate) u64);

impl MemoryLimit {
    /// What is open for a volume. The last quarter is for rotations: pods that start must not take
    /// what running ones need to get their next certificate, for old and new lie side by side then.
    /// Nor must one that rotates again and again, since it would never give it back.
    pub(crate) const fn limit_for(self, purpose: MemoryPurpose, hoards: bool) -> u64 {
        match purpose {
            MemoryPurpose::Rotation if !hoards => self.0,
            MemoryPurpose::Mount | MemoryPurpose::Rotation => self.0 - self.0 / 4,
        }
    }

    const fn limit_for_request(self, growth: GrowthRequest) -> u64 {
        self.limit_for(growth.purpose, growth.has_excess_generations())
    }

    /// Whether a volume would not fit though nothing else were there. One that could be mounted and
    /// never rotate is not mounted: it would be noticed when its certificate ends.
    const fn can_never_fit(self, growth: GrowthRequest) -> bool {
        let GrowthRequest {
            used_after_scrub: lasting, needed, read_bytes: reading, purpose, ..
        } = growth;
        let new = needed.saturating_add(reading);
        match purpose {
            MemoryPurpose::Mount => {
                needed.saturating_add(new) > self.0 || new > self.limit_for_request(growth)
            }
            MemoryPurpose::Rotation => {
                let settled = GrowthRequest { used: lasting, ..growth };
                lasting.saturating_add(new) > self.limit_for_request(settled)
            }
        }
    }

    /// Whether a volume may grow by what was set aside for that.
    pub(crate) const fn allows_reserved(self, growth: GrowthRequest) -> bool {
        !self.can_never_fit(growth) && !growth.has_excess_generations()
    }

    /// Whether a volume may grow beside what all others hold; if so, what it takes from now on.
    pub(crate) const fn admit(
        self,
        others: u64,
        growth: GrowthRequest,
    ) -> Result<u64, MemoryLimitError> {
        let GrowthRequest { used: held, needed, read_bytes: reading, purpose, .. } = growth;
        let (limit, is_hopeless) = (self.limit_for_request(growth), self.can_never_fit(growth));
        let own = held.saturating_add(needed);
        if others.saturating_add(own).saturating_add(reading) <= limit && !is_hopeless {
            return Ok(own);
        }
        // What keeps it out is all that there is, then.
        let is_too_large = matches!(purpose, MemoryPurpose::Mount) && is_hopeless;
        let limit = if is_too_large { self.0 } else { limit };
        let used = others.saturating_add(held).saturating_add(reading);
        let (hoards, is_reading) = (growth.has_excess_generations(), false);
        Err(MemoryLimitError {
            purpose,
            needed,
            used,
            limit,
            can_never_fit: is_hopeless,
            has_excess_generations: hoards,
            during_read: is_reading,
        })
    }
}

/// Who lets a volume take memory.
pub(crate) trait MemoryBudget {
    /// Asks for more, before anything is written.
    ///
    /// # Errors
    ///
    /// Where all volumes together would hold more than they may. Then nothing was taken.
    fn claim(&self, growth: GrowthRequest) -> Result<(), MemoryLimitError>;
}

/// What a volume needs does not fit beside what the volumes of the node hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} up to {}{}; the volumes of this node{} hold {} together, and may hold {}{}",
    if *during_read { "reading it takes" } else { "it needs" },
    ByteAmount(*needed),
    if *can_never_fit && *purpose == MemoryPurpose::Mount && !during_read {
        ", and as much again to rotate"
    } else {
        ""
    },
    if *during_read { " and what is read for them" } else { "" },
    ByteAmount(*used),
    ByteAmount(*limit),
    match purpose {
        MemoryPurpose::Mount if !can_never_fit => " with a new one: the rest is kept for rotations",
        MemoryPurpose::Rotation if *has_excess_generations => {
            " with one that has rotated so often: the rest is kept for the others"
        }
        MemoryPurpose::Mount | MemoryPurpose::Rotation => "",
    }
)]
#[non_exhaustive]
pub struct MemoryLimitError {
    /// What for.
    pub purpose: MemoryPurpose,
    /// What it needs at most, in bytes.
    pub needed: u64,
    /// What the volumes of the node hold, this one included, in bytes.
    pub used: u64,
    /// What they may hold together for this purpose, in bytes.
    pub limit: u64,
    /// Whether it would not fit though nothing else were there.
    pub can_never_fit: bool,
    /// Whether it is refused what others would be given, because its retired generations hold more
    /// than its content.
    pub has_excess_generations: bool,
    /// Whether it was refused while its objects were read, before it was known what its files need.
    pub during_read: bool,
}

impl MemoryLimitError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        if self.has_excess_generations {
            "restart the pod: a volume holds the names of every generation that it has retired for \
             as long as it lives; or give the node plugin more memory \
             (`linux.resources.limits.memory` of the chart, or `--volumes-memory-limit`)"
        } else if self.can_never_fit {
            "ask for fewer or smaller objects in the SecretProviderClass, or give the node plugin \
             more memory: `linux.resources.limits.memory` of the chart, or `--volumes-memory-limit`"
        } else {
            "give the node plugin more memory (`linux.resources.limits.memory` of the chart, or \
             `--volumes-memory-limit`), ask for fewer or smaller objects, or spread the pods over \
             more nodes; `lanyard_node_volumes_memory_bytes` tells which classes hold how much"
        }
    }
}

/// An amount of memory, for people.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteAmount(pub(crate) u64);

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

/// What an inode and its name take of the kernel's memory, as the kernel itself reckons
/// (`BOGO_INODE_SIZE` of `mm/shmem.c`, 1024 since Linux 6.6; an inode of tmpfs and a directory entry
/// have some 950 bytes). It is charged as pages are.
const INODE_BYTES: u64 = 1024;

/// The root, the directory of the generation and that of the note, the note and the next one,
/// `..data` and the next one, with one to spare.
const LAYOUT_INODES: usize = 8;

/// What a note takes that names no object, in bytes. Most are a page long.
const MARKER_BASE_BYTES: u64 = 64 * 1024;

/// What an object adds to it, in bytes: its type and name (127 at most in a vault), its version (32),
/// four times (30 each), and how JSON names them.
const MARKER_BYTES_PER_OBJECT: u64 = 512;

/// Links through `..data/` of at most 127 bytes take no page (`SHORT_SYMLINK_LEN` of `mm/shmem.c`).
const MAX_INLINE_LINK_BYTES: usize = 127 - "..data/".len();

const MEBIBYTE: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1024;

    fn growth_request(purpose: MemoryPurpose, held: u64, needed: u64) -> GrowthRequest {
        GrowthRequest { used: held, used_after_scrub: held, needed, read_bytes: 0, purpose }
    }

    #[test]
    fn mounts_and_excess_generations_leave_a_quarter_to_rotations() {
        use MemoryPurpose::{Mount, Rotation};
        let limit = MemoryLimit(100);
        // What the others hold, what the volume holds, what it needs, what it takes then.
        let cases = [
            // One that could never rotate is not mounted.
            (Mount, 0, 0, 50, Some(50)),
            (Mount, 0, 0, 51, None),
            (Mount, 25, 0, 50, Some(50)),
            (Mount, 26, 0, 50, None),
            (Mount, 70, 0, 5, Some(5)),
            (Mount, 70, 1, 5, None),
            (Mount, 90, 0, 1, None),
            (Rotation, 70, 5, 25, Some(30)),
            (Rotation, 70, 5, 26, None),
            (Rotation, 0, 50, 50, Some(100)),
            (Rotation, 40, 40, 20, Some(60)),
            (Rotation, 40, 41, 20, None),
            (Rotation, 14, 41, 20, Some(61)),
            (Rotation, 15, 41, 20, None),
            (Rotation, u64::MAX, 1, 1, None),
            (Mount, 1, u64::MAX, u64::MAX, None),
        ];
        for (purpose, others, held, needed, expected) in cases {
            let admitted = limit.admit(others, growth_request(purpose, held, needed)).ok();
            assert_eq!(admitted, expected, "{purpose:?} {others} {held} {needed}");
        }
    }

    #[test]
    fn read_bytes_count_until_written() {
        use MemoryPurpose::{Mount, Rotation};
        let limit = MemoryLimit(100);
        // Purpose, what the others and the volume hold, what it needs, what was read, what it takes.
        let cases = [
            (Mount, 0, 0, 33, 33, Some(33)),
            (Mount, 0, 0, 34, 33, None),
            (Mount, 30, 0, 25, 20, Some(25)),
            (Mount, 31, 0, 25, 20, None),
            (Rotation, 40, 20, 20, 20, Some(40)),
            (Rotation, 41, 20, 20, 20, None),
        ];
        for (purpose, others, held, needed, reading, expected) in cases {
            let growth =
                GrowthRequest { read_bytes: reading, ..growth_request(purpose, held, needed) };
            assert_eq!(limit.admit(others, growth).ok(), expected, "{purpose:?} {others} {needed}");
        }
    }

    #[test]
    fn memory_limit_error_names_usage_and_limit() {
        let limit = MemoryLimit(64 * MEBIBYTE);
        let mount = growth_request(MemoryPurpose::Mount, 0, 3 * MEBIBYTE / 2);
        let refused = limit.admit(47 * MEBIBYTE, mount).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "it needs up to 1.5 MiB; the volumes of this node hold 47.0 MiB together, and may \
             hold 48.0 MiB with a new one: the rest is kept for rotations"
        );
        assert!(!refused.can_never_fit && refused.hint().contains("spread the pods"));
        let refused =
            limit.admit(0, growth_request(MemoryPurpose::Mount, 0, 33 * MEBIBYTE)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "it needs up to 33.0 MiB, and as much again to rotate; the volumes of this node hold \
             0 KiB together, and may hold 64.0 MiB"
        );
        assert!(refused.can_never_fit && refused.hint().contains("fewer or smaller objects"));
        let rotation = growth_request(MemoryPurpose::Rotation, 100, 65 * MEBIBYTE);
        let refused = limit.admit(0, rotation).unwrap_err();
        assert!(
            refused.to_string().contains("hold 1 KiB together, and may hold 64.0 MiB"),
            "{refused}"
        );
        assert!(refused.can_never_fit && refused.hint().contains("fewer or smaller objects"));
        let hoard = growth_request(MemoryPurpose::Rotation, 5 * MEBIBYTE, 2 * MEBIBYTE);
        let refused = limit.admit(47 * MEBIBYTE, hoard).unwrap_err();
        assert!(refused.to_string().contains("48.0 MiB with one that has rotated"), "{refused}");
        assert!(!refused.can_never_fit && refused.hint().contains("restart the pod"));
    }

    #[test]
    fn rotation_can_never_fit_only_without_room_after_a_scrub() {
        let limit = MemoryLimit(100);
        // What the volume holds, what of it lasts, what it needs.
        let cases =
            [(80, 10, 40, false), (80, 60, 40, false), (80, 61, 40, true), (90, 90, 5, true)];
        for (held, lasting, needed, expected) in cases {
            let growth = GrowthRequest {
                used: held,
                used_after_scrub: lasting,
                needed,
                read_bytes: 0,
                purpose: MemoryPurpose::Rotation,
            };
            let refused = limit.admit(0, growth).unwrap_err();
            assert_eq!(refused.can_never_fit, expected, "{held} {lasting} {needed}");
        }
    }

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

    proptest! {
        /// However volumes come, rotate and go, all of them together hold no more than they may.
        #[test]
        fn no_order_of_claims_exceeds_the_limit(
            limit in 0u64..10_000,
            claims in prop::collection::vec((0usize..6, prop::option::of(0u64..4_000)), 0..80),
        ) {
            let mut shares = [0u64; 6];
            for (volume, needed) in claims {
                let held = std::mem::take(&mut shares[volume]);
                let others: u64 = shares.iter().sum();
                // Nothing needed: the volume goes.
                let Some(needed) = needed else { continue };
                let purpose = if held > 0 { MemoryPurpose::Rotation } else { MemoryPurpose::Mount };
                shares[volume] = match MemoryLimit(limit).admit(others, growth_request(purpose, held, needed)) {
                    Ok(share) => {
                        prop_assert_eq!(share, held + needed);
                        share
                    }
                    Err(refused) => {
                        prop_assert_eq!(refused.used, others + held);
                        let twice = if refused.can_never_fit { needed } else { 0 };
                        prop_assert!(refused.used + needed + twice > refused.limit);
                        held
                    }
                };
                prop_assert!(shares.iter().sum::<u64>() <= limit);
            }
        }
    }
}
