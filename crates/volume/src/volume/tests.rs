use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, ErrorHint as _, ManualClock};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

struct VolumeFixture {
    dir: TempDir,
    clock: ManualClock,
}

type TestFiles<'a> = &'a [(&'a str, &'a str)];

impl VolumeFixture {
    fn new() -> Self {
        let start = "2026-11-21T12:00:00Z".parse().unwrap();
        // In memory if possible: a thousand flushes to a disk take long.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { dir, clock: ManualClock::starting_at(start) }
    }

    fn open(&self) -> AtomicVolume {
        self.open_with_fail_point(FailPoint::default())
    }

    fn open_with_fail_point(&self, fail_point: FailPoint) -> AtomicVolume {
        AtomicVolume::open_with_fail_point(
            self.dir.path(),
            Arc::new(self.clock.clone()),
            fail_point,
        )
        .unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The files that a reader sees, by path, without the directories of the layout.
    fn visible_files(&self) -> BTreeMap<String, String> {
        let mut observed = BTreeMap::new();
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with("..") {
                read_files(&self.path(&name), &name, &mut observed);
            }
        }
        observed
    }

    fn entry_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn read_files(path: &Path, name: &str, observed: &mut BTreeMap<String, String>) {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let below = format!("{name}/{}", entry.file_name().to_str().unwrap());
                read_files(&entry.path(), &below, observed);
            }
        }
        Ok(_) => {
            observed.insert(name.to_owned(), fs::read_to_string(path).unwrap());
        }
        // A link that was created before the swap, or outlived one, is dangling.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

fn file_entries<'a>(files: TestFiles<'a>) -> Vec<FileEntry<'a>> {
    let entry = |(path, content): &(&str, &'a str)| {
        FileEntry::new(path.parse().unwrap(), content.as_bytes(), 0o644)
    };
    files.iter().map(entry).collect()
}

fn expected_files(files: TestFiles<'_>) -> BTreeMap<String, String> {
    files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

const FIRST_FILES: TestFiles<'static> =
    &[("cert", "one"), ("tls/key", "k1"), ("tls/deep/ca", "c1"), ("old", "x")];
const SECOND_FILES: TestFiles<'static> =
    &[("cert", "two!"), ("tls/key", "k2"), ("new", "n"), ("more/a", "a")];

#[test]
fn a_publish_has_the_layout_of_the_atomic_writer() {
    let world = VolumeFixture::new();
    let published = world.open().publish(&file_entries(FIRST_FILES)).unwrap();
    assert_eq!(published.change, VolumeChange::Content);
    assert_eq!(published.bytes_written, 8);
    assert_eq!(published.generation.as_str(), "..2026_11_21_12_00_00.1");
    assert_eq!(world.entry_names(), ["..2026_11_21_12_00_00.1", "..data", "cert", "old", "tls"]);
    assert_eq!(
        fs::read_link(world.path("..data")).unwrap().to_str(),
        Some(published.generation.as_str())
    );
    assert_eq!(fs::read_link(world.path("tls")).unwrap().to_str(), Some("..data/tls"));
    assert_eq!(world.visible_files(), expected_files(FIRST_FILES));
    let mode = fs::metadata(world.path("tls/deep")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_second_publish_swaps_the_content_drops_stale_links_and_keeps_the_first_generation() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    let published = volume.publish(&file_entries(SECOND_FILES)).unwrap();
    assert_eq!((published.retired_generations, published.generation.number()), (1, 2));
    assert_eq!(world.visible_files(), expected_files(SECOND_FILES));
    assert!(!world.entry_names().contains(&"old".to_owned()));
    let retired = fs::read_to_string(world.path("..2026_11_21_12_00_00.1/tls/deep/ca")).unwrap();
    assert_eq!(retired, "c1");
}

#[test]
fn equal_content_writes_nothing_at_all() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    volume.publish(&file_entries(SECOND_FILES)).unwrap();

    // The first call that changes the disk fails the publish.
    let mut volume = AtomicVolume {
        directory: OpenDirectory::open(world.dir.path(), FailPoint::failing_after(0)).unwrap(),
        ..volume
    };
    let published = volume.publish(&file_entries(SECOND_FILES)).unwrap();
    assert_eq!(published.change, VolumeChange::Nothing);
    assert_eq!((published.retired_generations, published.bytes_written), (1, 0));
    assert!(volume.publish(&file_entries(FIRST_FILES)).is_err());
}

#[test]
fn a_change_of_mode_alone_is_applied_in_place() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    let mut files = file_entries(FIRST_FILES);
    files[1].mode = 0;
    let first = volume.publish(&files).unwrap();
    files[0].mode = 0o400;
    files[1].mode = 0o440;
    let second = volume.publish(&files).unwrap();
    let as_root = rustix::process::geteuid().is_root();
    // A process that is not root cannot read a file of mode 0 back, so it writes it again.
    assert_eq!(
        second.change,
        if as_root { VolumeChange::Attributes } else { VolumeChange::Content }
    );
    assert_eq!(second.generation == first.generation, as_root);
    for (path, mode) in [("cert", 0o400), ("tls/key", 0o440), ("old", 0o644)] {
        let found = fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}");
    }
    assert_eq!(volume.publish(&files).unwrap().change, VolumeChange::Nothing);
}

