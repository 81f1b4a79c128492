use std::sync::atomic::{AtomicUsize, Ordering};

use azure_core::error::ErrorKind;
use lanyard_clock::ManualClock;
use tokio::sync::Semaphore;

use super::*;
use crate::error::VaultErrorDetails;

/// Counted reads, which complete when the test releases them.
#[derive(Clone)]
struct SharedReadsFixture {
    clock: ManualClock,
    reads: Arc<SharedReads<&'static str, usize>>,
    started_reads: Arc<AtomicUsize>,
    completion_permits: Arc<Semaphore>,
    injected_error: Option<fn() -> VaultReadError>,
}

const RETENTION: Duration = Duration::from_mins(2);
const SECOND: Duration = Duration::from_secs(1);
const MOUNT: Freshness = Freshness::with_max_age(RequestPriority::High, Duration::from_secs(10));
const ROTATION: Freshness = Freshness::with_max_age(RequestPriority::Low, Duration::from_mins(1));
const REFRESH: Freshness = Freshness::with_max_age(RequestPriority::Normal, Duration::ZERO);

impl MemoryFootprint for usize {
    fn footprint_bytes(&self) -> u64 {
        8
    }
}

impl SharedReadsFixture {
    fn new() -> Self {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let reads = Arc::new(SharedReads::new(Arc::new(clock.clone()), RETENTION));
        let completion_permits = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self {
            clock,
            reads,
            started_reads: Arc::default(),
            completion_permits,
            injected_error: None,
        }
    }

    /// Reads complete only on [`Self::complete_reads`].
    fn with_blocked_reads() -> Self {
        Self { completion_permits: Arc::new(Semaphore::new(0)), ..Self::new() }
    }

    fn complete_reads(&self, count: usize) {
        self.completion_permits.add_permits(count);
    }

    fn started_count(&self) -> usize {
        self.started_reads.load(Ordering::SeqCst)
    }

    async fn read(&self, key: &'static str, freshness: Freshness) -> Result<usize, String> {
        let (begun, gate, fails) = (
            Arc::clone(&self.started_reads),
            Arc::clone(&self.completion_permits),
            self.injected_error,
        );
        let fetch = move || -> BoxFuture<'static, Result<usize, VaultReadError>> {
            Box::pin(async move {
                let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                gate.acquire().await.unwrap().forget();
                fails.map_or(Ok(number), |error| Err(error()))
            })
        };
        let outcome = self.reads.read(key, freshness, |_| None, fetch).await;
        outcome.map(|shared| *shared.value).map_err(|error| error.to_string())
    }

    fn spawn_read(
        &self,
        key: &'static str,
        freshness: Freshness,
    ) -> tokio::task::JoinHandle<Result<usize, String>> {
        let fixture = self.clone();
        tokio::spawn(async move { fixture.read(key, freshness).await })
    }

    /// The start of the read whose value is returned.
    async fn read_at(&self, freshness: Freshness) -> Timestamp {
        let fetch =
            || -> BoxFuture<'static, Result<usize, VaultReadError>> { Box::pin(async { Ok(0) }) };
        self.reads.read("a", freshness, |_| None, fetch).await.unwrap().read_at()
    }

    async fn run_pending_tasks(&self) {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
}

fn malformed_error() -> VaultReadError {
    VaultReadError::Malformed { problem: "planned" }
}

fn forbidden_error() -> VaultReadError {
    let (code, inner_code, message) = (None, None, String::new());
    VaultReadError::Forbidden(VaultErrorDetails { status: 403, code, inner_code, message })
}

fn token_error() -> VaultReadError {
    let source = azure_core::Error::with_message(ErrorKind::Credential, "planned");
    VaultReadError::Token { source }
}

#[tokio::test]
async fn concurrent_callers_share_one_read() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let tasks: Vec<_> = (0..100).map(|_| fixture.spawn_read("a", MOUNT)).collect();
    let other = fixture.spawn_read("b", MOUNT);
    fixture.run_pending_tasks().await;
    assert_eq!(fixture.started_count(), 2);
    fixture.complete_reads(2);
    for task in tasks {
        assert!(task.await.unwrap().is_ok());
    }
    assert!(other.await.unwrap().is_ok());
    assert_eq!(fixture.started_count(), 2);
}

