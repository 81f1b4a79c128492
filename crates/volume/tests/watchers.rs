//! Tests of the inotify events that a watcher of a mounted file receives.

#![cfg(test)]

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_volume::{AtomicVolume, FileEntry, VolumeChange};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tempfile::TempDir;

/// An inotify watch on a path, as Go's fsnotify creates it: through the symlink, on its target.
struct InotifyWatcher(OwnedFd);

impl InotifyWatcher {
    fn of(path: &Path) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&queue, path, flags).unwrap();
        Self(queue)
    }

    /// Returns every event since the last call.
    fn take_events(&self) -> ReadFlags {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut received = ReadFlags::empty();
        loop {
            match reader.next() {
                Ok(event) => received |= event.events(),
                Err(Errno::AGAIN) => return received,
                Err(errno) => panic!("{errno}"),
            }
        }
    }
}

/// A directory on a tmpfs if there is one: a thousand flushes to a disk take long.
fn memory_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

struct WatchedVolumeFixture {
    dir: TempDir,
    clock: ManualClock,
    volume: AtomicVolume,
}

impl WatchedVolumeFixture {
    fn new() -> Self {
        let dir = memory_dir();
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let volume = AtomicVolume::open(dir.path(), Arc::new(clock.clone())).unwrap();
        Self { dir, clock, volume }
    }

    fn publish(&mut self, content: &str) -> VolumeChange {
        let entry = |path: &str| FileEntry::new(path.parse().unwrap(), content.as_bytes(), 0o444);
        self.volume.publish(&[entry("credential"), entry("tls/key")]).unwrap().change
    }

    fn watch(&self, name: &str) -> InotifyWatcher {
        InotifyWatcher::of(&self.dir.path().join(name))
    }
}

#[test]
fn first_generation_watcher_receives_modify_on_every_publish() {
    let mut world = WatchedVolumeFixture::new();
    world.publish("0");
    let watchers = ["credential", "tls/key"].map(|name| world.watch(name));
    for round in 1..=100 {
        world.publish(&round.to_string());
        for watcher in &watchers {
            let received = watcher.take_events();
            assert!(received.contains(ReadFlags::MODIFY), "round {round}: {received:?}");
            let lost = ReadFlags::IGNORED | ReadFlags::DELETE_SELF;
            assert!(!received.intersects(lost), "round {round}: {received:?}");
        }
        world.clock.advance(Duration::from_secs(40));
        world.volume.scrub().unwrap();
        for watcher in &watchers {
            watcher.take_events();
        }
    }
    let first = world.dir.path().join("..1970_01_01_00_00_00.1/credential");
    assert_eq!(std::fs::metadata(first).unwrap().len(), 0);
}

#[test]
fn notifying_watchers_changes_no_content() {
    let mut world = WatchedVolumeFixture::new();
    world.publish("first");
    let retired = std::fs::canonicalize(world.dir.path().join("credential")).unwrap();
    world.publish("second");
    world.publish("third");
    assert_eq!(std::fs::read_to_string(retired).unwrap(), "first");
}

#[test]
fn scrub_notifies_watchers_and_keeps_the_watch() {
    let mut world = WatchedVolumeFixture::new();
    world.publish("0");
    let watcher = world.watch("credential");
    world.publish("1");
    watcher.take_events();
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(world.volume.scrub().unwrap().truncated_files, 2);
    assert!(watcher.take_events().contains(ReadFlags::MODIFY));
    world.publish("2");
    assert!(watcher.take_events().contains(ReadFlags::MODIFY));
}

#[test]
fn unchanged_publish_notifies_no_watcher() {
    let mut world = WatchedVolumeFixture::new();
    world.publish("0");
    let early = world.watch("credential");
    world.publish("1");
    let late = world.watch("credential");
    early.take_events();
    assert_eq!(world.publish("1"), VolumeChange::Nothing);
    assert_eq!((early.take_events(), late.take_events()), (ReadFlags::empty(), ReadFlags::empty()));
}

#[test]
fn first_publish_after_a_restart_notifies_watchers() {
    // The process may have died between the swap and the notification.
    let mut world = WatchedVolumeFixture::new();
    world.publish("0");
    let watcher = world.watch("credential");
    world.publish("1");
    watcher.take_events();
    world.volume = AtomicVolume::open(world.dir.path(), Arc::new(world.clock.clone())).unwrap();
    assert_eq!(world.publish("1"), VolumeChange::Nothing);
    assert!(watcher.take_events().contains(ReadFlags::MODIFY));
    assert_eq!(world.publish("1"), VolumeChange::Nothing);
    assert_eq!(watcher.take_events(), ReadFlags::empty());
}

#[test]
fn watcher_of_an_empty_file_is_notified() {
    let mut world = WatchedVolumeFixture::new();
    world.publish("");
    let watcher = world.watch("credential");
    world.publish("1");
    assert!(watcher.take_events().contains(ReadFlags::MODIFY));
}
