//! Concurrent readers of a volume during a thousand publishes.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_volume::{AtomicVolume, FileEntry};
use tempfile::TempDir;

/// A directory on a tmpfs if there is one: a thousand flushes to a disk take long.
fn memory_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns a text of which only a complete read yields `round`.
fn content(round: u64) -> String {
    let length = usize::try_from(round * 37 % 20_000).unwrap();
    format!("{round}:{}:{round}", "x".repeat(length))
}

fn parse_round(text: &str) -> Option<u64> {
    let (first, rest) = text.split_once(':')?;
    let round = first.parse().ok()?;
    (rest.rsplit_once(':')?.1 == first && text == content(round)).then_some(round)
}

#[test]
fn four_readers_never_miss_a_file_nor_see_a_torn_one() {
    const ROUNDS: u64 = 200;
    let dir = memory_dir();
    let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
    let mut volume = AtomicVolume::open(dir.path(), Arc::new(clock.clone())).unwrap();
    let mut publish = |round: u64| {
        let text = content(round);
        let entry = |path: &str| FileEntry::new(path.parse().unwrap(), text.as_bytes(), 0o600);
        volume.publish(&[entry("a"), entry("b/c")]).unwrap();
        clock.advance(std::time::Duration::from_secs(1));
        if round.is_multiple_of(10) {
            volume.scrub().unwrap();
        }
    };
    publish(0);

    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let text = std::fs::read_to_string(dir.path().join("a")).unwrap();
                    let first = parse_round(&text).unwrap_or_else(|| panic!("torn: {text:?}"));
                    let text = std::fs::read_to_string(dir.path().join("b/c")).unwrap();
                    let second = parse_round(&text).unwrap_or_else(|| panic!("torn: {text:?}"));
                    assert!(last <= first && first <= second, "{last} {first} {second}");
                    last = second;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        (1..=ROUNDS).for_each(&mut publish);
        done.store(true, Ordering::Relaxed);
    });
    assert!(reads.into_inner() > ROUNDS, "there were too few reads");
}

#[test]
fn a_reader_that_holds_the_generation_open_sees_it_whole() {
    let dir = memory_dir();
    let clock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
    let mut volume = AtomicVolume::open(dir.path(), clock).unwrap();
    let first = [("a", "1"), ("b", "1")];
    let second = [("a", "2"), ("b", "2")];
    let entries = |files: [(&str, &'static str); 2]| {
        files.map(|(path, text)| FileEntry::new(path.parse().unwrap(), text.as_bytes(), 0o644))
    };
    volume.publish(&entries(first)).unwrap();
    let generation = std::fs::canonicalize(dir.path().join("..data")).unwrap();
    volume.publish(&entries(second)).unwrap();
    let read = |name: &str| std::fs::read_to_string(generation.join(name)).unwrap();
    assert_eq!((read("a"), read("b")), ("1".to_owned(), "1".to_owned()));
}
