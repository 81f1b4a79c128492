#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::{Clock as _, ManualClock, SystemClock};
use tempfile::TempDir;

use super::*;
use crate::fixture::{bytes, document, time};

const NAME: &str = "identity.json";

/// One version per month, so that each is newer than the one before.
fn version(month: u8) -> Vec<u8> {
    bytes(&document(&format!("2027-{month:02}-01T00:00:00Z")))
}

fn not_before(month: u8) -> Timestamp {
    time(&format!("2027-{month:02}-01T00:00:00Z"))
}

/// Writes as kubelet and the CSI driver do: a new folder, and one rename of `..data` on to it.
fn atomic_write(volume: &Path, month: u8) {
    let folder = format!("..2027_{month:02}_01_00_00_00.1");
    fs::create_dir(volume.join(&folder)).unwrap();
    fs::write(volume.join(&folder).join(NAME), version(month)).unwrap();
    let before = fs::read_link(volume.join("..data")).ok();
    symlink(&folder, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    if before.is_none() {
        symlink(format!("..data/{NAME}"), volume.join(NAME)).unwrap();
    }
    if let Some(before) = before {
        fs::remove_dir_all(volume.join(before)).unwrap();
    }
}

fn volume() -> TempDir {
    let volume = tempfile::tempdir().unwrap();
    atomic_write(volume.path(), 1);
    volume
}

/// Waits, on real time, for generation `number`.
async fn reaches(file: &CredentialFile, number: u64) {
    let mut numbers = file.subscribe();
    let arrived = numbers.wait_for(|seen| *seen >= number);
    tokio::time::timeout(Duration::from_secs(20), arrived).await.unwrap().unwrap();
}

/// Options that leave events alone to find a change.
fn events_only() -> FileOptions {
    FileOptions { poll: Duration::from_hours(1), ..FileOptions::default() }
}

/// Options that leave polling alone to find a change.
fn polling_only() -> FileOptions {
    FileOptions { events: false, ..FileOptions::default() }
}

async fn open(path: &Path, options: FileOptions) -> CredentialFile {
    CredentialFile::open(path, options, SystemClock::shared()).await.unwrap()
}

/// A file followed on a clock that stands still until the test moves it.
async fn open_manual(path: &Path, options: FileOptions) -> (CredentialFile, ManualClock) {
    let clock = ManualClock::starting_at(not_before(1));
    let file = CredentialFile::open(path, options, Arc::new(clock.clone())).await.unwrap();
    at_rest(&clock).await;
    (file, clock)
}

/// Waits until the follower sleeps: all that was due has been done.
async fn at_rest(clock: &ManualClock) {
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
}

async fn advance(clock: &ManualClock, duration: Duration) {
    clock.advance(duration);
    // The follower is woken but still counted, until its sleep is dropped or starts anew.
    tokio::task::yield_now().await;
    at_rest(clock).await;
}

#[tokio::test]
async fn the_swap_of_an_atomic_writer_is_noticed_by_event_again_and_again() {
    let volume = volume();
    let file = open(&volume.path().join(NAME), events_only()).await;
    assert!(file.health().watcher_alive);
    for month in 2..=4 {
        atomic_write(volume.path(), month);
        reaches(&file, month.into()).await;
        assert_eq!(file.current().not_before(), not_before(month));
        assert_eq!(file.previous().unwrap().not_before(), not_before(month - 1));
    }
}

#[tokio::test]
async fn a_rename_over_the_file_and_a_write_into_it_are_noticed_by_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    fs::write(&path, version(1)).unwrap();
    let file = open(&path, events_only()).await;
    fs::write(folder.path().join("next"), version(2)).unwrap();
    fs::rename(folder.path().join("next"), &path).unwrap();
    reaches(&file, 2).await;
    fs::write(&path, version(3)).unwrap();
    reaches(&file, 3).await;
    assert_eq!(file.current().not_before(), not_before(3));
}

