use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::ToSpan as _;
use lanyard_clock::ManualClock;
use proptest::prelude::*;

use super::*;
use crate::fetch::VaultObject;
use crate::memory::CacheRefusal;
use crate::source::{ObjectAttributes, VaultSecret};

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn secret(value: &str) -> VaultObject {
    VaultObject::Secret(VaultSecret {
        version: "v7".parse().unwrap(),
        attributes: ObjectAttributes {
            expires: Some(now()),
            tags: [("renew_after".to_owned(), "soon".to_owned())].into(),
            ..ObjectAttributes::default()
        },
        content_type: Some("application/json".to_owned()),
        of_certificate: true,
        value: SecretBytes::from(value.to_owned()),
    })
}

use crate::secret_bytes::SecretBytes;

fn fields(parts: &[&str]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.as_bytes().to_vec()).collect()
}

async fn value(
    cache: &StaleCache,
    id: EntryId,
    at: Timestamp,
    max_age: Duration,
) -> Option<String> {
    match cache.load(id, at, max_age).await?.record {
        Record::Object(VaultObject::Secret(secret)) => {
            Some(String::from_utf8(secret.value.expose().to_vec()).unwrap())
        }
        _ => None,
    }
}

struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        disk.write_key([7; KEY_LENGTH].as_slice(), 0o600);
        disk
    }

    fn write_key(&self, key: &[u8], mode: u32) {
        fs::write(self.key(), key).unwrap();
        fs::set_permissions(self.key(), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn entries(&self) -> PathBuf {
        self.folder.path().join("entries")
    }

    fn open(&self) -> Result<StaleCache, StaleCacheError> {
        let clock: SharedClock = Arc::new(ManualClock::starting_at(now()));
        StaleCache::on_disk(&self.key(), &self.entries(), &clock)
    }

    fn file(&self) -> PathBuf {
        let mut files = fs::read_dir(self.entries()).unwrap();
        files.next().unwrap().unwrap().path()
    }
}

#[tokio::test]
async fn an_entry_comes_back_with_everything_that_was_told() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.keep(id, RecordRef::Object(&secret("planted")), now()).await;
    let entry = cache.load(id, now(), HOUR).await.unwrap();
    assert_eq!(entry.read_at, now());
    let Record::Object(VaultObject::Secret(found)) = entry.record else { panic!("a secret") };
    let VaultObject::Secret(kept) = secret("planted") else { panic!("a secret") };
    assert_eq!(found.value, kept.value);
    assert_eq!(found.attributes, kept.attributes);
    assert_eq!((found.version, found.content_type), (kept.version, kept.content_type));
    assert!(found.of_certificate);
    assert!(!format!("{cache:?}").contains("planted"));
}

#[tokio::test]
async fn an_entry_is_served_up_to_its_age_and_not_from_the_future() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.keep(id, RecordRef::Object(&secret("x")), now()).await;
    for (at, served) in [
        (now() + 60.minutes(), true),
        (now() + 61.minutes(), false),
        (now() - 4.minutes(), true),
        (now() - 6.minutes(), false),
    ] {
        assert_eq!(value(&cache, id, at, HOUR).await.is_some(), served, "{at}");
    }
}

#[tokio::test]
async fn a_newer_entry_replaces_an_older_one_and_not_the_other_way_round() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    for (text, at) in [("one", 0), ("two", 60), ("late", 30)] {
        let read_at = now() + at.seconds();
        cache.keep(id, RecordRef::Object(&secret(text)), read_at).await;
    }
    assert_eq!(value(&cache, id, now(), HOUR).await.unwrap(), "two");
    cache.forget(id, now() + 90.seconds()).await;
    assert_eq!(value(&cache, id, now(), HOUR).await, None);
}

#[tokio::test]
async fn what_was_read_before_it_was_forgotten_does_not_come_back() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.keep(id, RecordRef::Object(&secret("one")), now()).await;
    cache.forget(id, now() + 60.seconds()).await;
    // Somebody had it in hand.
    cache.keep(id, RecordRef::Object(&secret("one")), now() + 30.seconds()).await;
    assert_eq!(value(&cache, id, now() + 61.seconds(), HOUR).await, None);
    cache.keep(id, RecordRef::Object(&secret("two")), now() + 61.seconds()).await;
    assert_eq!(value(&cache, id, now() + 61.seconds(), HOUR).await.unwrap(), "two");
}