#[test]
fn a_group_is_given_and_taken_back() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    let own = rustix::process::getegid().as_raw();
    // A user namespace may have only the caller's own group.
    let probe = world.path("probe");
    fs::write(&probe, "").unwrap();
    let group = if chown(&probe, None, Some(4242)).is_ok() { 4242 } else { own };
    let mut files = file_entries(FIRST_FILES);
    files[0].gid = Some(group);
    files[0].mode = 0o640;
    volume.publish(&files).unwrap();
    assert_eq!(fs::metadata(world.path("cert")).unwrap().gid(), group);
    files[0].gid = None;
    let changed = volume.publish(&files).unwrap().change;
    assert_eq!(
        changed,
        if group == own { VolumeChange::Nothing } else { VolumeChange::Attributes }
    );
    let metadata = fs::metadata(world.path("cert")).unwrap();
    assert_eq!((metadata.gid(), metadata.permissions().mode() & 0o7777), (own, 0o640));
}

#[test]
fn entries_in_place_of_links_are_replaced_and_foreign_files_are_kept() {
    let world = VolumeFixture::new();
    fs::write(world.path("cert"), "written by a provider").unwrap();
    fs::create_dir_all(world.path("tls/deep")).unwrap();
    fs::write(world.path("tls/deep/ca"), "written by a provider").unwrap();
    symlink("/etc/passwd", world.path("old")).unwrap();
    fs::write(world.path("foreign"), "kept").unwrap();
    world.open().publish(&file_entries(FIRST_FILES)).unwrap();
    let mut all = expected_files(FIRST_FILES);
    all.insert("foreign".to_owned(), "kept".to_owned());
    assert_eq!(world.visible_files(), all);
    assert!(fs::symlink_metadata(world.path("tls")).unwrap().is_symlink());
    assert!(!world.entry_names().iter().any(|name| name.ends_with("_tmp")));
}

#[test]
fn a_file_becomes_a_directory_and_a_file_again() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    for files in [&[("a", "1")][..], &[("a/b", "2")], &[("a", "3")]] {
        volume.publish(&file_entries(files)).unwrap();
        assert_eq!(world.visible_files(), expected_files(files));
    }
}

#[test]
fn content_that_was_tampered_with_is_written_again() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    fs::write(world.path("cert"), "eno").unwrap();
    assert_eq!(volume.publish(&file_entries(FIRST_FILES)).unwrap().change, VolumeChange::Content);
    fs::remove_dir_all(world.path("..2026_11_21_12_00_00.2")).unwrap();
    assert_eq!(volume.current_generation().unwrap(), None);
    assert_eq!(volume.publish(&file_entries(FIRST_FILES)).unwrap().change, VolumeChange::Content);
    assert_eq!(world.visible_files(), expected_files(FIRST_FILES));
}

#[test]
fn rejected_payload_changes_nothing_and_reports_every_problem() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    let error = volume.publish(&file_entries(&[("a", "1"), ("a", "2"), ("a/b", "3")])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`a` appears twice") && text.contains("`a/b` is below `a`"), "{text}");
    assert!(error.hint().is_some() && !error.is_transient());
    assert!(matches!(volume.publish(&[]), Err(PublishError::InvalidPayload { .. })));
    assert_eq!(world.visible_files(), expected_files(FIRST_FILES));
}

