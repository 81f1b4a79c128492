use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::ToSpan as _;
use lanyard_clock::ManualClock;
use proptest::prelude::*;

use super::*;
use crate::memory::CacheReserveError;
use crate::source::{FetchedSecret, FetchedVaultObject, ObjectAttributes};

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn secret(value: &str) -> FetchedVaultObject {
    FetchedVaultObject::Secret(FetchedSecret {
        version: "v7".parse().unwrap(),
        attributes: ObjectAttributes {
            expires: Some(now()),
            tags: [("renew_after".to_owned(), "soon".to_owned())].into(),
            ..ObjectAttributes::default()
        },
        content_type: Some("application/json".to_owned()),
        is_certificate_secret: true,
        value: SharedSecretBytes::from(value.to_owned()),
    })
}

use crate::secret_bytes::SharedSecretBytes;

fn fields(parts: &[&str]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.as_bytes().to_vec()).collect()
}

async fn loaded_value(
    cache: &StaleCache,
    id: EntryId,
    at: Timestamp,
    max_age: Duration,
) -> Option<String> {
    match cache.load(id, at, max_age).await?.record {
        EntryRecord::Object(FetchedVaultObject::Secret(secret)) => {
            Some(String::from_utf8(secret.value.expose().to_vec()).unwrap())
        }
        _ => None,
    }
}

struct DiskCacheFixture {
    folder: tempfile::TempDir,
}

impl DiskCacheFixture {
    fn new() -> Self {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        disk.write_key([7; KEY_LENGTH].as_slice(), 0o600);
        disk
    }

    fn write_key(&self, key: &[u8], mode: u32) {
        fs::write(self.key_path(), key).unwrap();
        fs::set_permissions(self.key_path(), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn key_path(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn entries_directory(&self) -> PathBuf {
        self.folder.path().join("entries")
    }

    fn open(&self) -> Result<StaleCache, StaleCacheError> {
        let clock: SharedClock = Arc::new(ManualClock::starting_at(now()));
        StaleCache::on_disk(&self.key_path(), &self.entries_directory(), &clock)
    }

    fn only_entry_file(&self) -> PathBuf {
        let mut files = fs::read_dir(self.entries_directory()).unwrap();
        files.next().unwrap().unwrap().path()
    }
}

#[tokio::test]
async fn stored_entry_is_loaded_with_all_attributes() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("planted")), now()).await;
    let entry = cache.load(id, now(), HOUR).await.unwrap();
    assert_eq!(entry.read_at, now());
    let EntryRecord::Object(FetchedVaultObject::Secret(found)) = entry.record else {
        panic!("a secret")
    };
    let FetchedVaultObject::Secret(retained) = secret("planted") else { panic!("a secret") };
    assert_eq!(found.value, retained.value);
    assert_eq!(found.attributes, retained.attributes);
    assert_eq!((found.version, found.content_type), (retained.version, retained.content_type));
    assert!(found.is_certificate_secret);
    assert!(!format!("{cache:?}").contains("planted"));
}

#[tokio::test]
async fn entry_is_served_up_to_max_age_and_not_from_the_future() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("x")), now()).await;
    for (at, served) in [
        (now() + 60.minutes(), true),
        (now() + 61.minutes(), false),
        (now() - 4.minutes(), true),
        (now() - 6.minutes(), false),
    ] {
        assert_eq!(loaded_value(&cache, id, at, HOUR).await.is_some(), served, "{at}");
    }
}

#[tokio::test]
async fn only_a_newer_entry_replaces_an_older_one() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    for (text, at) in [("one", 0), ("two", 60), ("late", 30)] {
        let read_at = now() + at.seconds();
        cache.store_if_newer(id, EntryRecordRef::Object(&secret(text)), read_at).await;
    }
    assert_eq!(loaded_value(&cache, id, now(), HOUR).await.unwrap(), "two");
    cache.invalidate(id, now() + 90.seconds()).await;
    assert_eq!(loaded_value(&cache, id, now(), HOUR).await, None);
}

#[tokio::test]
async fn entry_read_before_its_invalidation_is_not_stored() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("one")), now()).await;
    cache.invalidate(id, now() + 60.seconds()).await;
    // A pending write.
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("one")), now() + 30.seconds()).await;
    assert_eq!(loaded_value(&cache, id, now() + 61.seconds(), HOUR).await, None);
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("two")), now() + 61.seconds()).await;
    assert_eq!(loaded_value(&cache, id, now() + 61.seconds(), HOUR).await.unwrap(), "two");
}