#[tokio::test]
async fn a_folder_that_vanished_and_came_back_is_watched_again() {
    let root = tempfile::tempdir().unwrap();
    let volume = root.path().join("volume");
    fs::create_dir(&volume).unwrap();
    atomic_write(&volume, 1);
    let options = FileOptions { poll: Duration::from_millis(20), ..FileOptions::default() };
    let file = open(&volume.join(NAME), options).await;
    fs::remove_dir_all(&volume).unwrap();
    assert_eq!(file.reload().await, Reload::Failed);
    assert_eq!(file.current().number(), 1);
    fs::create_dir(&volume).unwrap();
    atomic_write(&volume, 2);
    reaches(&file, 2).await;
    let mut numbers = file.subscribe();
    while !file.health().watcher_alive {
        tokio::task::yield_now().await;
    }
    atomic_write(&volume, 3);
    numbers.wait_for(|number| *number == 3).await.unwrap();
}

#[tokio::test]
async fn a_file_in_a_folder_of_the_volume_is_followed_from_swap_to_swap() {
    let volume = tempfile::tempdir().unwrap();
    let swap = |month: u8| {
        let folder = format!("..2027_{month:02}");
        fs::create_dir_all(volume.path().join(&folder).join("azure")).unwrap();
        fs::write(volume.path().join(&folder).join("azure").join(NAME), version(month)).unwrap();
        symlink(&folder, volume.path().join("..data_tmp")).unwrap();
        fs::rename(volume.path().join("..data_tmp"), volume.path().join("..data")).unwrap();
    };
    swap(1);
    symlink("..data/azure", volume.path().join("azure")).unwrap();
    let path = volume.path().join("azure").join(NAME);
    let (file, clock) = open_manual(&path, FileOptions::default()).await;
    for month in 2..=3 {
        swap(month);
        advance(&clock, Duration::from_secs(1)).await;
        assert_eq!(file.current().not_before(), not_before(month));
        assert!(file.health().watcher_alive);
    }
}

#[tokio::test]
async fn without_events_a_glance_a_second_finds_the_swap() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    assert!(!file.health().watcher_alive);
    atomic_write(volume.path(), 2);
    advance(&clock, Duration::from_millis(999)).await;
    assert_eq!(file.current().number(), 1);
    advance(&clock, Duration::from_millis(1)).await;
    assert_eq!(file.current().number(), 2);
    assert_eq!(file.current().loaded_at(), clock.now());
}

#[tokio::test]
async fn a_half_written_file_keeps_the_old_credential_until_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    fs::write(&path, version(1)).unwrap();
    let (file, clock) = open_manual(&path, polling_only()).await;
    let whole = version(2);
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 1);
    let error = file.health().last_error.unwrap();
    assert!(error.message.contains("cut short"), "{}", error.message);
    fs::write(&path, whole).unwrap();
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 2);
    assert_eq!(file.health().last_error, None);
}

#[tokio::test]
async fn a_file_that_vanished_and_came_back_is_followed_on() {
    let volume = volume();
    let path = volume.path().join(NAME);
    let (file, clock) = open_manual(&path, polling_only()).await;
    fs::remove_file(&path).unwrap();
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 1);
    assert!(file.health().last_error.unwrap().hint.contains("mounted"));
    symlink(format!("..data/{NAME}"), &path).unwrap();
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.health().last_error, None);
    atomic_write(volume.path(), 2);
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 2);
}

#[tokio::test]
async fn an_unchanged_file_is_read_again_by_the_backstop_alone() {
    let volume = volume();
    let options = FileOptions { poll: Duration::from_hours(24), ..polling_only() };
    let (file, clock) = open_manual(&volume.path().join(NAME), options).await;
    atomic_write(volume.path(), 2);
    advance(&clock, Duration::from_hours(6) - Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 1);
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 2);
}

#[tokio::test]
async fn glances_at_an_unchanged_file_do_not_read_it() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    for _ in 0..10 {
        advance(&clock, Duration::from_secs(1)).await;
    }
    // One read more than the first: what was just read may have changed within one clock tick.
    assert_eq!(file.health().counts.unchanged, 1);
}

