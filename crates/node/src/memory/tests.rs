use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lanyard_api::ProviderParameters;
use lanyard_azure::{RequestPriority, RequestRate};
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_keyvault::testing::{FakeAzure, live_secret_bytes};
use lanyard_keyvault::{
    CacheMemory, CacheReserveError, FetchError, Freshness, NodeVaultError, NodeVaultSettings,
    NodeVaults, PodCredentials, ReadError, ReadMemory, StaleCache, VolumePod, VolumeReadRequest,
};
use lanyard_provider::Urgency;
use lanyard_volume::{FilePath, MemoryPurpose, max_generation_size};
use proptest::prelude::*;

use super::account_state::{Reservation, ReserveResult};
use super::*;

const KIB: u64 = 1024;
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

fn clock() -> SharedClock {
    Arc::new(ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap()))
}

/// Tries to reserve memory for a read, without waiting longer than one poll.
async fn try_reserve_read(fill: &FetchMemory, bytes: u64) -> Option<bool> {
    let mut result = Box::pin(fill.reserve_read_memory(bytes));
    let now = poll_fn(|context| Poll::Ready(result.as_mut().poll(context))).await;
    match now {
        Poll::Ready(answer) => Some(answer.is_ok()),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn oldest_fetch_is_granted_first_and_a_small_one_overtakes() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let fill = || memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock);
    let (holder, old, young, small) = (fill(), fill(), fill(), fill());
    holder.reserve_read_memory(90 * KIB).await.unwrap();
    let mut old_waits = Box::pin(old.reserve_read_memory(50 * KIB));
    assert!(futures::poll!(&mut old_waits).is_pending());
    // There would be enough memory for it.
    let mut young_waits = Box::pin(young.reserve_read_memory(5 * KIB));
    assert!(futures::poll!(&mut young_waits).is_pending());
    assert_eq!(try_reserve_read(&small, 4 * KIB).await, Some(true));
    drop(holder);
    old_waits.await.unwrap();
    young_waits.await.unwrap();
    assert_eq!(memory.used(), 59 * KIB);
    drop((old, young, small));
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn held_reservations_outlive_their_cancelled_fetch() {
    let memory = MemoryAccount::new(128 * KIB);
    let fetch = memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock());
    fetch.reserve_read_memory(64 * KIB).await.unwrap();
    let held = fetch.hold_reservations();
    drop(fetch);
    assert_eq!(memory.used(), 64 * KIB);
    drop(held);
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn youngest_of_deadlocked_fetches_is_refused() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let fill = || memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock);
    let (old, young) = (fill(), fill());
    for fill in [&old, &young] {
        fill.reserve_read_memory(45 * KIB).await.unwrap();
    }
    let mut old_waits = Box::pin(old.reserve_read_memory(20 * KIB));
    assert!(futures::poll!(&mut old_waits).is_pending());
    let mut young_waits = Box::pin(young.reserve_read_memory(20 * KIB));
    // Its read may end and release memory.
    assert!(futures::poll!(&mut young_waits).is_pending());
    old.finish_read(45 * KIB, 45 * KIB);
    young.finish_read(45 * KIB, 45 * KIB);
    let refused = young_waits.await.unwrap_err();
    assert!(
        !refused.exceeds_node_capacity && refused.message.contains("the responses read for them"),
        "{refused}"
    );
    assert!(futures::poll!(&mut old_waits).is_pending());
    assert!(
        young.reserve_read_memory(1).await.is_err(),
        "the refused fetch must release its memory"
    );
    drop(young);
    old_waits.await.unwrap();
}

#[tokio::test]
async fn small_fetch_is_not_refused_because_of_large_ones() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let fill = || memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock);
    let (old, large, small) = (fill(), fill(), fill());
    for (fill, bytes) in [(&old, 50 * KIB), (&large, 43 * KIB), (&small, 2 * KIB)] {
        fill.reserve_read_memory(bytes).await.unwrap();
        fill.finish_read(bytes, bytes);
    }
    let mut old_waits = Box::pin(old.reserve_read_memory(3 * KIB));
    assert!(futures::poll!(&mut old_waits).is_pending());
    let mut small_waits = Box::pin(small.reserve_read_memory(2 * KIB));
    assert!(futures::poll!(&mut small_waits).is_pending());
    // The last fetch that does not wait yet.
    large.reserve_read_memory(3 * KIB).await.unwrap_err();
    drop(large);
    old_waits.await.unwrap();
    small_waits.await.unwrap();
}

