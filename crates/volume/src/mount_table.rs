//! The mount table of this process (proc(5), `/proc/pid/mountinfo`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::directory::{DiskOperation, VolumeDiskError, disk_error};
use crate::generation::VolumeGeneration;

/// A snapshot of the mount table, as bytes because mount points need not be UTF-8.
#[derive(Debug)]
pub struct MountTable(Vec<u8>);

/// The fields of one line of the table that are used.
#[derive(Debug, PartialEq, Eq)]
struct MountTableEntry<'a> {
    device: &'a [u8],
    root: &'a [u8],
    mount_point: PathBuf,
    fs_type: &'a [u8],
}

impl MountTable {
    /// Reads `/proc/self/mountinfo`.
    pub fn load() -> Result<Self, VolumeDiskError> {
        let path = Path::new("/proc/self/mountinfo");
        std::fs::read(path).map(Self).map_err(|error| disk_error(DiskOperation::Read, path, error))
    }

    /// Returns the generations on `device` (`major:minor`) of which a bind mount shows a part.
    ///
    /// `subPath` creates such mounts: the kubelet resolves the links and bind-mounts the file into
    /// the container, which then sees the inode of one generation as long as it runs.
    pub fn mounted_generations(&self, device: &str) -> Vec<VolumeGeneration> {
        let roots = self.entries().filter(|line| line.device == device.as_bytes());
        // Names of generations contain no characters that the table escapes.
        let generation = |part: &[u8]| std::str::from_utf8(part).ok()?.parse().ok();
        roots
            .filter_map(|line| line.root.split(|byte| *byte == b'/').find_map(generation))
            .collect()
    }

    /// Returns the number of mounts that are stacked on `point`.
    pub fn layer_count(&self, point: &Path) -> usize {
        self.entries().filter(|line| line.mount_point == point).count()
    }

    /// Returns the tmpfs mount points below `dir`, without duplicates.
    pub fn tmpfs_mounts_below(&self, dir: &Path) -> Vec<PathBuf> {
        let mut points: Vec<_> = self
            .entries()
            .filter(|line| line.fs_type == b"tmpfs" && line.mount_point.starts_with(dir))
            .map(|line| line.mount_point)
            .collect();
        points.sort();
        points.dedup();
        points
    }

    /// Returns the path of a mount below `dir`, with any file system.
    pub(crate) fn any_mount_below(&self, dir: &Path) -> Option<PathBuf> {
        let below = |line: &MountTableEntry<'_>| {
            line.mount_point != dir && line.mount_point.starts_with(dir)
        };
        self.entries().find(below).map(|line| line.mount_point)
    }

    fn entries(&self) -> impl Iterator<Item = MountTableEntry<'_>> {
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
            // Optional fields end with a dash.
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            Some(MountTableEntry { device, root, mount_point: unescape(point), fs_type: kind })
        })
    }
}

/// Decodes a path: the table escapes space, tab, newline and backslash as three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| after.split_at_checked(3))
            .flatten()
            .and_then(|(digits, behind)| Some((octal(digits)?, behind)));
        let (value, behind) = escaped.unwrap_or((byte, after));
        bytes.push(value);
        rest = behind;
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> MountTable {
        MountTable(
            b"\
36 35 0:45 / /pods/a/volumes/v/mount rw,nosuid - tmpfs tmpfs rw
37 35 0:45 /..2026_11_21_12_00_00.3/tls/key /pods/a/subpaths/v/c/0 rw shared:1 - tmpfs tmpfs rw
38 35 0:46 /..2026_11_21_12_00_00.4/tls/key /pods/b/subpaths/v/c/0 rw - tmpfs tmpfs rw
39 35 8:1 /var/lib/x/..2026_11_21_12_00_00.5/key /pods/c rw - ext4 /dev/sda1 rw
40 36 0:47 / /pods/a/volumes/v/mount rw,nosuid - tmpfs tmpfs rw
41 36 0:48 / /pods/a\\040b\\134/mount rw - tmpfs tmpfs rw
42 36 0:49 / /podsx/mount rw - tmpfs tmpfs rw
43 36 0:50 /\xff /pods/\xff rw - tmpfs tmpfs rw
broken line
"
            .to_vec(),
        )
    }

    #[test]
    fn only_parts_of_generations_on_the_same_device_count() {
        let shown = |device| {
            let shown = table().mounted_generations(device);
            shown.iter().map(VolumeGeneration::number).collect::<Vec<_>>()
        };
        assert_eq!(shown("0:45"), [3]);
        assert_eq!(shown("8:1"), [5]);
        assert_eq!(shown("0:4"), [0; 0]);
    }

    #[test]
    fn stacked_mounts_are_counted() {
        for (point, layers) in [("/pods/a/volumes/v/mount", 2), ("/pods/c", 1), ("/pods", 0)] {
            assert_eq!(table().layer_count(Path::new(point)), layers, "{point}");
        }
        assert_eq!(table().layer_count(Path::new("/pods/a b\\/mount")), 1);
    }

    #[test]
    fn memory_mounts_are_found_below_a_directory_and_not_beside_it() {
        let found = table().tmpfs_mounts_below(Path::new("/pods"));
        let expected = [
            "/pods/a/subpaths/v/c/0",
            "/pods/a/volumes/v/mount",
            "/pods/a b\\/mount",
            "/pods/b/subpaths/v/c/0",
        ];
        let mut expected = expected.map(PathBuf::from).to_vec();
        // A mount point that is not UTF-8 does not hide the others.
        expected.push(PathBuf::from(OsString::from_vec(b"/pods/\xff".to_vec())));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_mount_of_any_kind_is_found_below_a_directory_and_not_on_it() {
        let found = |dir| table().any_mount_below(Path::new(dir));
        assert_eq!(found("/pods/b").as_deref(), Some(Path::new("/pods/b/subpaths/v/c/0")));
        assert_eq!(found("/pods/c"), None);
        assert_eq!(found("/pod"), None);
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(b"/a\\9zz\\04"), Path::new("/a\\9zz\\04"));
    }
}