#[tokio::test]
async fn max_age_is_checked_per_caller() {
    let fixture = SharedReadsFixture::new();
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 1);
    fixture.clock.advance(SECOND * 10);
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 1);
    fixture.clock.advance(SECOND);
    assert_eq!(fixture.read("a", ROTATION).await.unwrap(), 1);
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 2);
    assert_eq!(fixture.read("a", REFRESH).await.unwrap(), 3);
}

#[tokio::test]
async fn refresh_ignores_reads_started_before_it() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let before = fixture.spawn_read("a", ROTATION);
    fixture.run_pending_tasks().await;
    fixture.clock.advance(SECOND);
    let refresh = fixture.spawn_read("a", REFRESH);
    fixture.run_pending_tasks().await;
    assert_eq!(fixture.started_count(), 2);
    fixture.complete_reads(2);
    assert_eq!(refresh.await.unwrap().unwrap(), 2);
    before.await.unwrap().unwrap();
}

#[tokio::test]
async fn high_priority_read_does_not_wait_for_low_priority_and_serves_it() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let rotation = fixture.spawn_read("a", ROTATION);
    fixture.run_pending_tasks().await;
    let mount = fixture.spawn_read("a", MOUNT);
    fixture.run_pending_tasks().await;
    assert_eq!(fixture.started_count(), 2);
    // Release only the second one: the semaphore is fair, so the first one takes the same permit.
    fixture.complete_reads(1);
    fixture.run_pending_tasks().await;
    fixture.complete_reads(1);
    assert!(mount.await.unwrap().is_ok());
    assert!(rotation.await.unwrap().is_ok());
    assert!(fixture.spawn_read("a", ROTATION).await.unwrap().is_ok());
    assert_eq!(fixture.started_count(), 2);
}

#[tokio::test]
async fn read_continues_after_its_first_caller_is_dropped() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let first = fixture.spawn_read("a", MOUNT);
    fixture.run_pending_tasks().await;
    let second = fixture.spawn_read("a", MOUNT);
    fixture.run_pending_tasks().await;
    first.abort();
    fixture.complete_reads(1);
    assert_eq!(second.await.unwrap().unwrap(), 1);
    assert_eq!(fixture.started_count(), 1);
}

#[tokio::test]
async fn failure_is_cached_briefly_and_never_for_a_refresh() {
    let mut fixture = SharedReadsFixture::new();
    fixture.injected_error = Some(malformed_error);
    for _ in 0..3 {
        assert!(fixture.read("a", MOUNT).await.unwrap_err().ends_with("planned"));
    }
    assert_eq!(fixture.started_count(), 1);
    fixture.read("a", REFRESH).await.unwrap_err();
    assert_eq!(fixture.started_count(), 2);
    fixture.injected_error = None;
    fixture.clock.advance(FAILURE_MAX_AGE + SECOND);
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 3);
}

#[tokio::test]
async fn hanging_read_times_out_and_the_next_one_starts_over() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let hanging = fixture.spawn_read("a", MOUNT);
    fixture.run_pending_tasks().await;
    fixture.clock.advance(READ_TIMEOUT);
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!(error, "the vault did not answer within 80 s");
    fixture.clock.advance(FAILURE_MAX_AGE + SECOND);
    fixture.complete_reads(1);
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 2);
}

#[tokio::test]
async fn failure_keeps_a_value_that_is_still_fresh() {
    let mut fixture = SharedReadsFixture::new();
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 1);
    fixture.injected_error = Some(malformed_error);
    fixture.read("a", REFRESH).await.unwrap_err();
    assert_eq!(fixture.read("a", ROTATION).await.unwrap(), 1);
}

