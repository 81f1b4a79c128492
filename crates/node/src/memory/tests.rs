use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lanyard_api::ProviderParameters;
use lanyard_azure::{Priority, Rate};
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_keyvault::testing::{FakeAzure, live_secret_bytes};
use lanyard_keyvault::{
    CacheMemory, CacheRefusal, Demand, FetchError, NodeVaultError, NodeVaultSettings, NodeVaults,
    Pod, Proofs, ReadError, ReadMemory, ReadOrder, StaleCache,
};
use proptest::prelude::*;

use super::book::{Asked, Room};
use super::*;
use crate::budget::{Purpose, needed_for};
use crate::path::FilePath;
use crate::provider::Urgency;

const KIB: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(90);

fn clock() -> SharedClock {
    Arc::new(ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap()))
}

/// Reserves as a read does, and does not wait for the answer longer than this turn.
async fn ask(fill: &FillMemory, bytes: u64) -> Option<bool> {
    let mut asked = Box::pin(fill.begin(bytes));
    let now = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
    match now {
        Poll::Ready(answer) => Some(answer.is_ok()),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn the_oldest_fill_goes_first_and_a_small_one_passes() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let fill = || memory.fill(Urgency::Mount, PATIENCE, &clock);
    let (holder, old, young, small) = (fill(), fill(), fill(), fill());
    holder.begin(90 * KIB).await.unwrap();
    let mut old_waits = Box::pin(old.begin(50 * KIB));
    assert!(futures::poll!(&mut old_waits).is_pending());
    // There would be room for it.
    let mut young_waits = Box::pin(young.begin(5 * KIB));
    assert!(futures::poll!(&mut young_waits).is_pending());
    assert_eq!(ask(&small, 4 * KIB).await, Some(true));
    drop(holder);
    old_waits.await.unwrap();
    young_waits.await.unwrap();
    assert_eq!(memory.used(), 59 * KIB);
    drop((old, young, small));
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn of_fills_that_wait_for_each_other_the_youngest_is_refused() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let fill = || memory.fill(Urgency::Mount, PATIENCE, &clock);
    let (old, young) = (fill(), fill());
    for fill in [&old, &young] {
        fill.begin(45 * KIB).await.unwrap();
    }
    let mut old_waits = Box::pin(old.begin(20 * KIB));
    assert!(futures::poll!(&mut old_waits).is_pending());
    let mut young_waits = Box::pin(young.begin(20 * KIB));
    // Its read may end and give something back.
    assert!(futures::poll!(&mut young_waits).is_pending());
    old.end(45 * KIB, 45 * KIB);
    young.end(45 * KIB, 45 * KIB);
    let refused = young_waits.await.unwrap_err();
    assert!(!refused.is_hopeless && refused.message.contains("what is read"), "{refused}");
    assert!(futures::poll!(&mut old_waits).is_pending());
    assert!(young.begin(1).await.is_err(), "it is to give back what it holds");
    drop(young);
    old_waits.await.unwrap();
}

#[tokio::test]
async fn who_asks_for_little_is_not_refused_for_those_who_ask_for_much() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let fill = || memory.fill(Urgency::Mount, PATIENCE, &clock);
    let (old, large, small) = (fill(), fill(), fill());
    for (fill, bytes) in [(&old, 50 * KIB), (&large, 43 * KIB), (&small, 2 * KIB)] {
        fill.begin(bytes).await.unwrap();
        fill.end(bytes, bytes);
    }
    let mut old_waits = Box::pin(old.begin(3 * KIB));
    assert!(futures::poll!(&mut old_waits).is_pending());
    let mut small_waits = Box::pin(small.begin(2 * KIB));
    assert!(futures::poll!(&mut small_waits).is_pending());
    // The last one that does not wait yet.
    large.begin(3 * KIB).await.unwrap_err();
    drop(large);
    old_waits.await.unwrap();
    small_waits.await.unwrap();
}

