//! The files of a volume: a directory whose files change all at once.
//!
//! An [`AtomicVolume`] uses the layout of the kubelet's atomic writer and keeps retired generations, so that
//! programs that watch an old file notice the change. A [`TmpfsMount`] is the size-limited tmpfs that holds the volume,
//! and a [`MemoryBudget`] limits its growth. A volume contains a file with what the node plugin needs after a
//! restart (`MARKER_PATH`).
//!
//! ```
//! use lanyard_clock::SystemClock;
//! use lanyard_volume::{AtomicVolume, FileEntry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let mut volume = AtomicVolume::open(dir.path(), SystemClock::shared())?;
//! let published = volume.publish(&[FileEntry::new("token".parse()?, b"first", 0o644)])?;
//! assert_eq!(published.generation.number(), 1);
//! assert_eq!(std::fs::read(dir.path().join("token"))?, b"first");
//! # Ok(())
//! # }
//! ```

mod compare_generation;
mod directory;
mod error;
mod fail_point;
mod file_path;
mod generation;
mod memory_usage;
mod mount;
mod mount_table;
mod payload;
mod volume;
mod volume_links;
mod volume_step;

pub use directory::{
    DirectoryEntryKind, DiskOperation, OpenDirectory, VolumeDiskError, disk_error,
};
pub use error::PublishError;
pub use fail_point::FailPoint;
#[cfg(feature = "crash-points")]
pub use fail_point::{CrashPoint, ParseCrashPointError};
pub use file_path::{FilePath, FilePathProblem, MAX_COMPONENT, MAX_PATH, ParseFilePathError};
pub use generation::{ParseGenerationError, SCRUB_GRACE, VolumeGeneration};
pub use memory_usage::{
    ByteAmount, GrowthRequest, MemoryBudget, MemoryPurpose, TmpfsUsage, VolumesMemoryLimitError,
    max_generation_size, min_file_size,
};
pub use mount::{
    DetachedMount, MountOperation, TMPFS_MAGIC, TmpfsMount, TmpfsMountError, TmpfsOptions,
};
pub use mount_table::MountTable;
pub use payload::{FileEntry, Payload, PayloadProblem};
pub use volume::{
    AtomicVolume, MARKER_PATH, MAX_MARKER_BYTES, PublishOutcome, ScrubOutcome, VolumeChange,
};
pub use volume_step::{VolumeOperation, VolumeStep};