#[tokio::test]
async fn what_happens_while_an_entry_is_sealed_counts_for_it() {
    let disk = Disk::new();
    for cache in [disk.open().unwrap(), StaleCache::in_memory().unwrap()] {
        let id = cache.entry_id(&fields(&["a"]));
        let sealed = |text: &str, second: i64| {
            let encoded = RecordRef::Object(&secret(text)).encode(AES_256_GCM.tag_len()).unwrap();
            cache.seal(id, encoded, now() + second.seconds()).unwrap()
        };
        let (older, refused) = (sealed("older", 10), sealed("refused", 30));
        cache.keep(id, RecordRef::Object(&secret("newer")), now() + 20.seconds()).await;
        cache.store.put(id, older, &cache.forgotten).await.unwrap();
        assert_eq!(value(&cache, id, now(), HOUR).await.unwrap(), "newer");
        cache.forget(id, now() + 30.seconds()).await;
        cache.store.put(id, refused, &cache.forgotten).await.unwrap();
        assert_eq!(value(&cache, id, now(), HOUR).await, None);
    }
}

#[tokio::test]
async fn that_an_entry_is_too_large_is_news_until_it_fits_again() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    let large = secret(&"x".repeat(LARGEST_CONTENT));
    cache.keep(id, RecordRef::Object(&large), now()).await;
    assert!(!cache.note_too_large(id, now() + 1.second()));
    cache.keep(id, RecordRef::Object(&secret("x")), now() + 2.seconds()).await;
    assert!(cache.note_too_large(id, now() + 3.seconds()));
}

#[tokio::test]
async fn what_nobody_may_ask_for_any_more_is_dropped() {
    let cache = StaleCache::in_memory().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    cache.keep(id, RecordRef::Object(&secret("x")), now()).await;
    assert_eq!(value(&cache, id, now() + (24 * 8).hours(), HOUR).await, None);
    assert_eq!(cache.store.read_at(&id), None);
    // Without anybody asking for it.
    cache.keep(id, RecordRef::Object(&secret("x")), now()).await;
    for number in 0..256 {
        let other = cache.entry_id(&fields(&["b", &number.to_string()]));
        let read_at = now() + (24 * 8).hours();
        cache.keep(other, RecordRef::Object(&secret("x")), read_at).await;
    }
    assert_eq!(cache.store.read_at(&id), None);
}

/// Memory of a cache, on a node that may be full.
#[derive(Debug)]
struct Room {
    limit: u64,
    held: Mutex<u64>,
    is_node_full: AtomicBool,
}

impl CacheMemory for Room {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn take(&self, bytes: u64) -> Result<(), CacheRefusal> {
        let mut held = self.held.lock();
        if self.is_node_full.load(Ordering::Relaxed) {
            return Err(CacheRefusal::NodeFull);
        }
        if *held + bytes > self.limit {
            return Err(CacheRefusal::CacheFull);
        }
        *held += bytes;
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        *self.held.lock() -= bytes;
    }
}