#[tokio::test]
async fn what_nobody_gives_back_is_not_waited_for() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let volume = memory.volume();
    volume.set(90 * KIB);
    let mount = memory.fill(Urgency::Mount, PATIENCE, &clock);
    let refused = mount.begin(10 * KIB).await.unwrap_err();
    assert!(!refused.is_hopeless && refused.hint.contains("spread the pods"), "{refused:?}");
    assert!(mount.begin(97 * KIB).await.unwrap_err().is_hopeless);
    // The last quarter is for rotations.
    let rotation = memory.fill(Urgency::Rotation, PATIENCE, &clock);
    rotation.begin(38 * KIB).await.unwrap();
    drop(volume);
    mount.begin(10 * KIB).await.unwrap();
}

#[tokio::test]
async fn a_fill_stops_waiting_in_time_to_say_why() {
    let (memory, manual) =
        (NodeMemory::new(128 * KIB), ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let clock: SharedClock = Arc::new(manual.clone());
    let (one, other) = (
        memory.fill(Urgency::Mount, PATIENCE, &clock),
        memory.fill(Urgency::Mount, PATIENCE, &clock),
    );
    one.begin(90 * KIB).await.unwrap();
    let mut waits = Box::pin(other.begin(20 * KIB));
    assert!(futures::poll!(&mut waits).is_pending());
    manual.advance(PATIENCE);
    assert!(!waits.await.unwrap_err().is_hopeless);
    drop(one);
    other.begin(20 * KIB).await.unwrap();
}

#[tokio::test]
async fn room_that_was_kept_for_files_becomes_the_claim_of_the_volume() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let (volume, fill) = (memory.volume(), memory.fill(Urgency::Mount, PATIENCE, &clock));
    fill.begin(30 * KIB).await.unwrap();
    fill.end(30 * KIB, 20 * KIB);
    fill.wait_for_files(40 * KIB).await;
    assert_eq!((memory.used(), memory.read()), (60 * KIB, 60 * KIB));
    // It stays so when rotations take their part.
    let rotation = memory.fill(Urgency::Rotation, PATIENCE, &clock);
    rotation.begin(60 * KIB).await.unwrap();
    let purpose = Purpose::Mount;
    let growth = Growth { held: 0, lasting: 0, needed: 40 * KIB, reading: 0, purpose };
    volume.claim(growth, &fill).unwrap();
    drop(rotation);
    assert_eq!((memory.used(), memory.read()), (60 * KIB, 20 * KIB));
    drop(fill);
    volume.set(35 * KIB);
    assert_eq!((memory.used(), memory.read()), (35 * KIB, 0));
}

#[tokio::test]
async fn what_is_cached_makes_room_and_never_takes_that_of_rotations() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let cache = Arc::new(memory.cache());
    cache.take(16 * KIB).unwrap();
    assert_eq!(cache.take(1), Err(CacheRefusal::CacheFull), "an eighth");
    let cached = Arc::clone(&cache);
    memory.evict_with(move |bytes| cached.give_back(bytes));
    let fill = memory.fill(Urgency::Mount, PATIENCE, &clock);
    fill.begin(90 * KIB).await.unwrap();
    assert_eq!(memory.used(), 96 * KIB);
    assert_eq!(cache.take(1), Err(CacheRefusal::NodeFull), "that is the part of the rotations");
}

#[tokio::test]
async fn cached_values_are_evicted_before_a_waiting_fill_is_refused() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let cache = Arc::new(memory.cache());
    cache.take(16 * KIB).unwrap();
    let cached = Arc::clone(&cache);
    memory.evict_with(move |bytes| cached.give_back(bytes));
    let fill = || memory.fill(Urgency::Mount, PATIENCE, &clock);
    let (waiter, holder) = (fill(), fill());
    holder.begin(70 * KIB).await.unwrap();
    // What was evicted for it went to another fill.
    let asked = memory.with(|book| book.ask(waiter.id(), Room::Read(20 * KIB), false));
    let Asked::Wait(_, mut answered) = asked else { panic!("{asked:?}") };
    assert!(answered.try_recv().is_err());
    holder.end(70 * KIB, 70 * KIB);
    let mut holder_waits = Box::pin(holder.begin(20 * KIB));
    assert!(futures::poll!(&mut holder_waits).is_pending());
    assert!(answered.try_recv().unwrap().is_ok(), "granted");
    assert_eq!(memory.used(), 96 * KIB);
}

