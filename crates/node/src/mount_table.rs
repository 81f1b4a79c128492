//! Which generations are mounted somewhere: the work of `subPath`.
//!
//! For a `subPath` the kubelet binds the file itself, through the links, into the container. The
//! container then sees the inode of one generation for as long as it lives.

use std::path::Path;

use crate::directory::{DiskError, Operation, failure};
use crate::generation::Generation;

/// The mounts that this process sees (proc(5), `/proc/pid/mountinfo`).
pub(crate) fn load_mount_table() -> Result<String, DiskError> {
    let path = Path::new("/proc/self/mountinfo");
    std::fs::read_to_string(path).map_err(|error| failure(Operation::Read, path, error))
}

/// The generations on `device` (`major:minor`) of which a mount shows a part.
pub(crate) fn shown_generations(mount_table: &str, device: &str) -> Vec<Generation> {
    let root = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let on_device = fields.next() == Some(device);
        fields.next().filter(|_| on_device).map(str::to_owned)
    };
    let roots = mount_table.lines().filter_map(root);
    // Names of generations hold nothing that the table escapes.
    roots.filter_map(|root| root.split('/').find_map(|part| part.parse().ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_generations_on_the_same_device_count() {
        let table = "\
36 35 0:45 / /pods/a/volumes/v/mount rw,nosuid - tmpfs tmpfs rw
37 35 0:45 /..2026_11_21_12_00_00.3/tls/key /pods/a/volume-subpaths/v/c/0 rw - tmpfs tmpfs rw
38 35 0:46 /..2026_11_21_12_00_00.4/tls/key /pods/b/volume-subpaths/v/c/0 rw - tmpfs tmpfs rw
39 35 8:1 /var/lib/x/..2026_11_21_12_00_00.5/key /pods/c rw - ext4 /dev/sda1 rw
broken line
";
        let shown = |device| {
            let shown = shown_generations(table, device);
            shown.iter().map(Generation::number).collect::<Vec<_>>()
        };
        assert_eq!(shown("0:45"), [3]);
        assert_eq!(shown("8:1"), [5]);
        assert_eq!(shown("0:4"), [0; 0]);
    }
}
