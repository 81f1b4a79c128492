use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, ManualClock};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

struct World {
    dir: TempDir,
    clock: ManualClock,
}

type Files<'a> = &'a [(&'a str, &'a str)];

impl World {
    fn new() -> Self {
        let start = "2026-11-21T12:00:00Z".parse().unwrap();
        // In memory where possible: flushing to a disk a thousand times takes long.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { dir, clock: ManualClock::starting_at(start) }
    }

    fn open(&self) -> Volume {
        self.open_with(Fuse::default())
    }

    fn open_with(&self, fuse: Fuse) -> Volume {
        Volume::with_fuse(self.dir.path(), Arc::new(self.clock.clone()), fuse).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a reader sees, by path; directories of the layout itself left out.
    fn seen(&self) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with("..") {
                see(&self.path(&name), &name, &mut seen);
            }
        }
        seen
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn see(path: &Path, name: &str, seen: &mut BTreeMap<String, String>) {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let below = format!("{name}/{}", entry.file_name().to_str().unwrap());
                see(&entry.path(), &below, seen);
            }
        }
        Ok(_) => {
            seen.insert(name.to_owned(), fs::read_to_string(path).unwrap());
        }
        // A link that was made before the swap, or outlived one, leads nowhere.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

fn entries<'a>(files: Files<'a>) -> Vec<FileEntry<'a>> {
    let entry = |(path, content): &(&str, &'a str)| {
        FileEntry::new(path.parse().unwrap(), content.as_bytes(), 0o644)
    };
    files.iter().map(entry).collect()
}

