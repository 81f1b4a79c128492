#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::{Clock as _, ErrorHint as _, ManualClock, SystemClock};
use tempfile::TempDir;

use super::*;
use crate::fixture::{document, timestamp, to_bytes};

const NAME: &str = "identity.json";

/// One version per month, so that each is newer than the previous one.
fn version(month: u8) -> Vec<u8> {
    to_bytes(&document(&format!("2027-{month:02}-01T00:00:00Z")))
}

fn not_before(month: u8) -> Timestamp {
    timestamp(&format!("2027-{month:02}-01T00:00:00Z"))
}

/// Writes like the kubelet and the CSI driver: a new folder, and one rename of `..data` to it.
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

/// Waits in real time for generation `number`.
async fn wait_for_generation(file: &CredentialFile, number: u64) {
    let mut states = file.subscribe();
    let arrived = states.wait_for(|state| state.current().number() >= number);
    tokio::time::timeout(Duration::from_secs(20), arrived).await.unwrap().unwrap();
}

/// Options with file events only.
fn events_only() -> CredentialFileOptions {
    CredentialFileOptions {
        poll_interval: Duration::from_hours(1),
        ..CredentialFileOptions::default()
    }
}

/// Options with polling only.
fn polling_only() -> CredentialFileOptions {
    CredentialFileOptions { events: false, ..CredentialFileOptions::default() }
}

async fn open(path: &Path, options: CredentialFileOptions) -> CredentialFile {
    CredentialFile::open(path, options, SystemClock::shared()).await.unwrap()
}

/// Follows a file on a clock that stands still until the test advances it.
async fn open_manual(path: &Path, options: CredentialFileOptions) -> (CredentialFile, ManualClock) {
    let clock = ManualClock::starting_at(not_before(1));
    let file = CredentialFile::open(path, options, Arc::new(clock.clone())).await.unwrap();
    wait_until_sleeping(&clock).await;
    (file, clock)
}

/// Waits until the follower sleeps: all due actions are done.
async fn wait_until_sleeping(clock: &ManualClock) {
    while clock.sleeper_count() == 0 {
        tokio::task::yield_now().await;
    }
}

async fn advance(clock: &ManualClock, duration: Duration) {
    clock.advance(duration);
    // The woken follower is still counted until its sleep is dropped or starts again.
    tokio::task::yield_now().await;
    wait_until_sleeping(clock).await;
}

