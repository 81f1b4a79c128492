use lanyard_clock::SystemClock;
use lanyard_volume::FileEntry;

use super::*;

fn create_run(place: &Path, chosen: Option<&Path>) -> RunDirectory {
    RunDirectory::create(place, chosen, SystemClock::shared()).unwrap()
}

fn test_consumer() -> &'static Consumer {
    &Component::Disk.consumers()[0]
}

/// Publishes a volume, and returns it with the path of its file.
fn publish_test_volume(run: &RunDirectory) -> (OpenVolume, PathBuf) {
    let mut open = run.open_volume(test_consumer()).unwrap();
    let entry = FileEntry::new("secret".parse().unwrap(), b"planted", 0o600);
    open.volume.publish(&[entry]).unwrap();
    let file = open.volume.dir().join("secret");
    assert!(file.exists());
    (open, file)
}

/// Ends a run as SIGKILL would: its volumes stay mounted and its lock is released.
fn abandon_run(mut run: RunDirectory) {
    run.volume_paths.lock().clear();
    run.chosen = None;
    run.private.take().unwrap().abandon().unwrap();
}

fn file_names(directory: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn dropping_a_run_removes_published_volumes() {
    let (place, chosen) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for chosen in [None, Some(chosen.path())] {
        let run = create_run(place.path(), chosen);
        let (open, file) = publish_test_volume(&run);
        drop(open);
        assert!(file.exists(), "a published volume outlives its owner");
        drop(run);
        assert!(file_names(place.path()).is_empty());
        assert!(chosen.is_none_or(|chosen| file_names(chosen).is_empty()));
    }
}

#[test]
fn next_run_removes_volumes_of_a_killed_run() {
    let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let chosen = outside.path().join("new").join("volumes");
    for chosen in [None, Some(chosen.as_path())] {
        let run = create_run(place.path(), chosen);
        let (open, file) = publish_test_volume(&run);
        drop(open);
        abandon_run(run);
        assert!(file.exists());
        RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
        assert!(!file.exists());
        assert!(file_names(place.path()).is_empty() && file_names(outside.path()).is_empty());
        assert!(TmpfsMount::find_below(place.path()).unwrap().is_empty());
        assert!(TmpfsMount::find_below(outside.path()).unwrap().is_empty());
    }
}

#[test]
fn run_killed_during_directory_creation_leaves_no_files() {
    let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (above, chosen) = (outside.path().join("new"), outside.path().join("new").join("volumes"));
    for created in [outside.path(), &above, &chosen] {
        let private = LockedDirectory::create_in(place.path(), RUN_DIRECTORY_PREFIX).unwrap();
        symlink(&chosen, private.path().join(CHOSEN_LINK)).unwrap();
        symlink(&above, private.path().join(CREATED_LINK)).unwrap();
        fs::create_dir_all(created).unwrap();
        private.abandon().unwrap();
        RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
        assert!(file_names(place.path()).is_empty() && file_names(outside.path()).is_empty());
    }
}

#[test]
fn running_run_is_not_removed() {
    let place = tempfile::tempdir().unwrap();
    let run = create_run(place.path(), None);
    let (_open, file) = publish_test_volume(&run);
    RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
    assert!(file.exists());
}

#[test]
fn files_of_the_user_stay_in_a_chosen_directory() {
    let (place, chosen) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let notes = chosen.path().join("notes");
    fs::write(&notes, "mine").unwrap();
    for is_killed in [false, true] {
        let run = create_run(place.path(), Some(chosen.path()));
        let (open, file) = publish_test_volume(&run);
        drop(open);
        if is_killed {
            abandon_run(run);
            RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
        } else {
            run.close().unwrap();
        }
        assert!(!file.exists());
        assert_eq!(file_names(chosen.path()), ["notes"]);
    }
}

#[test]
fn chosen_directory_is_locked_by_one_run() {
    let (place, chosen) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = create_run(place.path(), Some(chosen.path()));
    let second =
        RunDirectory::create(place.path(), Some(chosen.path()), SystemClock::shared()).unwrap_err();
    assert!(matches!(&second, RunDirectoryError::InUse { .. }), "{second}");
    first.close().unwrap();
    create_run(place.path(), Some(chosen.path())).close().unwrap();
}

#[test]
fn removing_a_killed_run_keeps_volumes_of_a_running_one() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let chosen = tempfile::tempdir().unwrap();
    let killed = create_run(first.path(), Some(chosen.path()));
    let (open, left) = publish_test_volume(&killed);
    drop(open);
    abandon_run(killed);
    // The second run uses another temporary directory, so it does not find the private directory of the
    // killed run.
    let living = create_run(second.path(), Some(chosen.path()));
    assert!(!left.exists(), "the next run in the directory removes the volumes");
    let (_open, file) = publish_test_volume(&living);
    RunDirectory::remove_abandoned(first.path(), &SystemClock::shared());
    assert!(file_names(first.path()).is_empty());
    assert!(file.exists());
    living.close().unwrap();
    assert!(file_names(chosen.path()).is_empty());
}

