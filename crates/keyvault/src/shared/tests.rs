use std::sync::atomic::{AtomicUsize, Ordering};

use azure_core::error::ErrorKind;
use lanyard_clock::ManualClock;
use tokio::sync::Semaphore;

use super::*;
use crate::error::VaultReply;

/// Reads that are counted, and that end when they are let go.
#[derive(Clone)]
struct World {
    clock: ManualClock,
    reads: Arc<SharedReads<&'static str, usize>>,
    begun: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
    fails: Option<fn() -> VaultError>,
}

const KEEP: Duration = Duration::from_mins(2);
const SECOND: Duration = Duration::from_secs(1);
const MOUNT: Demand = Demand::within(Priority::High, Duration::from_secs(10));
const ROTATION: Demand = Demand::within(Priority::Low, Duration::from_mins(1));
const REFRESH: Demand = Demand::within(Priority::Normal, Duration::ZERO);

impl Weigh for usize {
    fn weight(&self) -> u64 {
        8
    }
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let reads = Arc::new(SharedReads::new(Arc::new(clock.clone()), KEEP));
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { clock, reads, begun: Arc::default(), gate, fails: None }
    }

    /// Reads end only when [`Self::release`] says so.
    fn gated() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ..Self::new() }
    }

    fn release(&self, count: usize) {
        self.gate.add_permits(count);
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    async fn read(&self, key: &'static str, demand: Demand) -> Result<usize, String> {
        let (begun, gate, fails) = (Arc::clone(&self.begun), Arc::clone(&self.gate), self.fails);
        let fetch = move || -> BoxFuture<'static, Result<usize, VaultError>> {
            Box::pin(async move {
                let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                gate.acquire().await.unwrap().forget();
                fails.map_or(Ok(number), |error| Err(error()))
            })
        };
        let outcome = self.reads.read(key, demand, |_| None, fetch).await;
        outcome.map(|shared| *shared.value).map_err(|error| error.to_string())
    }

    fn spawn(
        &self,
        key: &'static str,
        demand: Demand,
    ) -> tokio::task::JoinHandle<Result<usize, String>> {
        let world = self.clone();
        tokio::spawn(async move { world.read(key, demand).await })
    }

    /// When the value that is given was asked for.
    async fn read_at(&self, demand: Demand) -> Timestamp {
        let fetch =
            || -> BoxFuture<'static, Result<usize, VaultError>> { Box::pin(async { Ok(0) }) };
        self.reads.read("a", demand, |_| None, fetch).await.unwrap().read_at()
    }

    async fn settle(&self) {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
}

fn malformed() -> VaultError {
    VaultError::Malformed { problem: "planned" }
}

fn forbidden() -> VaultError {
    let (code, inner_code, message) = (None, None, String::new());
    VaultError::Forbidden(VaultReply { status: 403, code, inner_code, message })
}

fn without_token() -> VaultError {
    let source = azure_core::Error::with_message(ErrorKind::Credential, "planned");
    VaultError::Token { source }
}

#[tokio::test]
async fn a_hundred_who_ask_at_once_share_one_read() {
    let world = World::gated();
    let tasks: Vec<_> = (0..100).map(|_| world.spawn("a", MOUNT)).collect();
    let other = world.spawn("b", MOUNT);
    world.settle().await;
    assert_eq!(world.begun(), 2);
    world.release(2);
    for task in tasks {
        assert!(task.await.unwrap().is_ok());
    }
    assert!(other.await.unwrap().is_ok());
    assert_eq!(world.begun(), 2);
}

#[tokio::test]
async fn what_is_new_enough_for_one_may_be_too_old_for_another() {
    let world = World::new();
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 1);
    world.clock.advance(SECOND * 10);
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 1);
    world.clock.advance(SECOND);
    assert_eq!(world.read("a", ROTATION).await.unwrap(), 1);
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 2);
    assert_eq!(world.read("a", REFRESH).await.unwrap(), 3);
}

#[tokio::test]
async fn a_refresh_takes_nothing_that_was_asked_for_before_it() {
    let world = World::gated();
    let before = world.spawn("a", ROTATION);
    world.settle().await;
    world.clock.advance(SECOND);
    let refresh = world.spawn("a", REFRESH);
    world.settle().await;
    assert_eq!(world.begun(), 2);
    world.release(2);
    assert_eq!(refresh.await.unwrap().unwrap(), 2);
    before.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_mount_does_not_stand_behind_a_rotation_and_serves_it() {
    let world = World::gated();
    let rotation = world.spawn("a", ROTATION);
    world.settle().await;
    let mount = world.spawn("a", MOUNT);
    world.settle().await;
    assert_eq!(world.begun(), 2);
    // Only the second is let go: gates are fair, so the first one goes with the same permit.
    world.release(1);
    world.settle().await;
    world.release(1);
    assert!(mount.await.unwrap().is_ok());
    assert!(rotation.await.unwrap().is_ok());
    assert!(world.spawn("a", ROTATION).await.unwrap().is_ok());
    assert_eq!(world.begun(), 2);
}

#[tokio::test]
async fn a_read_outlives_who_asked_first() {
    let world = World::gated();
    let first = world.spawn("a", MOUNT);
    world.settle().await;
    let second = world.spawn("a", MOUNT);
    world.settle().await;
    first.abort();
    world.release(1);
    assert_eq!(second.await.unwrap().unwrap(), 1);
    assert_eq!(world.begun(), 1);
}

#[tokio::test]
async fn a_failure_answers_for_a_moment_and_never_for_a_refresh() {
    let mut world = World::new();
    world.fails = Some(malformed);
    for _ in 0..3 {
        assert!(world.read("a", MOUNT).await.unwrap_err().ends_with("planned"));
    }
    assert_eq!(world.begun(), 1);
    world.read("a", REFRESH).await.unwrap_err();
    assert_eq!(world.begun(), 2);
    world.fails = None;
    world.clock.advance(FAILURE_AGE + SECOND);
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 3);
}

