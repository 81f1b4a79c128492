//! The memory file system below a volume. Mounting takes privilege; without it the tests hold the
//! error to what it promises instead.

#![cfg(test)]

use std::path::Path;

use lanyard_clock::SystemClock;
use lanyard_node::{FileEntry, Mount, MountError, Volume};

/// The options that the kernel tells about the mount on `dir`, or nothing without privilege.
fn mounted(dir: &Path, size: u64) -> Option<Mount> {
    match Mount::tmpfs(dir, size) {
        Ok(mount) => Some(mount),
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            assert!(error.hint().unwrap().contains("CAP_SYS_ADMIN"), "{error}");
            None
        }
    }
}

fn options(dir: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.to_str().unwrap();
    let mut lines = table.lines().filter(|line| line.split(' ').nth(4) == Some(dir));
    let line = lines.next().map(str::to_owned);
    assert!(lines.next().is_none(), "mounts are stacked on {dir}");
    line
}

#[test]
fn a_mount_is_hardened_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mount) = mounted(dir.path(), 1 << 20) else { return };
    let options = options(dir.path()).unwrap();
    for option in ["nosuid", "nodev", "noexec", "size=1024k", "mode=755"] {
        assert!(options.contains(option), "{option} is not in {options}");
    }
    mount.unmount().unwrap();
    assert!(self::options(dir.path()).is_none());
}

#[test]
fn a_mount_that_was_never_published_into_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mount) = mounted(dir.path(), 1 << 20) else { return };
    let mut volume = Volume::open_mounted(mount, SystemClock::shared()).unwrap();
    assert!(volume.publish(&[]).is_err());
    drop(volume);
    assert!(options(dir.path()).is_none());
}

#[test]
fn a_published_mount_outlives_its_process_grows_and_goes_at_unpublish() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mount) = mounted(dir.path(), 64 << 10) else { return };
    let content = vec![b'x'; 100 << 10];
    let entry = |length: usize| [FileEntry::new("a".parse().unwrap(), &content[..length], 0o600)];
    let mut volume = Volume::open_mounted(mount, SystemClock::shared()).unwrap();
    volume.publish(&entry(10)).unwrap();
    drop(volume);

    let mount = Mount::find(dir.path()).unwrap().unwrap();
    let mut volume = Volume::open_mounted(mount, SystemClock::shared()).unwrap();
    for length in [content.len(), content.len() - 1, content.len() - 2] {
        volume.publish(&entry(length)).unwrap();
        assert_eq!(
            std::fs::metadata(dir.path().join("a")).unwrap().len(),
            u64::try_from(length).unwrap()
        );
    }
    let options = options(dir.path()).unwrap();
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(options.contains(option), "{option} is not in {options}");
    }

    // Mounting again takes the same one over.
    let mount = mounted(dir.path(), 1 << 20).unwrap();
    assert!(self::options(dir.path()).is_some());
    let reader = std::fs::File::open(dir.path().join("a")).unwrap();
    drop(volume);
    Volume::open_mounted(mount, SystemClock::shared()).unwrap().unpublish().unwrap();
    assert!(!dir.path().exists());
    drop(reader);
}

#[test]
fn what_somebody_else_mounted_is_not_touched() {
    let error = Mount::find(Path::new("/proc")).unwrap_err();
    assert!(matches!(error, MountError::Foreign { .. }), "{error}");
    assert!(error.hint().is_some());
    assert!(Mount::find(tempfile::tempdir().unwrap().path()).unwrap().is_none());
}