#[test]
fn leftover_volumes_that_cannot_be_removed_prevent_a_run() {
    let (place, chosen) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = create_run(place.path(), Some(chosen.path()));
    let (open, file) = publish_test_volume(&run);
    let (is_mounted, volume) = (open.is_tmpfs, file.parent().unwrap());
    drop(open);
    abandon_run(run);
    if !is_mounted {
        return;
    }
    run_mount_command(&["mount", "-t", "proc", "proc"], volume);
    RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
    let create_again =
        || RunDirectory::create(place.path(), Some(chosen.path()), SystemClock::shared());
    let error = create_again().unwrap_err();
    run_mount_command(&["umount"], volume);
    assert!(matches!(&error, RunDirectoryError::LeftoverVolumes { .. }), "{error}");
    assert!(file.exists());
    create_again().unwrap().close().unwrap();
    assert!(file_names(chosen.path()).is_empty());
}

#[test]
fn files_of_another_file_system_in_a_run_directory_stay() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let notes = other.path().join("notes");
    fs::write(&notes, "mine").unwrap();
    for is_killed in [false, true] {
        let run = create_run(place.path(), None);
        let (open, _file) = publish_test_volume(&run);
        let may_mount = open.is_tmpfs;
        drop(open);
        if !may_mount {
            return;
        }
        let bound = run.private_directory().join("bound");
        fs::create_dir(&bound).unwrap();
        run_mount_command(&["mount", "--bind", other.path().to_str().unwrap()], &bound);
        if is_killed {
            abandon_run(run);
        } else {
            let error = run.close().unwrap_err();
            assert!(
                matches!(&error, CloseRunError::Mounted { mount } if *mount == bound),
                "{error}"
            );
        }
        RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
        let (is_left, is_bound) = (notes.exists(), bound.join("notes").exists());
        run_mount_command(&["umount"], &bound);
        assert!(is_left && is_bound);
        RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
        assert!(file_names(place.path()).is_empty());
    }
}

#[test]
fn no_volume_is_opened_or_removed_behind_a_link() {
    let (place, chosen) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let elsewhere = tempfile::tempdir().unwrap();
    let deployment = chosen.path().join(test_consumer().deployment);
    let run = create_run(place.path(), Some(chosen.path()));
    symlink(elsewhere.path(), &deployment).unwrap();
    let error = run.open_volume(test_consumer()).unwrap_err();
    assert!(matches!(&error, PublishError::Mount(TmpfsMountError::SystemCall { .. })), "{error}");
    assert!(file_names(elsewhere.path()).is_empty());

    let volume = elsewhere.path().join(test_consumer().volume);
    fs::create_dir(&volume).unwrap();
    abandon_run(run);
    RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
    assert!(volume.exists());
    assert!(file_names(place.path()).is_empty());
}

/// Runs a mount(8) command on `target`.
fn run_mount_command(arguments: &[&str], target: &Path) {
    let mut command = std::process::Command::new(arguments[0]);
    assert!(command.args(&arguments[1..]).arg(target).status().unwrap().success());
}

#[test]
fn volume_that_cannot_be_removed_does_not_block_other_removals() {
    let (place, chosen) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = create_run(place.path(), Some(chosen.path()));
    let (open, file) = publish_test_volume(&run);
    // A process that may not mount cannot cover a volume with another file system.
    if !open.is_tmpfs {
        return;
    }
    drop(open);
    let foreign = chosen.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    run_mount_command(&["mount", "-t", "proc", "proc"], &foreign);
    run.volume_paths.lock().insert(0, foreign.clone());
    let error = run.close().unwrap_err();
    run_mount_command(&["umount"], &foreign);
    assert!(!file.exists());
    assert!(matches!(&error, CloseRunError::Volumes { volumes, .. } if *volumes == [foreign]));
    RunDirectory::remove_abandoned(place.path(), &SystemClock::shared());
    assert!(file_names(place.path()).is_empty(), "the next run removes what is left");
}