#[tokio::test]
async fn invalidation_while_sealing_is_honored() {
    let disk = DiskCacheFixture::new();
    for cache in [disk.open().unwrap(), StaleCache::in_memory().unwrap()] {
        let id = cache.entry_id(&fields(&["a"]));
        let sealed = |text: &str, second: i64| {
            let encoded =
                EntryRecordRef::Object(&secret(text)).encode(AES_256_GCM.tag_len()).unwrap();
            cache.seal_entry(id, encoded, now() + second.seconds()).unwrap()
        };
        let (older, refused) = (sealed("older", 10), sealed("refused", 30));
        cache
            .store_if_newer(id, EntryRecordRef::Object(&secret("newer")), now() + 20.seconds())
            .await;
        cache.store.put(id, older, &cache.invalidated).await.unwrap();
        assert_eq!(loaded_value(&cache, id, now(), HOUR).await.unwrap(), "newer");
        cache.invalidate(id, now() + 30.seconds()).await;
        cache.store.put(id, refused, &cache.invalidated).await.unwrap();
        assert_eq!(loaded_value(&cache, id, now(), HOUR).await, None);
    }
}

#[tokio::test]
async fn oversized_entry_is_logged_once_until_it_fits() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    let large = secret(&"x".repeat(MAX_SEALED_BYTES));
    cache.store_if_newer(id, EntryRecordRef::Object(&large), now()).await;
    assert!(!cache.record_oversized(id, now() + 1.second()));
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("x")), now() + 2.seconds()).await;
    assert!(cache.record_oversized(id, now() + 3.seconds()));
}

#[tokio::test]
async fn entries_beyond_the_maximum_age_are_dropped() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("x")), now()).await;
    assert_eq!(loaded_value(&cache, id, now() + (24 * 8).hours(), HOUR).await, None);
    assert_eq!(cache.store.read_at(&id), None);
    // Without a read of the entry.
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("x")), now()).await;
    for number in 0..256 {
        let other = cache.entry_id(&fields(&["b", &number.to_string()]));
        let read_at = now() + (24 * 8).hours();
        cache.store_if_newer(other, EntryRecordRef::Object(&secret("x")), read_at).await;
    }
    assert_eq!(cache.store.read_at(&id), None);
}

/// The memory account of a cache on a node that may be full.
#[derive(Debug)]
struct LimitedCacheMemory {
    limit: u64,
    held: Mutex<u64>,
    is_node_full: AtomicBool,
}

impl CacheMemory for LimitedCacheMemory {
    fn limit_bytes(&self) -> u64 {
        self.limit
    }

    fn reserve_cache_memory(&self, bytes: u64) -> Result<(), CacheReserveError> {
        let mut held = self.held.lock();
        if self.is_node_full.load(Ordering::Relaxed) {
            return Err(CacheReserveError::NodeFull);
        }
        if *held + bytes > self.limit {
            return Err(CacheReserveError::CacheFull);
        }
        *held += bytes;
        Ok(())
    }

    fn release_cache_memory(&self, bytes: u64) {
        *self.held.lock() -= bytes;
    }
}

#[tokio::test]
async fn full_node_drops_the_new_entry_and_full_cache_the_oldest() {
    let limit = 4_096;
    let room =
        LimitedCacheMemory { limit, held: Mutex::default(), is_node_full: AtomicBool::new(false) };
    let room = Arc::new(room);
    let mut cache = StaleCache::in_memory().unwrap();
    let sealed: Arc<dyn CacheMemory> = Arc::<LimitedCacheMemory>::clone(&room);
    cache.set_cache_memory(sealed);
    let ids = ["a", "b", "c"].map(|name| cache.entry_id(&fields(&[name])));
    let [a, b, c] = ids;
    let keep = async |id, content: &str, minute: i64| {
        cache
            .store_if_newer(id, EntryRecordRef::Object(&secret(content)), now() + minute.minutes())
            .await;
    };
    let values = async || {
        let at = now() + 10.minutes();
        let mut lengths = [None; 3];
        for (length, id) in lengths.iter_mut().zip(ids) {
            *length = loaded_value(&cache, id, at, HOUR).await.map(|value| value.len());
        }
        lengths
    };
    keep(a, &"a".repeat(1_200), 0).await;
    keep(b, &"b".repeat(1_200), 1).await;
    room.is_node_full.store(true, Ordering::Relaxed);
    keep(c, &"c".repeat(1_200), 2).await;
    keep(a, &"a".repeat(1_300), 2).await;
    assert_eq!(values().await, [Some(1_200), Some(1_200), None]);
    // The bytes of the replaced entry suffice.
    keep(b, &"b".repeat(1_100), 3).await;
    assert_eq!(values().await, [Some(1_200), Some(1_100), None]);
    room.is_node_full.store(false, Ordering::Relaxed);
    keep(c, &"c".repeat(9_000), 4).await;
    assert_eq!(values().await, [Some(1_200), Some(1_100), None], "not even alone");
    keep(c, &"c".repeat(1_200), 4).await;
    assert_eq!(values().await, [None, Some(1_100), Some(1_200)]);
    for id in ids {
        cache.store.remove(&id).await;
    }
    assert_eq!(*room.held.lock(), 0);
}

