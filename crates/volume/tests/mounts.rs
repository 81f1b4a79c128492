//! The tmpfs of a volume. Mounting needs privileges: without them, the tests that mount are reported as
//! ignored, and the error of an unprivileged mount is checked.

#![cfg(test)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{ErrorHint as _, ManualClock, SystemClock};
use lanyard_volume::{AtomicVolume, FileEntry, TmpfsMount, TmpfsMountError};
use libtest_mimic::{Arguments, Trial};
use rustix::mount::UnmountFlags;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

fn main() -> ExitCode {
    let is_root = rustix::process::geteuid().is_root();
    let case = |name: &str, case: fn()| {
        Trial::test(name, move || {
            case();
            Ok(())
        })
    };
    let mounting = [
        case("a_mount_is_hardened_and_bounded", a_mount_is_hardened_and_bounded),
        case(
            "a_mount_that_was_never_published_into_is_undone",
            a_mount_that_was_never_published_into_is_undone,
        ),
        case(
            "a_published_mount_outlives_its_process_grows_and_goes_at_unpublish",
            a_published_mount_outlives_its_process_grows_and_goes_at_unpublish,
        ),
        case(
            "mounts_below_a_directory_are_found_the_deepest_first",
            mounts_below_a_directory_are_found_the_deepest_first,
        ),
        case(
            "a_full_tmpfs_keeps_the_old_content_and_leaves_nothing_behind",
            a_full_tmpfs_keeps_the_old_content_and_leaves_nothing_behind,
        ),
        case(
            "a_file_that_a_container_has_bound_keeps_its_content_until_it_is_released",
            a_file_that_a_container_has_bound_keeps_its_content_until_it_is_released,
        ),
    ];
    let mut trials: Vec<_> =
        mounting.into_iter().map(|trial| trial.with_ignored_flag(!is_root)).collect();
    trials.push(case("foreign_mounts_are_rejected", foreign_mounts_are_rejected));
    trials.push(case(
        "mount_without_privilege_names_the_missing_capability",
        mount_without_privilege_names_the_missing_capability,
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn mount_without_privilege_names_the_missing_capability() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    // Each thread has its own capabilities: root drops this one in a thread that ends here.
    let unprivileged = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        TmpfsMount::mount_or_adopt(&path, 1 << 20).unwrap_err()
    });
    let error = unprivileged.join().unwrap();
    assert!(error.hint().unwrap().contains("CAP_SYS_ADMIN"), "{error}");
}

/// Returns the options of the mount on `dir` from the kernel's mount table.
fn mount_options(dir: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.to_str().unwrap();
    let mut lines = table.lines().filter(|line| line.split(' ').nth(4) == Some(dir));
    let line = lines.next().map(str::to_owned);
    assert!(lines.next().is_none(), "mounts are stacked on {dir}");
    line
}

fn mounts_below_a_directory_are_found_the_deepest_first() {
    let dir = tempfile::tempdir().unwrap();
    let sibling = tempfile::tempdir().unwrap();
    let above = dir.path().join("above");
    let below = above.join("below");
    let mount = |path: &Path| {
        std::fs::create_dir(path).unwrap();
        let mut mount = TmpfsMount::mount_or_adopt(path, 64 << 10).unwrap();
        mount.persist();
    };
    for path in [&above, &below, &sibling.path().join("other")] {
        mount(path);
    }
    let found = TmpfsMount::find_below(dir.path()).unwrap();
    assert_eq!(found.iter().map(TmpfsMount::dir).collect::<Vec<_>>(), [&below, &above]);
    let of_others = TmpfsMount::find_below(sibling.path()).unwrap();
    for mount in found.into_iter().chain(of_others) {
        mount.unmount().unwrap();
    }
    assert!(TmpfsMount::find_below(dir.path()).unwrap().is_empty());
}

fn a_mount_is_hardened_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let mount = TmpfsMount::mount_or_adopt(dir.path(), 1 << 20).unwrap();
    let options = mount_options(dir.path()).unwrap();
    for option in ["nosuid", "nodev", "noexec", "size=1024k", "mode=755"] {
        assert!(options.contains(option), "{option} is not in {options}");
    }
    mount.unmount().unwrap();
    assert!(mount_options(dir.path()).is_none());
}

fn a_mount_that_was_never_published_into_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let mount = TmpfsMount::mount_or_adopt(dir.path(), 1 << 20).unwrap();
    let mut volume = AtomicVolume::open_mounted(mount, SystemClock::shared()).unwrap();
    assert!(volume.publish(&[]).is_err());
    drop(volume);
    assert!(mount_options(dir.path()).is_none());
}