#[tokio::test]
async fn denied_read_drops_values_read_before_it() {
    let mut fixture = SharedReadsFixture::new();
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 1);
    fixture.clock.advance(SECOND);
    fixture.injected_error = Some(forbidden_error);
    fixture.read("a", REFRESH).await.unwrap_err();
    for freshness in [MOUNT, ROTATION] {
        fixture.read("a", freshness).await.unwrap_err();
    }
    fixture.clock.advance(FAILURE_MAX_AGE + SECOND);
    fixture.injected_error = None;
    // The vault itself denied the mount, which only a failure of another mount could have answered.
    assert_eq!(fixture.read("a", ROTATION).await.unwrap(), 4);
}

#[tokio::test]
async fn late_read_does_not_undo_a_denied_one() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let late = fixture.spawn_read("a", ROTATION);
    fixture.run_pending_tasks().await;
    fixture.clock.advance(SECOND);
    let gate = Arc::new(Semaphore::new(1));
    let refused = SharedReadsFixture {
        completion_permits: gate,
        injected_error: Some(forbidden_error),
        ..fixture.clone()
    };
    refused.read("a", REFRESH).await.unwrap_err();
    fixture.complete_reads(1);
    // It had started before.
    assert_eq!(late.await.unwrap().unwrap(), 1);
    assert_eq!(fixture.reads.cached_value_count(), 0);
}

#[tokio::test]
async fn low_priority_failure_is_not_served_to_high_priority_caller() {
    let mut fixture = SharedReadsFixture::new();
    fixture.injected_error = Some(malformed_error);
    fixture.read("a", ROTATION).await.unwrap_err();
    fixture.read("a", ROTATION).await.unwrap_err();
    assert_eq!(fixture.started_count(), 1);
    fixture.injected_error = None;
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 2);
}

#[tokio::test]
async fn token_error_is_not_shared_with_other_callers() {
    let mut fixture = SharedReadsFixture::new();
    fixture.injected_error = Some(token_error);
    fixture.read("a", MOUNT).await.unwrap_err();
    fixture.injected_error = None;
    assert_eq!(fixture.read("a", MOUNT).await.unwrap(), 2);
}

#[tokio::test]
async fn all_callers_of_one_read_get_the_same_read_time() {
    let fixture = SharedReadsFixture::new();
    let first = fixture.read_at(MOUNT).await;
    fixture.clock.advance(SECOND * 5);
    assert_eq!(fixture.read_at(MOUNT).await, first);
    assert_ne!(fixture.read_at(REFRESH).await, first);
}

#[tokio::test]
async fn values_expire_without_further_reads() {
    let fixture = SharedReadsFixture::new();
    fixture.read("a", MOUNT).await.unwrap();
    fixture.run_pending_tasks().await;
    assert_eq!(fixture.reads.cached_value_count(), 1);
    fixture.clock.advance(RETENTION);
    fixture.run_pending_tasks().await;
    assert_eq!(fixture.reads.cached_value_count(), 0);
    assert!(fixture.reads.slots.lock().is_empty());
}

#[tokio::test]
async fn abandoned_read_leaves_no_slot() {
    let fixture = SharedReadsFixture::with_blocked_reads();
    let waiting = fixture.spawn_read("a", MOUNT);
    fixture.run_pending_tasks().await;
    assert_eq!(fixture.started_count(), 1);
    waiting.abort();
    fixture.run_pending_tasks().await;
    assert!(fixture.reads.slots.lock().is_empty());
    // The end of the first read does not end the second one, which has a new slot.
    let waiting = [fixture.spawn_read("a", MOUNT), fixture.spawn_read("b", MOUNT)];
    fixture.run_pending_tasks().await;
    fixture.complete_reads(2);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(fixture.reads.cached_value_count(), 2);
}

#[test]
fn max_age_shrinks_near_renewal_or_expiry() {
    let freshness = Freshness { max_age_near_renewal: SECOND * 20, ..ROTATION };
    for (distance, max_age) in
        [(None, 60), (Some(100_000), 60), (Some(240), 30), (Some(8), 20), (Some(0), 20)]
    {
        let distance = distance.map(Duration::from_secs);
        assert_eq!(freshness.max_age_for(distance).as_secs(), max_age, "{distance:?}");
    }
    assert_eq!(MOUNT.max_age_for(Some(Duration::ZERO)), MOUNT.max_age);
}