#[tokio::test]
async fn entry_that_cannot_be_read_back_is_not_stored() {
    let disk = DiskCacheFixture::new();
    for cache in [disk.open().unwrap(), StaleCache::in_memory().unwrap()] {
        let id = cache.entry_id(&fields(&["a"]));
        let large = "x".repeat(MAX_SEALED_BYTES);
        cache.store_if_newer(id, EntryRecordRef::Object(&secret(&large)), now()).await;
        assert_eq!(cache.store.read_at(&id), None);
    }
    assert_eq!(fs::read_dir(disk.entries_directory()).unwrap().count(), 0);
}

#[tokio::test]
async fn disk_cache_survives_restart_and_reveals_no_content() {
    let disk = DiskCacheFixture::new();
    let cache = disk.open().unwrap();
    let id = cache.entry_id(&fields(&["tenant-a", "planted-name"]));
    cache.store_if_newer(id, EntryRecordRef::Object(&secret("planted-value")), now()).await;
    let cache = disk.open().unwrap();
    assert_eq!(loaded_value(&cache, id, now(), HOUR).await.unwrap(), "planted-value");
    let file = disk.only_entry_file();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let content = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    assert!(!content.contains("planted") && !file.to_string_lossy().contains("planted"));
    // Another key finds no entry.
    disk.write_key(&[8; KEY_LENGTH], 0o600);
    let other = disk.open().unwrap();
    let id = other.entry_id(&fields(&["tenant-a", "planted-name"]));
    assert_eq!(loaded_value(&other, id, now(), HOUR).await, None);
}

#[tokio::test]
async fn tampered_entry_file_is_dropped() {
    let disk = DiskCacheFixture::new();
    let cache = disk.open().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    // A byte of the format, of the time, of the nonce, of the content, of the tag.
    for index in [0, 10, 20, 40, usize::MAX] {
        cache.store_if_newer(id, EntryRecordRef::Object(&secret("x")), now() + 1.second()).await;
        let file = disk.only_entry_file();
        let mut content = fs::read(&file).unwrap();
        let index = index.min(content.len() - 1);
        content[index] ^= 1;
        fs::write(&file, content).unwrap();
        assert_eq!(
            loaded_value(&cache, id, now(), Duration::from_hours(24)).await,
            None,
            "{index}"
        );
        cache.invalidate(id, now()).await;
        assert_eq!(fs::read_dir(disk.entries_directory()).unwrap().count(), 0, "{index}");
    }
}

#[tokio::test]
async fn entry_file_moved_to_another_id_is_rejected() {
    let disk = DiskCacheFixture::new();
    let cache = disk.open().unwrap();
    let (mine, theirs) = (cache.entry_id(&fields(&["a"])), cache.entry_id(&fields(&["b"])));
    cache.store_if_newer(theirs, EntryRecordRef::Object(&secret("theirs")), now()).await;
    let planted = disk.only_entry_file().with_file_name(format!("{}.sealed", hex::encode(mine.0)));
    fs::copy(disk.only_entry_file(), planted).unwrap();
    assert_eq!(loaded_value(&cache, mine, now(), HOUR).await, None);
}

#[test]
fn key_file_that_is_invalid_or_readable_by_others_is_rejected() {
    let disk = DiskCacheFixture::new();
    disk.write_key(&[7; KEY_LENGTH], 0o640);
    assert!(matches!(
        disk.open().unwrap_err(),
        StaleCacheError::KeyFileReadableByOthers { mode: 0o640, .. }
    ));
    disk.write_key(b"short", 0o600);
    assert!(matches!(disk.open().unwrap_err(), StaleCacheError::InvalidKey { .. }));
    disk.write_key(format!("{}\n", STANDARD.encode([9; KEY_LENGTH])).as_bytes(), 0o600);
    assert!(disk.open().is_ok());
}

#[test]
fn writable_by_others_directory_is_rejected_and_leftovers_are_removed() {
    let disk = DiskCacheFixture::new();
    disk.open().unwrap();
    let leftover = disk.entries_directory().join("x.17.partly");
    fs::write(&leftover, "half").unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(&leftover).unwrap().set_modified(long_ago).unwrap();
    let recent = disk.entries_directory().join("y.18.partly");
    fs::write(&recent, "being written").unwrap();
    let foreign = disk.entries_directory().join("README");
    fs::write(&foreign, "not ours").unwrap();
    disk.open().unwrap();
    assert!(!leftover.exists() && recent.exists() && foreign.exists());
    fs::set_permissions(disk.entries_directory(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(disk.open().unwrap_err(), StaleCacheError::Directory { .. }));
}

proptest! {
    #[test]
    fn entry_ids_are_equal_only_for_equal_fields(
        one in prop::collection::vec("[ab]{0,3}", 0..4),
        other in prop::collection::vec("[ab]{0,3}", 0..4),
    ) {
        let cache = StaleCache::in_memory().unwrap();
        let id = |texts: &[String]| {
            cache.entry_id(&texts.iter().map(|text| text.clone().into_bytes()).collect::<Vec<_>>())
        };
        prop_assert_eq!(id(&one) == id(&other), one == other);
    }

    #[test]
    fn decoding_arbitrary_record_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(EntryRecord::decode(&bytes));
    }
}