#[tokio::test]
async fn fetch_does_not_wait_for_memory_of_mounted_volumes() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let volume = memory.volume_memory();
    volume.set_used(90 * KIB);
    let mount = memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock);
    let refused = mount.reserve_read_memory(10 * KIB).await.unwrap_err();
    assert!(
        !refused.exceeds_node_capacity && refused.hint.contains("spread the pods"),
        "{refused:?}"
    );
    assert!(mount.reserve_read_memory(97 * KIB).await.unwrap_err().exceeds_node_capacity);
    // The last quarter is for rotations.
    let rotation = memory.fetch_memory(Urgency::Rotation, WAIT_TIMEOUT, &clock);
    rotation.reserve_read_memory(38 * KIB).await.unwrap();
    drop(volume);
    mount.reserve_read_memory(10 * KIB).await.unwrap();
}

#[tokio::test]
async fn fetch_waiting_for_memory_times_out_with_a_reason() {
    let (memory, manual) =
        (MemoryAccount::new(128 * KIB), ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let clock: SharedClock = Arc::new(manual.clone());
    let (one, other) = (
        memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock),
        memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock),
    );
    one.reserve_read_memory(90 * KIB).await.unwrap();
    let mut waits = Box::pin(other.reserve_read_memory(20 * KIB));
    assert!(futures::poll!(&mut waits).is_pending());
    manual.advance(WAIT_TIMEOUT);
    assert!(!waits.await.unwrap_err().exceeds_node_capacity);
    drop(one);
    other.reserve_read_memory(20 * KIB).await.unwrap();
}

#[tokio::test]
async fn bytes_reserved_for_files_become_the_volume_claim() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let (volume, fill) =
        (memory.volume_memory(), memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock));
    fill.reserve_read_memory(30 * KIB).await.unwrap();
    fill.finish_read(30 * KIB, 20 * KIB);
    fill.reserve_files(40 * KIB).await;
    assert_eq!((memory.used(), memory.read_or_cached()), (60 * KIB, 60 * KIB));
    // The reservation stays when rotations use their share.
    let rotation = memory.fetch_memory(Urgency::Rotation, WAIT_TIMEOUT, &clock);
    rotation.reserve_read_memory(60 * KIB).await.unwrap();
    let purpose = MemoryPurpose::Mount;
    let growth =
        GrowthRequest { used: 0, used_after_scrub: 0, needed: 40 * KIB, read_bytes: 0, purpose };
    volume.claim(growth, &fill).unwrap();
    drop(rotation);
    assert_eq!((memory.used(), memory.read_or_cached()), (60 * KIB, 20 * KIB));
    drop(fill);
    volume.set_used(35 * KIB);
    assert_eq!((memory.used(), memory.read_or_cached()), (35 * KIB, 0));
}

#[tokio::test]
async fn cache_is_evicted_for_fetches_and_never_uses_the_rotation_share() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let cache = Arc::new(memory.cache_memory());
    cache.reserve_cache_memory(16 * KIB).unwrap();
    assert_eq!(cache.reserve_cache_memory(1), Err(CacheReserveError::CacheFull), "an eighth");
    let cached = Arc::clone(&cache);
    memory.set_evictor(move |bytes| cached.release_cache_memory(bytes));
    let fill = memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock);
    fill.reserve_read_memory(90 * KIB).await.unwrap();
    assert_eq!(memory.used(), 96 * KIB);
    assert_eq!(
        cache.reserve_cache_memory(1),
        Err(CacheReserveError::NodeFull),
        "the last quarter is reserved for rotations"
    );
}

#[tokio::test]
async fn cached_values_are_evicted_before_a_waiting_fetch_is_refused() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let cache = Arc::new(memory.cache_memory());
    cache.reserve_cache_memory(16 * KIB).unwrap();
    let cached = Arc::clone(&cache);
    memory.set_evictor(move |bytes| cached.release_cache_memory(bytes));
    let fill = || memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock);
    let (waiter, holder) = (fill(), fill());
    holder.reserve_read_memory(70 * KIB).await.unwrap();
    // Another fetch got the evicted memory.
    let result =
        memory.update(|state| state.reserve(waiter.id(), Reservation::Read(20 * KIB), false));
    let ReserveResult::Pending(_, mut answered) = result else { panic!("{result:?}") };
    assert!(answered.try_recv().is_err());
    holder.finish_read(70 * KIB, 70 * KIB);
    let mut holder_waits = Box::pin(holder.reserve_read_memory(20 * KIB));
    assert!(futures::poll!(&mut holder_waits).is_pending());
    assert!(answered.try_recv().unwrap().is_ok(), "granted");
    assert_eq!(memory.used(), 96 * KIB);
}