#[tokio::test]
async fn a_waiting_fill_does_not_make_a_cache_evict_its_own_entries() {
    let (memory, clock) = (NodeMemory::new(128 * KIB), clock());
    let cache = memory.cache();
    cache.take(16 * KIB).unwrap();
    let (holder, waiter) = (
        memory.fill(Urgency::Mount, PATIENCE, &clock),
        memory.fill(Urgency::Mount, PATIENCE, &clock),
    );
    holder.begin(70 * KIB).await.unwrap();
    let mut waits = Box::pin(waiter.begin(30 * KIB));
    assert!(futures::poll!(&mut waits).is_pending());
    // The cache is full too, but freeing its bytes would not give them to it.
    assert_eq!(cache.take(1), Err(CacheRefusal::NodeFull));
    drop(waits);
    assert_eq!(cache.take(1), Err(CacheRefusal::CacheFull));
}

/// One volume of the property below.
#[derive(Debug, Clone)]
struct Scripted {
    vault: usize,
    first: usize,
    objects: usize,
    /// How often each object is asked for under another name.
    times: usize,
    encoding: &'static str,
    urgency: Urgency,
    delay: u64,
    /// After how many seconds the volume is taken away while it is filled.
    abandoned: Option<u64>,
    /// For how many seconds the volume is being written and mounted.
    lasts: u64,
}

fn scripted() -> impl Strategy<Value = Scripted> {
    let encoding = prop::sample::select(vec!["utf-8", "hex", "base64"]);
    let urgency = prop::sample::select(vec![
        Urgency::Mount,
        Urgency::Mount,
        Urgency::Rotation,
        Urgency::Refresh,
    ]);
    let reads = (0..3_usize, 0..8_usize, 1..40_usize, 1..4_usize, encoding);
    let times = (0..40_u64, prop::option::weighted(0.2, 0..20_u64), 0..40_u64);
    (reads, urgency, times).prop_map(|(reads, urgency, (delay, abandoned, lasts))| {
        let (vault, first, objects, times, encoding) = reads;
        Scripted { vault, first, objects, times, encoding, urgency, delay, abandoned, lasts }
    })
}

impl Scripted {
    fn parameters(&self) -> ProviderParameters {
        let entry = |number: usize| {
            let (object, encoding) = (self.first + number % self.objects, self.encoding);
            format!(
                "  - |\n    objectName: {encoding}{object}\n    objectType: secret\n    \
                 objectAlias: f{number}\n    objectEncoding: {encoding}\n"
            )
        };
        let entries: String = (0..self.objects * self.times).map(entry).collect();
        let pairs = [
            ("keyvaultName", format!("kv{}", self.vault)),
            ("tenantID", "11111111-1111-1111-1111-111111111111".to_owned()),
            ("useVMManagedIdentity", "true".to_owned()),
            ("objects", format!("array:\n{entries}")),
        ];
        let pairs = pairs.into_iter().map(|(key, text)| (key.to_owned(), text));
        ProviderParameters::parse(&pairs.collect()).unwrap()
    }

    fn demand(&self) -> Demand {
        let (priority, age) = match self.urgency {
            Urgency::Mount => (Priority::High, 10),
            Urgency::Refresh => (Priority::Normal, 0),
            Urgency::Rotation => (Priority::Low, 100),
        };
        Demand::within(priority, Duration::from_secs(age))
    }