/// Runs `act` with a crash before the first changing call, then the second, and so on until no
/// crash is reached. Returns the number of crashes.
fn crash_at_every_call(
    mut act: impl FnMut(&VolumeFixture, AtomicVolume) -> bool,
    check: impl Fn(&VolumeFixture, usize),
) -> usize {
    for crash in 0.. {
        let world = VolumeFixture::new();
        let mut volume = world.open();
        volume.publish(&file_entries(&[("cert", "zero"), ("gone", "z")])).unwrap();
        volume.publish(&file_entries(FIRST_FILES)).unwrap();
        let fail_point = FailPoint::failing_after(crash);
        let done = act(&world, world.open_with_fail_point(fail_point.clone()));
        check(&world, crash);
        if done {
            return crash;
        }
        assert!(fail_point.is_exhausted());
    }
    unreachable!("the fail point was reached in every publish")
}

#[test]
fn crash_at_any_step_shows_one_whole_generation_and_the_next_publish_repairs() {
    let crashes = crash_at_every_call(
        |_, mut volume| volume.publish(&file_entries(SECOND_FILES)).is_ok(),
        |world, crash| {
            let observed = world.visible_files();
            assert!(
                observed == expected_files(FIRST_FILES) || observed == expected_files(SECOND_FILES),
                "crash {crash}: {observed:?}"
            );
            world.open().publish(&file_entries(SECOND_FILES)).unwrap();
            assert_eq!(world.visible_files(), expected_files(SECOND_FILES), "crash {crash}");
            let links = ["cert", "more", "new", "tls"];
            let names = world.entry_names();
            let (layout, tops): (Vec<_>, Vec<_>) =
                names.iter().partition(|name| name.starts_with(".."));
            assert_eq!(tops, links, "crash {crash}");
            // Two generations that were current, the new one, and `..data`: no leftovers.
            assert_eq!(layout.len(), 4, "crash {crash}: {layout:?}");
        },
    );
    assert!(crashes > 25, "only {crashes} steps were crashed at");
}

#[test]
fn after_a_crash_at_any_step_the_old_content_can_be_published_again() {
    crash_at_every_call(
        |_, mut volume| volume.publish(&file_entries(SECOND_FILES)).is_ok(),
        |world, crash| {
            world.open().publish(&file_entries(FIRST_FILES)).unwrap();
            assert_eq!(world.visible_files(), expected_files(FIRST_FILES), "crash {crash}");
        },
    );
}

#[test]
fn a_crash_at_any_step_of_the_first_publish_shows_nothing_or_everything() {
    for crash in 0.. {
        let world = VolumeFixture::new();
        fs::create_dir(world.path("tls")).unwrap();
        let done = world
            .open_with_fail_point(FailPoint::failing_after(crash))
            .publish(&file_entries(FIRST_FILES))
            .is_ok();
        let mut observed = world.visible_files();
        if world.open().current_generation().unwrap().is_some() {
            // A directory that blocks a link is replaced after the swap.
            observed.retain(|path, _| !path.starts_with("tls"));
            assert_eq!(observed, expected_files(&[("cert", "one"), ("old", "x")]), "crash {crash}");
        } else {
            assert_eq!(observed, BTreeMap::new(), "crash {crash}");
        }
        world.open().publish(&file_entries(FIRST_FILES)).unwrap();
        assert_eq!(world.visible_files(), expected_files(FIRST_FILES), "crash {crash}");
        if done {
            break;
        }
    }
}

#[test]
fn unpublish_leaves_nothing_and_can_be_repeated_after_a_crash_at_any_step() {
    for crash in 0.. {
        let world = VolumeFixture::new();
        let mut volume = world.open();
        volume.publish(&file_entries(FIRST_FILES)).unwrap();
        volume.publish(&file_entries(SECOND_FILES)).unwrap();
        let done = world.open_with_fail_point(FailPoint::failing_after(crash)).unpublish().is_ok();
        if !done {
            world.open().unpublish().unwrap();
        }
        assert!(!world.dir.path().exists(), "crash {crash}");
        if done {
            break;
        }
    }
}