fn a_published_mount_outlives_its_process_grows_and_goes_at_unpublish() {
    let dir = tempfile::tempdir().unwrap();
    let mount = TmpfsMount::mount_or_adopt(dir.path(), 64 << 10).unwrap();
    let content = vec![b'x'; 100 << 10];
    let entry = |length: usize| [FileEntry::new("a".parse().unwrap(), &content[..length], 0o600)];
    let mut volume = AtomicVolume::open_mounted(mount, SystemClock::shared()).unwrap();
    volume.publish(&entry(10)).unwrap();
    drop(volume);

    let mount = TmpfsMount::find(dir.path()).unwrap().unwrap();
    let mut volume = AtomicVolume::open_mounted(mount, SystemClock::shared()).unwrap();
    for length in [content.len(), content.len() - 1, content.len() - 2] {
        volume.publish(&entry(length)).unwrap();
        assert_eq!(
            std::fs::metadata(dir.path().join("a")).unwrap().len(),
            u64::try_from(length).unwrap()
        );
    }
    let options = mount_options(dir.path()).unwrap();
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(options.contains(option), "{option} is not in {options}");
    }

    // Mounting again adopts the existing mount.
    let mount = TmpfsMount::mount_or_adopt(dir.path(), 1 << 20).unwrap();
    assert!(mount_options(dir.path()).is_some());
    let reader = std::fs::File::open(dir.path().join("a")).unwrap();
    drop(volume);
    AtomicVolume::open_mounted(mount, SystemClock::shared()).unwrap().unpublish().unwrap();
    assert!(!dir.path().exists());
    drop(reader);
}

fn a_full_tmpfs_keeps_the_old_content_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mount = TmpfsMount::mount_or_adopt(dir.path(), 64 << 10).unwrap();
    // Without its mount handle, the volume cannot grow the tmpfs.
    let mut volume = AtomicVolume::open(dir.path(), SystemClock::shared()).unwrap();
    let small = [FileEntry::new("a".parse().unwrap(), b"small", 0o600)];
    volume.publish(&small).unwrap();
    let names = || std::fs::read_dir(dir.path()).unwrap().count();
    let before = names();
    let content = vec![b'x'; 100 << 10];
    let large = [FileEntry::new("a".parse().unwrap(), &content, 0o600)];
    let error = volume.publish(&large).unwrap_err();
    assert!(error.is_transient() && error.hint().unwrap().contains("full"), "{error:?}");
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"small");
    assert_eq!(names(), before);

    let mut volume = AtomicVolume::open_mounted(mount, SystemClock::shared()).unwrap();
    volume.publish(&large).unwrap();
    volume.unpublish().unwrap();
}

fn a_file_that_a_container_has_bound_keeps_its_content_until_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let mount = TmpfsMount::mount_or_adopt(dir.path(), 1 << 20).unwrap();
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
    let mut volume = AtomicVolume::open_mounted(mount, Arc::new(clock.clone())).unwrap();
    let entry = |text: &'static [u8]| [FileEntry::new("a".parse().unwrap(), text, 0o600)];
    volume.publish(&entry(b"first")).unwrap();
    rustix::mount::mount_bind(dir.path().join("a"), elsewhere.path()).unwrap();
    volume.publish(&entry(b"second")).unwrap();
    clock.advance(Duration::from_mins(2));

    let scrubbed = volume.scrub().unwrap();
    assert_eq!((scrubbed.truncated_files, scrubbed.mounted_generations), (0, 1));
    assert!(scrubbed.next_scrub.is_some());
    assert_eq!(std::fs::read(elsewhere.path()).unwrap(), b"first");

    rustix::mount::unmount(elsewhere.path(), UnmountFlags::empty()).unwrap();
    let scrubbed = volume.scrub().unwrap();
    assert_eq!(
        (scrubbed.truncated_files, scrubbed.mounted_generations, scrubbed.next_scrub),
        (1, 0, None)
    );
    volume.unpublish().unwrap();
}

fn foreign_mounts_are_rejected() {
    let error = TmpfsMount::find(Path::new("/proc")).unwrap_err();
    assert!(matches!(error, TmpfsMountError::NotTmpfs { .. }), "{error}");
    assert!(error.hint().is_some());
    assert!(TmpfsMount::find(tempfile::tempdir().unwrap().path()).unwrap().is_none());
}