#[tokio::test]
async fn a_reload_reads_at_once_and_says_what_it_brought() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    assert_eq!(file.reload().await, Reload::Unchanged);
    atomic_write(volume.path(), 2);
    assert_eq!(file.reload().await, Reload::Changed(2));
    assert_eq!(file.current().not_before(), not_before(2));
    let broken = volume.path().join("..data").join(NAME);
    fs::write(broken, b"{").unwrap();
    assert_eq!(file.reload().await, Reload::Failed);
    assert_eq!(file.reload().await, Reload::Failed);
    assert_eq!(file.health().counts.failed, 1);
    assert_eq!(clock.monotonic(), Duration::ZERO);
}

#[tokio::test]
async fn reloads_that_wait_together_share_one_read() {
    let volume = volume();
    let (file, _clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    let calls = (0..20).map(|_| file.reload());
    let outcomes = futures::future::join_all(calls).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Reload::Unchanged));
    let reads = file.health().counts.unchanged;
    assert!((1..=2).contains(&reads), "{reads} reads");
}

#[tokio::test]
async fn an_older_version_is_refused_and_counted() {
    let volume = tempfile::tempdir().unwrap();
    atomic_write(volume.path(), 5);
    let (file, _clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    atomic_write(volume.path(), 4);
    assert_eq!(file.reload().await, Reload::Unchanged);
    assert_eq!(file.current().not_before(), not_before(5));
    assert_eq!(file.health().counts.refused_older, 1);
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_task() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    let mut numbers = file.subscribe();
    let second = file.clone();
    drop(file);
    assert_eq!(second.reload().await, Reload::Unchanged);
    drop(second);
    assert!(numbers.changed().await.is_err(), "the sender goes with the task");
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_task_that_has_ended_is_seen_and_the_credential_stays() {
    let volume = volume();
    let path = volume.path().join(NAME);
    let open = async || {
        let file = open(&path, polling_only()).await;
        assert!(file.health().following);
        file
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let file = runtime.block_on(open());
    drop(runtime);
    assert!(!file.health().following);
    assert_eq!(file.current().number(), 1);
    let other = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(other.block_on(file.reload()), Reload::Failed);
}

#[tokio::test]
async fn the_first_load_fails_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    let open = || CredentialFile::open(&path, FileOptions::default(), SystemClock::shared());
    assert!(matches!(open().await, Err(LoadError::Read { .. })));
    fs::write(&path, b"{}").unwrap();
    let error = open().await.unwrap_err();
    assert!(error.hint().contains("`client_id`"), "{}", error.hint());
    fs::write(&path, vec![b' '; 1024 * 1024 + 1]).unwrap();
    assert!(matches!(open().await, Err(LoadError::TooLarge { limit: 1_048_576, .. })));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(open().await, Err(LoadError::NotAFile { .. })));
}

#[derive(Debug, Default)]
struct Heard(parking_lot::Mutex<Vec<String>>);

impl LoadObserver for Heard {
    fn published(&self, generation: &Generation) {
        self.0.lock().push(format!("published {}", generation.number()));
    }

    fn kept(&self, reason: &KeepReason) {
        self.0.lock().push(reason.word().to_owned());
    }
}

#[tokio::test]
async fn an_observer_hears_of_each_version_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    fs::write(&path, version(1)).unwrap();
    let heard = Arc::new(Heard::default());
    let observer: Arc<dyn LoadObserver> = Arc::<Heard>::clone(&heard);
    let options = FileOptions { observer: Some(observer), ..polling_only() };
    let (file, _clock) = open_manual(&path, options).await;
    for content in [version(2), version(1), version(1), version(2), b"{".to_vec()] {
        fs::write(&path, content).unwrap();
        file.reload().await;
    }
    assert_eq!(*heard.0.lock(), ["published 1", "published 2", "older", "unusable"]);
}