#[tokio::test]
async fn a_read_that_hangs_is_given_up_and_the_next_one_begins_anew() {
    let world = World::gated();
    let hanging = world.spawn("a", MOUNT);
    world.settle().await;
    world.clock.advance(FLIGHT_LIMIT);
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!(error, "the vault did not answer within 80 s");
    world.clock.advance(FAILURE_AGE + SECOND);
    world.release(1);
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 2);
}

#[tokio::test]
async fn a_failure_leaves_a_value_that_is_new_enough() {
    let mut world = World::new();
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 1);
    world.fails = Some(malformed);
    world.read("a", REFRESH).await.unwrap_err();
    assert_eq!(world.read("a", ROTATION).await.unwrap(), 1);
}

#[tokio::test]
async fn a_refusal_ends_what_was_asked_for_before_it() {
    let mut world = World::new();
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 1);
    world.clock.advance(SECOND);
    world.fails = Some(forbidden);
    world.read("a", REFRESH).await.unwrap_err();
    for demand in [MOUNT, ROTATION] {
        world.read("a", demand).await.unwrap_err();
    }
    world.clock.advance(FAILURE_AGE + SECOND);
    world.fails = None;
    // The mount, which nobody's failure but a mount's answers, was refused by the vault itself.
    assert_eq!(world.read("a", ROTATION).await.unwrap(), 4);
}

#[tokio::test]
async fn a_read_that_is_late_does_not_undo_a_refusal() {
    let world = World::gated();
    let late = world.spawn("a", ROTATION);
    world.settle().await;
    world.clock.advance(SECOND);
    let gate = Arc::new(Semaphore::new(1));
    let refused = World { gate, fails: Some(forbidden), ..world.clone() };
    refused.read("a", REFRESH).await.unwrap_err();
    world.release(1);
    // It had asked before.
    assert_eq!(late.await.unwrap().unwrap(), 1);
    assert_eq!(world.reads.held(), 0);
}

#[tokio::test]
async fn a_failure_of_who_waits_last_does_not_answer_for_who_goes_first() {
    let mut world = World::new();
    world.fails = Some(malformed);
    world.read("a", ROTATION).await.unwrap_err();
    world.read("a", ROTATION).await.unwrap_err();
    assert_eq!(world.begun(), 1);
    world.fails = None;
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 2);
}

#[tokio::test]
async fn that_one_had_no_token_is_not_told_to_another() {
    let mut world = World::new();
    world.fails = Some(without_token);
    world.read("a", MOUNT).await.unwrap_err();
    world.fails = None;
    assert_eq!(world.read("a", MOUNT).await.unwrap(), 2);
}

#[tokio::test]
async fn everybody_who_takes_a_value_is_told_the_same_time() {
    let world = World::new();
    let first = world.read_at(MOUNT).await;
    world.clock.advance(SECOND * 5);
    assert_eq!(world.read_at(MOUNT).await, first);
    assert_ne!(world.read_at(REFRESH).await, first);
}

#[tokio::test]
async fn values_are_dropped_after_their_time_without_anybody_asking() {
    let world = World::new();
    world.read("a", MOUNT).await.unwrap();
    world.settle().await;
    assert_eq!(world.reads.held(), 1);
    world.clock.advance(KEEP);
    world.settle().await;
    assert_eq!(world.reads.held(), 0);
    assert!(world.reads.slots.lock().is_empty());
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_leaves_no_slot_behind() {
    let world = World::gated();
    let waiting = world.spawn("a", MOUNT);
    world.settle().await;
    assert_eq!(world.begun(), 1);
    waiting.abort();
    world.settle().await;
    assert!(world.reads.slots.lock().is_empty());
    // The end of the first read does not end the second one, which has a new slot.
    let waiting = [world.spawn("a", MOUNT), world.spawn("b", MOUNT)];
    world.settle().await;
    world.release(2);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(world.reads.held(), 2);
}

#[test]
fn an_object_that_is_about_to_change_has_to_be_newer() {
    let demand = Demand { max_age_near_renewal: SECOND * 20, ..ROTATION };
    for (distance, max_age) in
        [(None, 60), (Some(100_000), 60), (Some(240), 30), (Some(8), 20), (Some(0), 20)]
    {
        let distance = distance.map(Duration::from_secs);
        assert_eq!(demand.max_age_at(distance).as_secs(), max_age, "{distance:?}");
    }
    assert_eq!(MOUNT.max_age_at(Some(Duration::ZERO)), MOUNT.max_age);
}