#[tokio::test]
async fn a_full_node_costs_the_new_entry_and_a_full_cache_the_oldest_one() {
    let limit = 4_096;
    let room = Room { limit, held: Mutex::default(), is_node_full: AtomicBool::new(false) };
    let room = Arc::new(room);
    let mut cache = StaleCache::in_memory().unwrap();
    let sealed: Arc<dyn CacheMemory> = Arc::<Room>::clone(&room);
    cache.seal_in(sealed);
    let ids = ["a", "b", "c"].map(|name| cache.entry_id(&fields(&[name])));
    let [a, b, c] = ids;
    let keep = async |id, content: &str, minute: i64| {
        cache.keep(id, RecordRef::Object(&secret(content)), now() + minute.minutes()).await;
    };
    let values = async || {
        let at = now() + 10.minutes();
        let mut lengths = [None; 3];
        for (length, id) in lengths.iter_mut().zip(ids) {
            *length = value(&cache, id, at, HOUR).await.map(|value| value.len());
        }
        lengths
    };
    keep(a, &"a".repeat(1_200), 0).await;
    keep(b, &"b".repeat(1_200), 1).await;
    room.is_node_full.store(true, Ordering::Relaxed);
    keep(c, &"c".repeat(1_200), 2).await;
    keep(a, &"a".repeat(1_300), 2).await;
    assert_eq!(values().await, [Some(1_200), Some(1_200), None]);
    // The bytes of the entry that it replaces are enough.
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
async fn what_could_not_be_read_again_is_not_kept() {
    let disk = Disk::new();
    for cache in [disk.open().unwrap(), StaleCache::in_memory().unwrap()] {
        let id = cache.entry_id(&fields(&["a"]));
        let large = "x".repeat(LARGEST_CONTENT);
        cache.keep(id, RecordRef::Object(&secret(&large)), now()).await;
        assert_eq!(cache.store.read_at(&id), None);
    }
    assert_eq!(fs::read_dir(disk.entries()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_cache_on_disk_survives_a_restart_and_tells_nothing_to_who_looks_at_it() {
    let disk = Disk::new();
    let cache = disk.open().unwrap();
    let id = cache.entry_id(&fields(&["tenant-a", "planted-name"]));
    cache.keep(id, RecordRef::Object(&secret("planted-value")), now()).await;
    let cache = disk.open().unwrap();
    assert_eq!(value(&cache, id, now(), HOUR).await.unwrap(), "planted-value");
    let file = disk.file();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let content = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
    assert!(!content.contains("planted") && !file.to_string_lossy().contains("planted"));
    // Another key finds nothing.
    disk.write_key(&[8; KEY_LENGTH], 0o600);
    let other = disk.open().unwrap();
    let id = other.entry_id(&fields(&["tenant-a", "planted-name"]));
    assert_eq!(value(&other, id, now(), HOUR).await, None);
}

#[tokio::test]
async fn a_file_that_was_touched_is_dropped() {
    let disk = Disk::new();
    let cache = disk.open().unwrap();
    let id = cache.entry_id(&fields(&["a"]));
    // A byte of the format, of the time, of the nonce, of the content, of the tag.
    for index in [0, 10, 20, 40, usize::MAX] {
        cache.keep(id, RecordRef::Object(&secret("x")), now() + 1.second()).await;
        let file = disk.file();
        let mut content = fs::read(&file).unwrap();
        let index = index.min(content.len() - 1);
        content[index] ^= 1;
        fs::write(&file, content).unwrap();
        assert_eq!(value(&cache, id, now(), Duration::from_hours(24)).await, None, "{index}");
        cache.forget(id, now()).await;
        assert_eq!(fs::read_dir(disk.entries()).unwrap().count(), 0, "{index}");
    }
}

#[tokio::test]
async fn an_entry_in_the_place_of_another_is_not_served() {
    let disk = Disk::new();
    let cache = disk.open().unwrap();
    let (mine, theirs) = (cache.entry_id(&fields(&["a"])), cache.entry_id(&fields(&["b"])));
    cache.keep(theirs, RecordRef::Object(&secret("theirs")), now()).await;
    let planted = disk.file().with_file_name(format!("{}.sealed", hex::encode(mine.0)));
    fs::copy(disk.file(), planted).unwrap();
    assert_eq!(value(&cache, mine, now(), HOUR).await, None);
}

#[test]
fn a_key_that_others_may_read_or_that_is_none_is_refused() {
    let disk = Disk::new();
    disk.write_key(&[7; KEY_LENGTH], 0o640);
    assert!(matches!(disk.open().unwrap_err(), StaleCacheError::KeyMode { mode: 0o640, .. }));
    disk.write_key(b"short", 0o600);
    assert!(matches!(disk.open().unwrap_err(), StaleCacheError::Key { .. }));
    disk.write_key(format!("{}\n", STANDARD.encode([9; KEY_LENGTH])).as_bytes(), 0o600);
    assert!(disk.open().is_ok());
}

#[test]
fn a_directory_that_others_may_write_is_refused_and_leftovers_are_cleared() {
    let disk = Disk::new();
    disk.open().unwrap();
    let leftover = disk.entries().join("x.17.partly");
    fs::write(&leftover, "half").unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(&leftover).unwrap().set_modified(long_ago).unwrap();
    let recent = disk.entries().join("y.18.partly");
    fs::write(&recent, "being written").unwrap();
    let foreign = disk.entries().join("README");
    fs::write(&foreign, "not ours").unwrap();
    disk.open().unwrap();
    assert!(!leftover.exists() && recent.exists() && foreign.exists());
    fs::set_permissions(disk.entries(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(disk.open().unwrap_err(), StaleCacheError::Directory { .. }));
}

proptest! {
    #[test]
    fn two_lists_of_fields_share_an_entry_only_if_they_are_the_same(
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
    fn no_bytes_make_the_reader_of_records_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(Record::decode(&bytes));
    }
}