#[tokio::test]
async fn every_atomic_swap_is_noticed_by_file_event() {
    let volume = volume();
    let file = open(&volume.path().join(NAME), events_only()).await;
    assert!(file.health().watcher_alive);
    for month in 2..=4 {
        atomic_write(volume.path(), month);
        wait_for_generation(&file, month.into()).await;
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
    wait_for_generation(&file, 2).await;
    fs::write(&path, version(3)).unwrap();
    wait_for_generation(&file, 3).await;
    assert_eq!(file.current().not_before(), not_before(3));
}

#[tokio::test]
async fn recreated_folder_is_watched_again() {
    let root = tempfile::tempdir().unwrap();
    let volume = root.path().join("volume");
    fs::create_dir(&volume).unwrap();
    atomic_write(&volume, 1);
    let options = CredentialFileOptions {
        poll_interval: Duration::from_millis(20),
        ..CredentialFileOptions::default()
    };
    let file = open(&volume.join(NAME), options).await;
    fs::remove_dir_all(&volume).unwrap();
    assert_eq!(file.reload().await, ReloadOutcome::Failed);
    assert_eq!(file.current().number(), 1);
    fs::create_dir(&volume).unwrap();
    atomic_write(&volume, 2);
    wait_for_generation(&file, 2).await;
    let mut states = file.subscribe();
    while !file.health().watcher_alive {
        tokio::task::yield_now().await;
    }
    atomic_write(&volume, 3);
    states.wait_for(|state| state.current().number() == 3).await.unwrap();
}

#[tokio::test]
async fn file_in_a_subfolder_is_followed_across_atomic_swaps() {
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
    let (file, clock) = open_manual(&path, CredentialFileOptions::default()).await;
    for month in 2..=3 {
        swap(month);
        advance(&clock, Duration::from_secs(1)).await;
        assert_eq!(file.current().not_before(), not_before(month));
        assert!(file.health().watcher_alive);
    }
}

#[tokio::test]
async fn polling_finds_the_swap_within_a_second() {
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
async fn partial_write_keeps_the_old_credential() {
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
async fn recreated_file_is_followed() {
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
async fn resync_reads_a_file_whose_change_was_missed() {
    let volume = volume();
    let options =
        CredentialFileOptions { poll_interval: Duration::from_hours(24), ..polling_only() };
    let (file, clock) = open_manual(&volume.path().join(NAME), options).await;
    atomic_write(volume.path(), 2);
    advance(&clock, Duration::from_hours(6) - Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 1);
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(file.current().number(), 2);
}

#[tokio::test]
async fn polling_an_unchanged_file_does_not_read_it() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    for _ in 0..10 {
        advance(&clock, Duration::from_secs(1)).await;
    }
    // One extra read after the first: the file may have changed within the same clock tick.
    assert_eq!(file.health().counts.unchanged, 1);
}

#[tokio::test]
async fn reload_reads_immediately_and_returns_the_outcome() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    assert_eq!(file.reload().await, ReloadOutcome::Unchanged);
    atomic_write(volume.path(), 2);
    assert_eq!(file.reload().await, ReloadOutcome::Changed(2));
    assert_eq!(file.current().not_before(), not_before(2));
    let broken = volume.path().join("..data").join(NAME);
    fs::write(broken, b"{").unwrap();
    assert_eq!(file.reload().await, ReloadOutcome::Failed);
    assert_eq!(file.reload().await, ReloadOutcome::Failed);
    assert_eq!(file.health().counts.failed, 1);
    assert_eq!(clock.monotonic(), Duration::ZERO);
}

#[tokio::test]
async fn concurrent_reloads_share_one_read() {
    let volume = volume();
    let (file, _clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    let calls = (0..20).map(|_| file.reload());
    let outcomes = futures::future::join_all(calls).await;
    assert!(outcomes.iter().all(|outcome| *outcome == ReloadOutcome::Unchanged));
    let reads = file.health().counts.unchanged;
    assert!((1..=2).contains(&reads), "{reads} reads");
}

#[tokio::test]
async fn an_older_version_is_refused_and_counted() {
    let volume = tempfile::tempdir().unwrap();
    atomic_write(volume.path(), 5);
    let (file, _clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    atomic_write(volume.path(), 4);
    assert_eq!(file.reload().await, ReloadOutcome::Unchanged);
    assert_eq!(file.current().not_before(), not_before(5));
    assert_eq!(file.health().counts.refused_older, 1);
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_task() {
    let volume = volume();
    let (file, clock) = open_manual(&volume.path().join(NAME), polling_only()).await;
    let mut states = file.subscribe();
    let second = file.clone();
    drop(file);
    assert_eq!(second.reload().await, ReloadOutcome::Unchanged);
    drop(second);
    assert!(states.changed().await.is_err(), "the sender goes with the task");
    assert_eq!(clock.sleeper_count(), 0);
}

#[test]
fn ended_follower_task_is_reported_and_the_credential_stays() {
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
    assert_eq!(other.block_on(file.reload()), ReloadOutcome::Failed);
}

#[tokio::test]
async fn the_first_load_fails_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    let open =
        || CredentialFile::open(&path, CredentialFileOptions::default(), SystemClock::shared());
    assert!(matches!(open().await, Err(LoadError::Read { .. })));
    for content in [&b""[..], b"not json", b"{}", b"{}"] {
        fs::write(&path, content).unwrap();
        assert!(matches!(open().await, Err(LoadError::Content { .. })));
    }
    let error = open().await.unwrap_err();
    assert!(error.hint().unwrap().contains("`client_id`"), "{:?}", error.hint());
    fs::write(&path, vec![b' '; 1024 * 1024 + 1]).unwrap();
    assert!(matches!(open().await, Err(LoadError::TooLarge { limit: 1_048_576, .. })));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(open().await, Err(LoadError::NotAFile { .. })));
}

#[derive(Debug, Default)]
struct RecordingLoadObserver(parking_lot::Mutex<Vec<String>>);

impl LoadObserver for RecordingLoadObserver {
    fn generation_published(&self, generation: &CredentialGeneration) {
        self.0.lock().push(format!("published {}", generation.number()));
    }

    fn generation_kept(&self, reason: &KeepReason) {
        self.0.lock().push(reason.metric_label().to_owned());
    }
}

#[tokio::test]
async fn observer_is_called_once_per_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    fs::write(&path, version(1)).unwrap();
    let received = Arc::new(RecordingLoadObserver::default());
    let observer: Arc<dyn LoadObserver> = Arc::<RecordingLoadObserver>::clone(&received);
    let options = CredentialFileOptions { observer: Some(observer), ..polling_only() };
    let (file, _clock) = open_manual(&path, options).await;
    for content in [version(2), version(1), version(1), version(2), b"{".to_vec()] {
        fs::write(&path, content).unwrap();
        file.reload().await;
    }
    assert_eq!(*received.0.lock(), ["published 1", "published 2", "older", "unusable"]);
}

/// Records the generation in use during each call, and whether its receivers are already notified.
#[derive(Debug, Default)]
struct PublishOrderObserver {
    states: std::sync::OnceLock<watch::Receiver<LoaderState>>,
    observed: parking_lot::Mutex<Vec<(u64, bool)>>,
}

impl LoadObserver for PublishOrderObserver {
    fn generation_published(&self, _: &CredentialGeneration) {
        let Some(states) = self.states.get() else { return };
        let in_use = states.borrow().current().number();
        self.observed.lock().push((in_use, states.has_changed().unwrap()));
    }
}

#[tokio::test]
async fn observer_can_use_a_new_generation_before_receivers_are_notified() {
    let volume = volume();
    let received = Arc::new(PublishOrderObserver::default());
    let observer: Arc<dyn LoadObserver> = Arc::<PublishOrderObserver>::clone(&received);
    let options = CredentialFileOptions { observer: Some(observer), ..polling_only() };
    let (file, _clock) = open_manual(&volume.path().join(NAME), options).await;
    received.states.set(file.subscribe()).unwrap();
    atomic_write(volume.path(), 2);
    file.reload().await;
    assert_eq!(*received.observed.lock(), [(2, false)]);
    assert!(received.states.get().unwrap().has_changed().unwrap());
}