#[tokio::test]
async fn waiting_fetch_does_not_make_a_cache_evict_its_own_entries() {
    let (memory, clock) = (MemoryAccount::new(128 * KIB), clock());
    let cache = memory.cache_memory();
    cache.reserve_cache_memory(16 * KIB).unwrap();
    let (holder, waiter) = (
        memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock),
        memory.fetch_memory(Urgency::Mount, WAIT_TIMEOUT, &clock),
    );
    holder.reserve_read_memory(70 * KIB).await.unwrap();
    let mut waits = Box::pin(waiter.reserve_read_memory(30 * KIB));
    assert!(futures::poll!(&mut waits).is_pending());
    // The cache is full too, but evicting its entries would not free memory for it.
    assert_eq!(cache.reserve_cache_memory(1), Err(CacheReserveError::NodeFull));
    drop(waits);
    assert_eq!(cache.reserve_cache_memory(1), Err(CacheReserveError::CacheFull));
}

/// One volume of the property test below.
#[derive(Debug, Clone)]
struct ScriptedVolumeFetch {
    vault: usize,
    first: usize,
    objects: usize,
    /// The number of aliases under which each object is requested.
    aliases_per_object: usize,
    encoding: &'static str,
    urgency: Urgency,
    delay: u64,
    /// After how many seconds the volume is unpublished during its fetch.
    unpublished_after: Option<u64>,
    /// For how many seconds the volume is written and mounted.
    mounted_for: u64,
}

fn any_volume_fetch() -> impl Strategy<Value = ScriptedVolumeFetch> {
    let encoding = prop::sample::select(vec!["utf-8", "hex", "base64"]);
    let urgency = prop::sample::select(vec![
        Urgency::Mount,
        Urgency::Mount,
        Urgency::Rotation,
        Urgency::ForceRefresh,
    ]);
    let reads = (0..3_usize, 0..8_usize, 1..40_usize, 1..4_usize, encoding);
    let times = (0..40_u64, prop::option::weighted(0.2, 0..20_u64), 0..40_u64);
    (reads, urgency, times).prop_map(|(reads, urgency, (delay, abandoned, lasts))| {
        let (vault, first, objects, times, encoding) = reads;
        ScriptedVolumeFetch {
            vault,
            first,
            objects,
            aliases_per_object: times,
            encoding,
            urgency,
            delay,
            unpublished_after: abandoned,
            mounted_for: lasts,
        }
    })
}

impl ScriptedVolumeFetch {
    fn parameters(&self) -> ProviderParameters {
        let entry = |number: usize| {
            let (object, encoding) = (self.first + number % self.objects, self.encoding);
            format!(
                "  - |\n    objectName: {encoding}{object}\n    objectType: secret\n    \
                 objectAlias: f{number}\n    objectEncoding: {encoding}\n"
            )
        };
        let entries: String = (0..self.objects * self.aliases_per_object).map(entry).collect();
        let pairs = [
            ("keyvaultName", format!("kv{}", self.vault)),
            ("tenantID", "11111111-1111-1111-1111-111111111111".to_owned()),
            ("useVMManagedIdentity", "true".to_owned()),
            ("objects", format!("array:\n{entries}")),
        ];
        let pairs = pairs.into_iter().map(|(key, text)| (key.to_owned(), text));
        ProviderParameters::parse(&pairs.collect()).unwrap()
    }

    fn freshness(&self) -> Freshness {
        let (priority, age) = match self.urgency {
            Urgency::Mount => (RequestPriority::High, 10),
            Urgency::ForceRefresh => (RequestPriority::Normal, 0),
            Urgency::Rotation => (RequestPriority::Low, 100),
        };
        Freshness::with_max_age(priority, Duration::from_secs(age))
    }