#[test]
fn unpublish_keeps_foreign_files() {
    let world = VolumeFixture::new();
    fs::write(world.path("foreign"), "kept").unwrap();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    volume.unpublish().unwrap();
    assert_eq!(world.entry_names(), ["foreign"]);
}

#[test]
fn retired_content_is_truncated_after_the_grace_and_the_current_content_never() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    world.clock.advance(Duration::from_hours(1));
    volume.publish(&file_entries(SECOND_FILES)).unwrap();
    let retired = world.path("..2026_11_21_12_00_00.1/cert");

    world.clock.advance(Duration::from_mins(1));
    let scrubbed = volume.scrub().unwrap();
    assert_eq!(
        (scrubbed.truncated_files, fs::read_to_string(&retired).unwrap().as_str()),
        (0, "one")
    );
    let due = scrubbed.next_scrub.unwrap();
    assert!(due.duration_since(world.clock.now()) <= jiff::SignedDuration::from_secs(1));

    world.clock.advance(Duration::from_secs(1));
    // A new process finds the retired generation again.
    let scrubbed = world.open().scrub().unwrap();
    assert_eq!(
        scrubbed,
        ScrubOutcome {
            truncated_files: 4,
            truncated_bytes: 8,
            mounted_generations: 0,
            next_scrub: None
        }
    );
    assert_eq!(fs::metadata(&retired).unwrap().len(), 0);
    assert_eq!(world.visible_files(), expected_files(SECOND_FILES));
    assert_eq!(world.open().scrub().unwrap(), ScrubOutcome::default());
    assert_eq!(SCRUB_GRACE.as_secs(), 60);
}

#[test]
fn failing_retired_file_does_not_stop_notification_of_other_watchers() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    volume.publish(&file_entries(SECOND_FILES)).unwrap();
    let [first, second] = [1, 2].map(|n| world.path(&format!("..2026_11_21_12_00_00.{n}")));
    // A socket, which cannot be opened, replaces a file.
    fs::remove_file(first.join("cert")).unwrap();
    std::os::unix::net::UnixListener::bind(first.join("cert")).unwrap();
    let others = ["old", "tls/key", "tls/deep/ca"].map(|name| first.join(name));
    let others: Vec<_> = others.into_iter().chain([second.join("more/a")]).collect();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    for path in &others {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(long_ago).unwrap();
    }

    let error = volume.publish(&file_entries(FIRST_FILES)).unwrap_err();
    assert!(format!("{error:?}").contains("00.1/cert"), "{error:?}");
    assert_eq!(world.visible_files(), expected_files(FIRST_FILES));
    for path in others {
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > long_ago, "{}", path.display());
    }
    // A watch was not triggered, so the next publish triggers all again.
    assert!(volume.publish(&file_entries(FIRST_FILES)).is_err());
    fs::remove_file(first.join("cert")).unwrap();
    assert_eq!(volume.publish(&file_entries(FIRST_FILES)).unwrap().change, VolumeChange::Nothing);
}

#[test]
fn failing_retired_file_does_not_stop_scrubbing_of_others() {
    for flaw in 0..FIRST_FILES.len() {
        let world = VolumeFixture::new();
        let mut volume = world.open();
        volume.publish(&file_entries(FIRST_FILES)).unwrap();
        volume.publish(&file_entries(SECOND_FILES)).unwrap();
        world.clock.advance(Duration::from_mins(2));
        world.open_with_fail_point(FailPoint::failing_once_after(flaw)).scrub().unwrap_err();
        let retired = world.path("..2026_11_21_12_00_00.1");
        let has_content = |name: &str| fs::metadata(retired.join(name)).unwrap().len() > 0;
        assert_eq!(FIRST_FILES.iter().filter(|(name, _)| has_content(name)).count(), 1, "{flaw}");
        assert_eq!(volume.scrub().unwrap().truncated_files, 1, "{flaw}");
    }
}

