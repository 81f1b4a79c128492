//! What a watcher of a file hears, with the kernel's own notifications.

#![cfg(test)]

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_node::{Changed, FileEntry, Volume};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tempfile::TempDir;

/// A watch on a path, as Go's fsnotify makes it: through the link, on the inode behind it.
struct Watcher(OwnedFd);

impl Watcher {
    fn of(path: &Path) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&queue, path, flags).unwrap();
        Self(queue)
    }

    /// Everything heard since the last call.
    fn heard(&self) -> ReadFlags {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut heard = ReadFlags::empty();
        loop {
            match reader.next() {
                Ok(event) => heard |= event.events(),
                Err(Errno::AGAIN) => return heard,
                Err(errno) => panic!("{errno}"),
            }
        }
    }
}

/// A directory in memory where there is one: flushing to a disk a thousand times takes long.
fn memory_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

struct World {
    dir: TempDir,
    clock: ManualClock,
    volume: Volume,
}

impl World {
    fn new() -> Self {
        let dir = memory_dir();
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let volume = Volume::open(dir.path(), Arc::new(clock.clone())).unwrap();
        Self { dir, clock, volume }
    }

    fn publish(&mut self, content: &str) -> Changed {
        let entry = |path: &str| FileEntry::new(path.parse().unwrap(), content.as_bytes(), 0o444);
        self.volume.publish(&[entry("credential"), entry("tls/key")]).unwrap().changed
    }

    fn watch(&self, name: &str) -> Watcher {
        Watcher::of(&self.dir.path().join(name))
    }
}

#[test]
fn a_watcher_of_the_first_generation_hears_a_write_at_every_one_of_a_hundred_publishes() {
    let mut world = World::new();
    world.publish("0");
    let watchers = ["credential", "tls/key"].map(|name| world.watch(name));
    for round in 1..=100 {
        world.publish(&round.to_string());
        for watcher in &watchers {
            let heard = watcher.heard();
            assert!(heard.contains(ReadFlags::MODIFY), "round {round}: {heard:?}");
            let lost = ReadFlags::IGNORED | ReadFlags::DELETE_SELF;
            assert!(!heard.intersects(lost), "round {round}: {heard:?}");
        }
        world.clock.advance(Duration::from_secs(40));
        world.volume.scrub().unwrap();
        for watcher in &watchers {
            watcher.heard();
        }
    }
    let first = world.dir.path().join("..1970_01_01_00_00_00.1/credential");
    assert_eq!(std::fs::metadata(first).unwrap().len(), 0);
}

#[test]
fn a_poke_changes_no_byte() {
    let mut world = World::new();
    world.publish("first");
    let retired = std::fs::canonicalize(world.dir.path().join("credential")).unwrap();
    world.publish("second");
    world.publish("third");
    assert_eq!(std::fs::read_to_string(retired).unwrap(), "first");
}

#[test]
fn scrubbing_wakes_and_keeps_the_watch_alive() {
    let mut world = World::new();
    world.publish("0");
    let watcher = world.watch("credential");
    world.publish("1");
    watcher.heard();
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(world.volume.scrub().unwrap().files, 2);
    assert!(watcher.heard().contains(ReadFlags::MODIFY));
    world.publish("2");
    assert!(watcher.heard().contains(ReadFlags::MODIFY));
}

#[test]
fn an_unchanged_publish_wakes_nobody() {
    let mut world = World::new();
    world.publish("0");
    let early = world.watch("credential");
    world.publish("1");
    let late = world.watch("credential");
    early.heard();
    assert_eq!(world.publish("1"), Changed::Nothing);
    assert_eq!((early.heard(), late.heard()), (ReadFlags::empty(), ReadFlags::empty()));
}

#[test]
fn after_a_restart_watchers_are_told_though_nothing_changed() {
    // The process may have died between the swap and the poke.
    let mut world = World::new();
    world.publish("0");
    let watcher = world.watch("credential");
    world.publish("1");
    watcher.heard();
    world.volume = Volume::open(world.dir.path(), Arc::new(world.clock.clone())).unwrap();
    assert_eq!(world.publish("1"), Changed::Nothing);
    assert!(watcher.heard().contains(ReadFlags::MODIFY));
    assert_eq!(world.publish("1"), Changed::Nothing);
    assert_eq!(watcher.heard(), ReadFlags::empty());
}

#[test]
fn a_watcher_of_an_empty_file_is_told_as_well() {
    let mut world = World::new();
    world.publish("");
    let watcher = world.watch("credential");
    world.publish("1");
    assert!(watcher.heard().contains(ReadFlags::MODIFY));
}