    /// Fetches, writes and mounts a volume for a while. Returns whether there was enough memory.
    async fn run(self, memory: MemoryAccount, vaults: Arc<NodeVaults>, clock: SharedClock) -> bool {
        clock.sleep(Duration::from_secs(self.delay)).await;
        let fill = memory.fetch_memory(self.urgency, WAIT_TIMEOUT, &clock);
        let [namespace, name, uid, service_account] = ["n", "p", "u", "s"].map(str::to_owned);
        let pod = VolumePod { namespace, name, uid, service_account };
        let (parameters, pod_credentials) = (self.parameters(), PodCredentials::default());
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod: &pod,
            credentials: &pod_credentials,
            freshness: self.freshness(),
            serve_stale: Some(Duration::from_mins(10)),
            memory: &fill,
        };
        let abandoned = async {
            match self.unpublished_after {
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
            Err(NodeVaultError::Fetch(FetchError::Read(ReadError::NotEnoughMemory { .. }))) => {
                return false;
            }
            Err(error) => panic!("{error:?}"),
        };
        let paths: Vec<(FilePath, u64)> = reading
            .files
            .iter()
            .map(|file| (file.path.parse().unwrap(), u64::try_from(file.content.len()).unwrap()))
            .collect();
        let needed = max_generation_size(paths.iter().map(|(path, length)| (path, *length)), 4096);
        let at_least: u64 = paths.iter().map(|(_, length)| fill.mounted_size(*length)).sum();
        assert!(at_least <= needed, "no volume is refused because of an overestimate");
        fill.reserve_files(needed).await;
        let volume = memory.volume_memory();
        let purpose = MemoryPurpose::Mount;
        let growth = GrowthRequest { used: 0, used_after_scrub: 0, needed, read_bytes: 0, purpose };
        let is_mounted = volume.claim(growth, &fill).is_ok();
        clock.sleep(Duration::from_secs(self.mounted_for / 8)).await;
        drop((reading, fill));
        clock.sleep(Duration::from_secs(self.mounted_for)).await;
        is_mounted
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever classes request and however volumes come and go, the memory of volumes, fetches and
    /// caches stays below the limit, and there are no more secret bytes than the account counts.
    #[test]
    fn reads_and_volumes_never_exceed_the_memory_of_the_node(
        volumes in prop::collection::vec(any_volume_fetch(), 1..14),
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
                        azure.add_secret_value(&vault, &format!("{encoding}{number}"), "0".repeat(size / 4 * 4));
                    }
                }
            }
            let memory = MemoryAccount::new(limit);
            let ways = azure.node_transports(RequestRate { per_second, burst: 10 }, None);
            let stale = StaleCache::in_memory().unwrap();
            let vaults = NodeVaults::new(
                NodeVaultSettings::default(), ways, Some(stale), azure.shared_clock(),
            );
            let reads: Arc<dyn CacheMemory> = Arc::new(memory.cache_memory());
            let vaults = Arc::new(vaults.with_cache_memory(&reads, Arc::new(memory.cache_memory())));
            let cached = Arc::downgrade(&vaults);
            memory.set_evictor(move |bytes| {
                if let Some(vaults) = cached.upgrade() {
                    vaults.evict(bytes);
                }
            });
            let clock = azure.shared_clock();
            let run = |volume: &ScriptedVolumeFetch| {
                volume.clone().run(memory.clone(), Arc::clone(&vaults), SharedClock::clone(&clock))
            };
            let all = futures::future::join_all(volumes.iter().map(run));
            let watched = memory.clone();
            let watch = async move {
                loop {
                    assert!(watched.used() <= limit, "{watched:?}");
                    let live = u64::try_from(live_secret_bytes() - before).unwrap();
                    assert!(live <= watched.read_or_cached(), "{live} bytes: {watched:?} {}", watched.read_or_cached());
                    tokio::task::yield_now().await;
                }
            };
            azure
                .run_advancing_clock(async {
                    tokio::select! {
                        _ = all => {}
                        () = watch => {}
                    }
                })
                .await;
            vaults.evict(u64::MAX);
            azure.run_pending_tasks().await;
            let is_idle = memory.0.state.lock().is_idle();
            assert!(is_idle, "{memory:?}");
            drop(vaults);
            azure.run_pending_tasks().await;
            assert_eq!(live_secret_bytes(), before);
        });
    }
}