fn expected(files: Files<'_>) -> BTreeMap<String, String> {
    files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

const FIRST: Files<'static> =
    &[("cert", "one"), ("tls/key", "k1"), ("tls/deep/ca", "c1"), ("old", "x")];
const SECOND: Files<'static> =
    &[("cert", "two!"), ("tls/key", "k2"), ("new", "n"), ("more/a", "a")];

#[test]
fn a_publish_has_the_layout_of_the_atomic_writer() {
    let world = World::new();
    let published = world.open().publish(&entries(FIRST)).unwrap();
    assert_eq!(published.changed, Changed::Content);
    assert_eq!(published.bytes, 8);
    assert_eq!(published.generation.as_str(), "..2026_11_21_12_00_00.1");
    assert_eq!(world.names(), ["..2026_11_21_12_00_00.1", "..data", "cert", "old", "tls"]);
    assert_eq!(
        fs::read_link(world.path("..data")).unwrap().to_str(),
        Some(published.generation.as_str())
    );
    assert_eq!(fs::read_link(world.path("tls")).unwrap().to_str(), Some("..data/tls"));
    assert_eq!(world.seen(), expected(FIRST));
    let mode = fs::metadata(world.path("tls/deep")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_second_publish_swaps_the_content_drops_stale_links_and_keeps_the_first_generation() {
    let world = World::new();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    let published = volume.publish(&entries(SECOND)).unwrap();
    assert_eq!((published.retired, published.generation.number()), (1, 2));
    assert_eq!(world.seen(), expected(SECOND));
    assert!(!world.names().contains(&"old".to_owned()));
    let retired = fs::read_to_string(world.path("..2026_11_21_12_00_00.1/tls/deep/ca")).unwrap();
    assert_eq!(retired, "c1");
}

#[test]
fn equal_content_writes_nothing_at_all() {
    let world = World::new();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    volume.publish(&entries(SECOND)).unwrap();

    // A fuse of no call: the first call that would change the disk fails the publish.
    let mut volume =
        Volume { directory: Directory::open(world.dir.path(), Fuse::of(0)).unwrap(), ..volume };
    let published = volume.publish(&entries(SECOND)).unwrap();
    assert_eq!(published.changed, Changed::Nothing);
    assert_eq!((published.retired, published.bytes), (1, 0));
    assert!(volume.publish(&entries(FIRST)).is_err());
}

#[test]
fn a_change_of_mode_alone_is_applied_in_place() {
    let world = World::new();
    let mut volume = world.open();
    let mut files = entries(FIRST);
    files[1].mode = 0;
    let first = volume.publish(&files).unwrap();
    files[0].mode = 0o400;
    files[1].mode = 0o440;
    let second = volume.publish(&files).unwrap();
    let as_root = rustix::process::geteuid().is_root();
    // Who is not root cannot read a file of mode 0 back, and has to write it anew.
    assert_eq!(second.changed, if as_root { Changed::Attributes } else { Changed::Content });
    assert_eq!(second.generation == first.generation, as_root);
    for (path, mode) in [("cert", 0o400), ("tls/key", 0o440), ("old", 0o644)] {
        let found = fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}");
    }
    assert_eq!(volume.publish(&files).unwrap().changed, Changed::Nothing);
}

#[test]
fn a_group_is_given_and_taken_back() {
    let world = World::new();
    let mut volume = world.open();
    let own = rustix::process::getegid().as_raw();
    // In a user namespace there may be no other group than one's own.
    let probe = world.path("probe");
    fs::write(&probe, "").unwrap();
    let group = if chown(&probe, None, Some(4242)).is_ok() { 4242 } else { own };
    let mut files = entries(FIRST);
    files[0].gid = Some(group);
    files[0].mode = 0o640;
    volume.publish(&files).unwrap();
    assert_eq!(fs::metadata(world.path("cert")).unwrap().gid(), group);
    files[0].gid = None;
    let changed = volume.publish(&files).unwrap().changed;
    assert_eq!(changed, if group == own { Changed::Nothing } else { Changed::Attributes });
    let metadata = fs::metadata(world.path("cert")).unwrap();
    assert_eq!((metadata.gid(), metadata.permissions().mode() & 0o7777), (own, 0o640));
}

#[test]
fn what_stands_where_a_link_belongs_is_replaced_and_foreign_files_are_kept() {
    let world = World::new();
    fs::write(world.path("cert"), "written by a provider").unwrap();
    fs::create_dir_all(world.path("tls/deep")).unwrap();
    fs::write(world.path("tls/deep/ca"), "written by a provider").unwrap();
    symlink("/etc/passwd", world.path("old")).unwrap();
    fs::write(world.path("foreign"), "kept").unwrap();
    world.open().publish(&entries(FIRST)).unwrap();
    let mut all = expected(FIRST);
    all.insert("foreign".to_owned(), "kept".to_owned());
    assert_eq!(world.seen(), all);
    assert!(fs::symlink_metadata(world.path("tls")).unwrap().is_symlink());
    assert!(!world.names().iter().any(|name| name.ends_with("_tmp")));
}

#[test]
fn a_file_becomes_a_directory_and_a_file_again() {
    let world = World::new();
    let mut volume = world.open();
    for files in [&[("a", "1")][..], &[("a/b", "2")], &[("a", "3")]] {
        volume.publish(&entries(files)).unwrap();
        assert_eq!(world.seen(), expected(files));
    }
}

#[test]
fn content_that_was_tampered_with_is_written_again() {
    let world = World::new();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    fs::write(world.path("cert"), "eno").unwrap();
    assert_eq!(volume.publish(&entries(FIRST)).unwrap().changed, Changed::Content);
    fs::remove_dir_all(world.path("..2026_11_21_12_00_00.2")).unwrap();
    assert_eq!(volume.current().unwrap(), None);
    assert_eq!(volume.publish(&entries(FIRST)).unwrap().changed, Changed::Content);
    assert_eq!(world.seen(), expected(FIRST));
}

#[test]
fn a_payload_that_is_refused_changes_nothing_and_tells_every_problem() {
    let world = World::new();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    let error = volume.publish(&entries(&[("a", "1"), ("a", "2"), ("a/b", "3")])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`a` is there twice") && text.contains("`a/b` lies under `a`"), "{text}");
    assert!(error.hint().is_some() && !error.is_transient());
    assert!(matches!(volume.publish(&[]), Err(PublishError::Payload { .. })));
    assert_eq!(world.seen(), expected(FIRST));
}

/// Runs `act` with a crash before the first changing call, then the second, and so on until it
/// is never reached; gives how many crashes there were.
fn crash_everywhere(
    mut act: impl FnMut(&World, Volume) -> bool,
    check: impl Fn(&World, usize),
) -> usize {
    for crash in 0.. {
        let world = World::new();
        let mut volume = world.open();
        volume.publish(&entries(&[("cert", "zero"), ("gone", "z")])).unwrap();
        volume.publish(&entries(FIRST)).unwrap();
        let fuse = Fuse::of(crash);
        let done = act(&world, world.open_with(fuse.clone()));
        check(&world, crash);
        if done {
            return crash;
        }
        assert!(fuse.is_spent());
    }
    unreachable!("the fuse is longer than any publish")
}

#[test]
fn after_a_crash_at_any_step_a_reader_sees_one_whole_generation_and_the_next_publish_heals() {
    let crashes = crash_everywhere(
        |_, mut volume| volume.publish(&entries(SECOND)).is_ok(),
        |world, crash| {
            let seen = world.seen();
            assert!(seen == expected(FIRST) || seen == expected(SECOND), "crash {crash}: {seen:?}");
            world.open().publish(&entries(SECOND)).unwrap();
            assert_eq!(world.seen(), expected(SECOND), "crash {crash}");
            let links = ["cert", "more", "new", "tls"];
            let names = world.names();
            let (layout, tops): (Vec<_>, Vec<_>) =
                names.iter().partition(|name| name.starts_with(".."));
            assert_eq!(tops, links, "crash {crash}");
            // Two that were current before, the new one, and `..data`: nothing was left over.
            assert_eq!(layout.len(), 4, "crash {crash}: {layout:?}");
        },
    );
    assert!(crashes > 25, "only {crashes} steps were crashed at");
}

#[test]
fn after_a_crash_at_any_step_the_old_content_can_be_published_again() {
    crash_everywhere(
        |_, mut volume| volume.publish(&entries(SECOND)).is_ok(),
        |world, crash| {
            world.open().publish(&entries(FIRST)).unwrap();
            assert_eq!(world.seen(), expected(FIRST), "crash {crash}");
        },
    );
}

#[test]
fn a_crash_at_any_step_of_the_first_publish_shows_nothing_or_everything() {
    for crash in 0.. {
        let world = World::new();
        fs::create_dir(world.path("tls")).unwrap();
        let done = world.open_with(Fuse::of(crash)).publish(&entries(FIRST)).is_ok();
        let mut seen = world.seen();
        if world.open().current().unwrap().is_some() {
            // A directory that stood in the way is replaced after the swap.
            seen.retain(|path, _| !path.starts_with("tls"));
            assert_eq!(seen, expected(&[("cert", "one"), ("old", "x")]), "crash {crash}");
        } else {
            assert_eq!(seen, BTreeMap::new(), "crash {crash}");
        }
        world.open().publish(&entries(FIRST)).unwrap();
        assert_eq!(world.seen(), expected(FIRST), "crash {crash}");
        if done {
            break;
        }
    }
}

#[test]
fn unpublish_leaves_nothing_and_can_be_repeated_after_a_crash_at_any_step() {
    for crash in 0.. {
        let world = World::new();
        let mut volume = world.open();
        volume.publish(&entries(FIRST)).unwrap();
        volume.publish(&entries(SECOND)).unwrap();
        let done = world.open_with(Fuse::of(crash)).unpublish().is_ok();
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
fn unpublish_keeps_what_is_not_ours() {
    let world = World::new();
    fs::write(world.path("foreign"), "kept").unwrap();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    volume.unpublish().unwrap();
    assert_eq!(world.names(), ["foreign"]);
}

#[test]
fn retired_content_is_truncated_after_the_grace_and_the_current_content_never() {
    let world = World::new();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    world.clock.advance(Duration::from_hours(1));
    volume.publish(&entries(SECOND)).unwrap();
    let retired = world.path("..2026_11_21_12_00_00.1/cert");

    world.clock.advance(Duration::from_mins(1));
    let scrubbed = volume.scrub().unwrap();
    assert_eq!((scrubbed.files, fs::read_to_string(&retired).unwrap().as_str()), (0, "one"));
    let due = scrubbed.next.unwrap();
    assert!(due.duration_since(world.clock.now()) <= jiff::SignedDuration::from_secs(1));

    world.clock.advance(Duration::from_secs(1));
    // A new process finds the retired generation again.
    let scrubbed = world.open().scrub().unwrap();
    assert_eq!(scrubbed, Scrubbed { files: 4, bytes: 8, shown: 0, next: None });
    assert_eq!(fs::metadata(&retired).unwrap().len(), 0);
    assert_eq!(world.seen(), expected(SECOND));
    assert_eq!(world.open().scrub().unwrap(), Scrubbed::default());
    assert_eq!(SCRUB_GRACE.as_secs(), 60);
}

#[test]
fn a_retired_file_that_fails_keeps_no_watcher_of_another_from_hearing() {
    let world = World::new();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    volume.publish(&entries(SECOND)).unwrap();
    let [first, second] = [1, 2].map(|n| world.path(&format!("..2026_11_21_12_00_00.{n}")));
    // A socket, which nobody can open, where a file was.
    fs::remove_file(first.join("cert")).unwrap();
    std::os::unix::net::UnixListener::bind(first.join("cert")).unwrap();
    let others = ["old", "tls/key", "tls/deep/ca"].map(|name| first.join(name));
    let others: Vec<_> = others.into_iter().chain([second.join("more/a")]).collect();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    for path in &others {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(long_ago).unwrap();
    }

    let error = volume.publish(&entries(FIRST)).unwrap_err();
    assert!(format!("{error:?}").contains("00.1/cert"), "{error:?}");
    assert_eq!(world.seen(), expected(FIRST));
    for path in others {
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > long_ago, "{}", path.display());
    }
    // Somebody was not told, so the next publish tells again.
    assert!(volume.publish(&entries(FIRST)).is_err());
    fs::remove_file(first.join("cert")).unwrap();
    assert_eq!(volume.publish(&entries(FIRST)).unwrap().changed, Changed::Nothing);
}

#[test]
fn a_retired_file_that_fails_keeps_no_other_from_being_scrubbed() {
    for flaw in 0..FIRST.len() {
        let world = World::new();
        let mut volume = world.open();
        volume.publish(&entries(FIRST)).unwrap();
        volume.publish(&entries(SECOND)).unwrap();
        world.clock.advance(Duration::from_mins(2));
        world.open_with(Fuse::flawed_after(flaw)).scrub().unwrap_err();
        let retired = world.path("..2026_11_21_12_00_00.1");
        let has_content = |name: &str| fs::metadata(retired.join(name)).unwrap().len() > 0;
        assert_eq!(FIRST.iter().filter(|(name, _)| has_content(name)).count(), 1, "{flaw}");
        assert_eq!(volume.scrub().unwrap().files, 1, "{flaw}");
    }
}

#[test]
fn who_reads_a_file_of_an_earlier_writer_reads_it_to_its_end() {
    use std::io::Read;

    for crash in 0.. {
        let world = World::new();
        fs::create_dir(world.path("tls")).unwrap();
        fs::write(world.path("tls/key"), "theirs").unwrap();
        let mut open = fs::File::open(world.path("tls/key")).unwrap();
        let done = world.open_with(Fuse::of(crash)).publish(&entries(FIRST)).is_ok();
        world.open().publish(&entries(FIRST)).unwrap();
        let mut read = String::new();
        open.read_to_string(&mut read).unwrap();
        assert_eq!(read, "theirs", "crash {crash}");
        assert_eq!(world.seen(), expected(FIRST), "crash {crash}");
        if done {
            break;
        }
    }
}

#[test]
fn a_clock_that_goes_back_neither_reorders_generations_nor_scrubs_early() {
    let world = World::new();
    let mut volume = world.open();
    world.clock.advance(Duration::from_hours(2));
    volume.publish(&entries(FIRST)).unwrap();
    let earlier = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
    let mut volume = Volume::open(world.dir.path(), Arc::new(earlier)).unwrap();
    let published = volume.publish(&entries(SECOND)).unwrap();
    assert_eq!(published.generation.as_str(), "..2026_11_21_12_00_00.2");
    assert_eq!(volume.scrub().unwrap().files, 0);
    assert_eq!(world.open().publish(&entries(SECOND)).unwrap().retired, 1);
    assert_eq!(world.seen(), expected(SECOND));
}

#[test]
fn a_volume_of_another_writer_is_taken_over() {
    let world = World::new();
    let generation = "..2026_11_20_10_00_00.3285412978";
    fs::create_dir(world.path(generation)).unwrap();
    fs::write(world.path(generation).join("cert"), "theirs").unwrap();
    symlink(generation, world.path("..data")).unwrap();
    symlink("..data/cert", world.path("cert")).unwrap();
    fs::set_permissions(world.path(generation).join("cert"), fs::Permissions::from_mode(0o644))
        .unwrap();
    let mut volume = world.open();
    let published = volume.publish(&entries(&[("cert", "theirs")])).unwrap();
    assert_eq!(published.changed, Changed::Nothing);
    let published = volume.publish(&entries(&[("cert", "ours")])).unwrap();
    assert_eq!((published.generation.number(), published.retired), (3_285_412_979, 1));
}

#[test]
fn a_link_planted_in_a_generation_is_not_followed() {
    let world = World::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("key"), "precious").unwrap();
    let mut volume = world.open();
    volume.publish(&entries(FIRST)).unwrap();
    let generation = world.path("..2026_11_21_12_00_00.1");
    fs::remove_file(generation.join("tls/key")).unwrap();
    symlink(outside.path().join("key"), generation.join("tls/key")).unwrap();
    fs::remove_dir_all(generation.join("tls/deep")).unwrap();
    symlink(outside.path(), generation.join("tls/deep")).unwrap();

    assert_eq!(volume.publish(&entries(FIRST)).unwrap().changed, Changed::Content);
    world.clock.advance(Duration::from_mins(2));
    volume.scrub().unwrap();
    volume.unpublish().unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("key")).unwrap(), "precious");
}

/// A set of files in which nothing conflicts: each of these paths has its own top.
fn any_files() -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    let path = prop::sample::select(vec!["a", "b/x", "b/y", "c/d/e", "f"]);
    prop::collection::btree_map(path, "[a-z]{0,3}", 1..5)
}

proptest! {
    #[test]
    fn whatever_is_published_and_wherever_it_crashes_a_reader_sees_one_whole_set(
        steps in prop::collection::vec((any_files(), prop::option::of(0usize..40)), 1..6)
    ) {
        let world = World::new();
        let mut before = BTreeMap::new();
        for (files, crash) in steps {
            let pairs: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let fuse = crash.map_or_else(Fuse::default, Fuse::of);
            let done = world.open_with(fuse).publish(&entries(&pairs)).is_ok();
            let seen = world.seen();
            let after = expected(&pairs);
            prop_assert!(seen == after || (!done && seen == before), "{:?}", seen);
            before = seen;
            world.clock.advance(Duration::from_secs(45));
            world.open().scrub().unwrap();
        }
    }
}
