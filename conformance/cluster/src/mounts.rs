//! Finds and removes mounts below a directory.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

use crate::error::ClusterError;

const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";

/// An entry of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountInfoEntry {
    pub(crate) mount_point: PathBuf,
    pub(crate) filesystem: String,
}

/// Every mount, in the order of mounting.
pub(crate) fn load_mounts() -> Result<Vec<MountInfoEntry>, ClusterError> {
    let path = Path::new(MOUNTINFO_PATH);
    let table = fs::read(path).map_err(ClusterError::file("read", path))?;
    Ok(parse_mountinfo(&table))
}

/// Mount points at or below a directory, the last mounted first.
pub(crate) fn mount_points_below(mounts: &[MountInfoEntry], directory: &Path) -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = mounts
        .iter()
        .filter(|mount| mount.mount_point.starts_with(directory))
        .map(|mount| mount.mount_point.clone())
        .collect();
    points.reverse();
    points
}

/// Unmounts everything at or below a directory, and returns the mount points that remain.
///
/// A mount that a process still uses is detached: no path leads to it any more, and the kernel removes it
/// with its last user.
pub(crate) fn unmount_below(directory: &Path) -> Result<Vec<PathBuf>, ClusterError> {
    // Unmounting can uncover mounts that were propagated from a peer, so the table is read again.
    for _ in 0..UNMOUNT_ATTEMPTS {
        let points = mount_points_below(&load_mounts()?, directory);
        if points.is_empty() {
            return Ok(Vec::new());
        }
        for point in points {
            if unmount(&point, UnmountFlags::NOFOLLOW).is_err() {
                // The table at the end contains the mounts for which this failed too.
                unmount(&point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH).unwrap_or_default();
            }
        }
    }
    Ok(mount_points_below(&load_mounts()?, directory))
}

const UNMOUNT_ATTEMPTS: usize = 5;

/// Parses the mount table (proc(5), `mountinfo`).
fn parse_mountinfo(table: &[u8]) -> Vec<MountInfoEntry> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let point = unescape_octal(fields.nth(4)?);
            // A hyphen ends the optional fields; the file system type follows.
            let filesystem = fields.skip_while(|field| *field != b"-").nth(1)?;
            let filesystem = String::from_utf8_lossy(filesystem).into_owned();
            Some(MountInfoEntry { mount_point: point, filesystem })
        })
        .collect()
}

/// Decodes blanks, tabs, newlines and backslashes, which the table escapes as three octal digits.
fn unescape_octal(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'\\').then(|| after.get(..3)).flatten();
        let value = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(value) = value {
            bytes.push(value);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"22 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n\
        30 22 0:5 / /c/kubelet rw shared:7 master:1 - ext4 /dev/vda rw\n\
        31 30 0:6 / /c/kubelet/pods/a\\040b rw - tmpfs tmpfs rw\n\
        32 22 0:7 / /cc rw - tmpfs tmpfs rw\n\
        33 22 0:8 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn mount_points_below_are_in_reverse_mount_order() {
        let mounts = parse_mountinfo(SAMPLE);
        let expected = [PathBuf::from("/c/kubelet/pods/a b"), PathBuf::from("/c/kubelet")];
        assert_eq!(mount_points_below(&mounts, Path::new("/c")), expected);
        assert!(mount_points_below(&mounts, Path::new("/c/kube")).is_empty());
    }

    #[test]
    fn the_type_is_found_behind_any_number_of_optional_fields() {
        let types: Vec<_> =
            parse_mountinfo(SAMPLE).into_iter().map(|mount| mount.filesystem).collect();
        assert_eq!(types, ["ext4", "ext4", "tmpfs", "tmpfs", "cgroup"]);
    }

    #[test]
    fn incomplete_octal_escapes_stay_unchanged() {
        for (field, expected) in
            [(r"a\040b", "a b"), (r"a\134040", r"a\040"), (r"a\04", r"a\04"), (r"a\999", r"a\999")]
        {
            assert_eq!(unescape_octal(field.as_bytes()), Path::new(expected), "{field}");
        }
    }
}