    /// Fills, writes, and is mounted for a while. Says whether there was room.
    async fn run(self, memory: NodeMemory, vaults: Arc<NodeVaults>, clock: SharedClock) -> bool {
        clock.sleep(Duration::from_secs(self.delay)).await;
        let fill = memory.fill(self.urgency, PATIENCE, &clock);
        let [namespace, name, uid, service_account] = ["n", "p", "u", "s"].map(str::to_owned);
        let pod = Pod { namespace, name, uid, service_account };
        let (parameters, proofs) = (self.parameters(), Proofs::default());
        let order = ReadOrder {
            parameters: &parameters,
            pod: &pod,
            proofs: &proofs,
            demand: self.demand(),
            serve_stale: Some(Duration::from_mins(10)),
            memory: &fill,
        };
        let abandoned = async {
            match self.abandoned {
                Some(seconds) => clock.sleep(Duration::from_secs(seconds)).await,
                None => pending().await,
            }
        };
        let reading = tokio::select! {
            reading = Box::pin(vaults.fetch(&order)) => reading,
            () = abandoned => return false,
        };
        let reading = match reading {
            Ok(reading) => reading,
            Err(NodeVaultError::Fetch(FetchError::Read(ReadError::NoRoom { .. }))) => return false,
            Err(error) => panic!("{error:?}"),
        };
        let paths: Vec<(FilePath, u64)> = reading
            .files
            .iter()
            .map(|file| (file.path.parse().unwrap(), u64::try_from(file.content.len()).unwrap()))
            .collect();
        let needed = needed_for(paths.iter().map(|(path, length)| (path, *length)), 4096);
        let at_least: u64 = paths.iter().map(|(_, length)| fill.mounted_size(*length)).sum();
        assert!(at_least <= needed, "a volume is refused for no more than it takes");
        fill.wait_for_files(needed).await;
        let volume = memory.volume();
        let purpose = Purpose::Mount;
        let growth = Growth { held: 0, lasting: 0, needed, reading: 0, purpose };
        let is_mounted = volume.claim(growth, &fill).is_ok();
        clock.sleep(Duration::from_secs(self.lasts / 8)).await;
        drop((reading, fill));
        clock.sleep(Duration::from_secs(self.lasts)).await;
        is_mounted
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever classes ask for, and whoever comes and goes: what volumes hold, what is read for them
    /// and what is cached stays below the limit, and there are no more secret bytes than counted.
    #[test]
    fn reads_and_volumes_never_exceed_the_memory_of_the_node(
        volumes in prop::collection::vec(scripted(), 1..14),
        limit in 192..4_096_u64,
        sizes in prop::collection::vec(0..25_600_usize, 48),
        per_second in prop::sample::select(vec![3_u32, 25, 1_000]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let limit = limit * KIB;
        runtime.block_on(async {
            let before = live_secret_bytes();
            let azure = FakeAzure::new();
            for vault in 0..3 {
                for (number, size) in sizes.iter().enumerate() {
                    for encoding in ["utf-8", "hex", "base64"] {
                        let vault = format!("kv{vault}");
                        azure.put_value(&vault, &format!("{encoding}{number}"), "0".repeat(size / 4 * 4));
                    }
                }
            }
            let memory = NodeMemory::new(limit);
            let ways = azure.ways(Rate { per_second, burst: 10 }, None);
            let stale = StaleCache::in_memory().unwrap();
            let vaults = NodeVaults::new(
                NodeVaultSettings::default(), ways, Some(stale), azure.shared_clock(),
            );
            let reads: Arc<dyn CacheMemory> = Arc::new(memory.cache());
            let vaults = Arc::new(vaults.caching_in(&reads, Arc::new(memory.cache())));
            let cached = Arc::downgrade(&vaults);
            memory.evict_with(move |bytes| {
                if let Some(vaults) = cached.upgrade() {
                    vaults.evict(bytes);
                }
            });
            let clock = azure.shared_clock();
            let run = |volume: &Scripted| {
                volume.clone().run(memory.clone(), Arc::clone(&vaults), SharedClock::clone(&clock))
            };
            let all = futures::future::join_all(volumes.iter().map(run));
            let watched = memory.clone();
            let watch = async move {
                loop {
                    assert!(watched.used() <= limit, "{watched:?}");
                    let live = u64::try_from(live_secret_bytes() - before).unwrap();
                    assert!(live <= watched.read(), "{live} bytes: {watched:?} {}", watched.read());
                    tokio::task::yield_now().await;
                }
            };
            azure
                .drive(async {
                    tokio::select! {
                        _ = all => {}
                        () = watch => {}
                    }
                })
                .await;
            vaults.evict(u64::MAX);
            azure.settle().await;
            let is_idle = memory.0.book.lock().is_idle();
            assert!(is_idle, "{memory:?}");
            drop(vaults);
            azure.settle().await;
            assert_eq!(live_secret_bytes(), before);
        });
    }
}