#[test]
fn open_file_of_an_earlier_writer_stays_readable() {
    use std::io::Read;

    for crash in 0.. {
        let world = VolumeFixture::new();
        fs::create_dir(world.path("tls")).unwrap();
        fs::write(world.path("tls/key"), "theirs").unwrap();
        let mut open = fs::File::open(world.path("tls/key")).unwrap();
        let done = world
            .open_with_fail_point(FailPoint::failing_after(crash))
            .publish(&file_entries(FIRST_FILES))
            .is_ok();
        world.open().publish(&file_entries(FIRST_FILES)).unwrap();
        let mut read = String::new();
        open.read_to_string(&mut read).unwrap();
        assert_eq!(read, "theirs", "crash {crash}");
        assert_eq!(world.visible_files(), expected_files(FIRST_FILES), "crash {crash}");
        if done {
            break;
        }
    }
}

#[test]
fn a_clock_that_goes_back_neither_reorders_generations_nor_scrubs_early() {
    let world = VolumeFixture::new();
    let mut volume = world.open();
    world.clock.advance(Duration::from_hours(2));
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    let earlier = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
    let mut volume = AtomicVolume::open(world.dir.path(), Arc::new(earlier)).unwrap();
    let published = volume.publish(&file_entries(SECOND_FILES)).unwrap();
    assert_eq!(published.generation.as_str(), "..2026_11_21_12_00_00.2");
    assert_eq!(volume.scrub().unwrap().truncated_files, 0);
    assert_eq!(world.open().publish(&file_entries(SECOND_FILES)).unwrap().retired_generations, 1);
    assert_eq!(world.visible_files(), expected_files(SECOND_FILES));
}

#[test]
fn volume_of_another_writer_is_adopted() {
    let world = VolumeFixture::new();
    let generation = "..2026_11_20_10_00_00.3285412978";
    fs::create_dir(world.path(generation)).unwrap();
    fs::write(world.path(generation).join("cert"), "theirs").unwrap();
    symlink(generation, world.path("..data")).unwrap();
    symlink("..data/cert", world.path("cert")).unwrap();
    fs::set_permissions(world.path(generation).join("cert"), fs::Permissions::from_mode(0o644))
        .unwrap();
    let mut volume = world.open();
    let published = volume.publish(&file_entries(&[("cert", "theirs")])).unwrap();
    assert_eq!(published.change, VolumeChange::Nothing);
    let published = volume.publish(&file_entries(&[("cert", "ours")])).unwrap();
    assert_eq!((published.generation.number(), published.retired_generations), (3_285_412_979, 1));
}

#[test]
fn a_link_planted_in_a_generation_is_not_followed() {
    let world = VolumeFixture::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("key"), "precious").unwrap();
    let mut volume = world.open();
    volume.publish(&file_entries(FIRST_FILES)).unwrap();
    let generation = world.path("..2026_11_21_12_00_00.1");
    fs::remove_file(generation.join("tls/key")).unwrap();
    symlink(outside.path().join("key"), generation.join("tls/key")).unwrap();
    fs::remove_dir_all(generation.join("tls/deep")).unwrap();
    symlink(outside.path(), generation.join("tls/deep")).unwrap();

    assert_eq!(volume.publish(&file_entries(FIRST_FILES)).unwrap().change, VolumeChange::Content);
    world.clock.advance(Duration::from_mins(2));
    volume.scrub().unwrap();
    volume.unpublish().unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("key")).unwrap(), "precious");
}

/// A set of files without conflicts: each path has its own top-level name.
fn any_test_files() -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    let path = prop::sample::select(vec!["a", "b/x", "b/y", "c/d/e", "f"]);
    prop::collection::btree_map(path, "[a-z]{0,3}", 1..5)
}

proptest! {
    #[test]
    fn any_payload_and_any_crash_show_one_whole_generation(
        steps in prop::collection::vec((any_test_files(), prop::option::of(0usize..40)), 1..6)
    ) {
        let world = VolumeFixture::new();
        let mut before = BTreeMap::new();
        for (files, crash) in steps {
            let pairs: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let fail_point = crash.map_or_else(FailPoint::default, FailPoint::failing_after);
            let done = world.open_with_fail_point(fail_point).publish(&file_entries(&pairs)).is_ok();
            let observed = world.visible_files();
            let after = expected_files(&pairs);
            prop_assert!(observed == after || (!done && observed == before), "{:?}", observed);
            before = observed;
            world.clock.advance(Duration::from_secs(45));
            world.open().scrub().unwrap();
        }
    }
}
