//! The cache of the classes of one namespace. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_api::secret_provider_class::{SecretObject, SecretObjectData};

use super::bounded_class::BoundedClass;

/// The requested classes of one namespace.
#[derive(Debug, Default)]
pub(super) struct ClassStore {
    entries: BTreeMap<String, ClassEntry>,
    /// Whether the watch delivers every change since the last read of each class with `read_since_watch`.
    watch_active: bool,
}

#[derive(Debug, Default)]
struct ClassEntry {
    /// The time of the last request.
    last_requested: Duration,
    class: Option<Arc<SecretProviderClass>>,
    /// The size of the class in memory, in bytes; zero without a class. A class larger than
    /// [`MAX_CLASS_BYTES`] is not cached.
    size_bytes: u64,
    /// The resource version at which the class was last seen or found missing.
    resource_version: Option<u64>,
    /// Whether the class was read after the watch started.
    read_since_watch: bool,
    /// The start of the last read.
    read_started: Option<Duration>,
    /// The end of the last read, and its error.
    read_finished: Option<(Duration, Option<String>)>,
}

/// The result of a cache lookup.
#[derive(Debug, PartialEq)]
pub(super) enum ClassLookup {
    /// The current class; the watch would have delivered a change.
    Current(Arc<SecretProviderClass>),
    /// The class of a recent read.
    LastKnown(Arc<SecretProviderClass>),
    /// The class did not exist at a recent read, or exceeds the size limit ([`ClassStore::oversized_bytes`]).
    Absent,
    /// A recent read failed.
    Failed(String),
    /// The class must be read. The last known class, if there is one.
    NeedsRead(Option<Arc<SecretProviderClass>>),
}

impl ClassStore {
    /// Looks up a class that is needed at `now`.
    ///
    /// Some callers look up a class every second or two. While the watch does not guarantee that the entry is
    /// current, they get the cached entry between reads, which spares a failing API server.
    pub(super) fn lookup(&mut self, name: &str, now: Duration) -> ClassLookup {
        let watch_active = self.watch_active;
        let entry = self.entries.entry(name.to_owned()).or_default();
        entry.last_requested = now;
        let within = |since: Duration, pause| now.saturating_sub(since) < pause;
        match (&entry.class, &entry.read_finished) {
            (Some(class), _) if watch_active && entry.read_since_watch => {
                ClassLookup::Current(Arc::clone(class))
            }
            (None, _)
                if entry.is_too_large()
                    && (watch_active && entry.read_since_watch
                        || entry
                            .read_started
                            .is_some_and(|started| within(started, MIN_READ_INTERVAL))) =>
            {
                ClassLookup::Absent
            }
            (Some(class), _)
                if entry.read_started.is_some_and(|started| within(started, MIN_READ_INTERVAL)) =>
            {
                ClassLookup::LastKnown(Arc::clone(class))
            }
            (None, Some((ended, Some(problem)))) if within(*ended, FAILURE_TTL) => {
                ClassLookup::Failed(problem.clone())
            }
            (None, Some((ended, None)))
                if watch_active && entry.read_since_watch && within(*ended, ABSENCE_TTL) =>
            {
                ClassLookup::Absent
            }
            (class, _) => ClassLookup::NeedsRead(class.clone()),
        }
    }

    /// Records the start of a read.
    pub(super) fn begin_read(&mut self, name: &str, now: Duration) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.read_started = Some(now);
        }
    }

    /// Records the end of a read, and its error.
    pub(super) fn end_read(&mut self, name: &str, now: Duration, problem: Option<String>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.read_finished = Some((now, problem));
        }
    }

    /// Returns the last known class.
    pub(super) fn class(&self, name: &str) -> Option<Arc<SecretProviderClass>> {
        self.entries.get(name)?.class.clone()
    }

    /// Returns the size of a class that exceeds the limit.
    pub(super) fn oversized_bytes(&self, name: &str) -> Option<u64> {
        self.entries.get(name).filter(|entry| entry.is_too_large()).map(|entry| entry.size_bytes)
    }

    /// Stores a class from a read or the watch. Returns its name if it changed.
    pub(super) fn observe(&mut self, received: BoundedClass) -> Option<String> {
        let BoundedClass(mut class) = received;
        let name = class.metadata.name.clone()?;
        let entry = self.entries.get_mut(&name)?;
        // The resource version would make every update of the class a change.
        let version = parse_resource_version(class.metadata.resource_version.take().as_deref());
        if is_older(version, entry.resource_version) {
            return None;
        }
        entry.resource_version = version;
        // The first read of a class is not a change: its result goes to the caller that requested it.
        let is_change = entry.class.is_some() || entry.is_too_large() || entry.read_since_watch;
        entry.read_since_watch |= self.watch_active;
        if entry.class.as_deref() == Some(&class) {
            return None;
        }
        entry.size_bytes = class_bytes(&class);
        entry.class = (!entry.is_too_large()).then(|| Arc::new(class));
        is_change.then_some(name)
    }

    /// Records that the class does not exist at `version`. Returns the name if it existed before.
    pub(super) fn observe_deletion(&mut self, name: &str, version: Option<&str>) -> Option<String> {
        let entry = self.entries.get_mut(name)?;
        let version = parse_resource_version(version);
        if is_older(version, entry.resource_version) {
            return None;
        }
        entry.resource_version = version.or(entry.resource_version);
        entry.read_since_watch |= self.watch_active;
        let was_there = entry.class.take().is_some() || entry.is_too_large();
        entry.size_bytes = 0;
        was_there.then(|| name.to_owned())
    }

    /// Marks the watch as started, and returns the classes that were read before and must be read again.
    pub(super) fn start_watch(&mut self) -> Vec<String> {
        self.watch_active = true;
        for entry in self.entries.values_mut() {
            entry.read_since_watch = false;
        }
        self.entries.keys().cloned().collect()
    }

    /// Marks the watch as continued from where it stopped: no change was missed.
    pub(super) const fn resume_watch(&mut self) {
        self.watch_active = true;
    }

    /// Marks the watch as stopped.
    pub(super) const fn pause_watch(&mut self) {
        self.watch_active = false;
    }

    /// Evicts classes that were not requested for `idle_after`. Returns whether any class is left.
    pub(super) fn evict_idle(&mut self, now: Duration, idle_after: Duration) -> bool {
        self.entries.retain(|_, entry| now.saturating_sub(entry.last_requested) < idle_after);
        !self.entries.is_empty()
    }
}

impl ClassEntry {
    const fn is_too_large(&self) -> bool {
        self.size_bytes > MAX_CLASS_BYTES
    }

    /// Returns the size of the cached class, in bytes.
    fn cached_bytes(&self) -> u64 {
        self.class.as_ref().map_or(0, |_| self.size_bytes)
    }
}

/// Evicts the least recently requested classes until all together take at most `limit` bytes. The next
/// request reads them again.
pub(super) fn evict_to_limit<'a>(stores: impl Iterator<Item = &'a mut ClassStore>, limit: u64) {
    let classes = stores.flat_map(|store| store.entries.values_mut());
    let mut retained: Vec<&mut ClassEntry> =
        classes.filter(|entry| entry.class.is_some()).collect();
    let mut total = retained.iter().map(|entry| entry.cached_bytes()).fold(0, u64::saturating_add);
    if total <= limit {
        return;
    }
    retained.sort_by_key(|entry| entry.last_requested);
    for entry in retained {
        if total <= limit {
            break;
        }
        total = total.saturating_sub(entry.cached_bytes());
        (entry.class, entry.size_bytes, entry.read_since_watch) = (None, 0, false);
    }
}

/// The maximum size of a cached class in memory, in bytes. Its `objects` may have 256 KiB of text.
pub(super) const MAX_CLASS_BYTES: u64 = 384 << 10;

/// Returns the size of a class in memory, in bytes.
pub(super) fn class_bytes(class: &SecretProviderClass) -> u64 {
    let bytes = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let text = |text: &Option<String>| bytes(text.as_ref().map_or(0, String::len));
    let pairs = |pairs: &BTreeMap<String, String>| {
        let pair = |(key, value): (&String, &String)| {
            bytes(key.len() + value.len()) + ENTRY_OVERHEAD_BYTES
        };
        pairs.iter().map(pair).sum::<u64>()
    };
    let secret = |secret: &SecretObject| {
        let file = |file: &SecretObjectData| {
            text(&file.object_name) + text(&file.key) + ENTRY_OVERHEAD_BYTES
        };
        text(&secret.secret_name)
            + text(&secret.secret_type)
            + pairs(&secret.labels)
            + pairs(&secret.annotations)
            + secret.data.iter().map(file).sum::<u64>()
            + 3 * ENTRY_OVERHEAD_BYTES
    };
    let spec = &class.spec;
    text(&spec.provider)
        + class.metadata.annotations.as_ref().map_or(0, pairs)
        + spec.parameters.as_ref().map_or(0, pairs)
        + spec.secret_objects.iter().map(secret).sum::<u64>()
        + 8 * ENTRY_OVERHEAD_BYTES
}

/// The memory of an entry of a map or a list besides its text, in bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 128;

/// How long an entry is served without a new read while the watch does not guarantee that it is current.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(5);
/// How long a missing class is not read again while the watch would deliver its creation.
const ABSENCE_TTL: Duration = Duration::from_secs(30);
/// How long an error is returned from the cache before the next read.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Parses a resource version, an increasing decimal number (KEP-5504). Other versions have no order.
fn parse_resource_version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

fn is_older(version: Option<u64>, known: Option<u64>) -> bool {
    matches!((version, known), (Some(version), Some(known)) if version < known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn class(name: &str, version: u64, provider: &str) -> BoundedClass {
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": name,
                "resourceVersion": version.to_string(),
                "managedFields": [{"manager": format!("kubectl-{version}")}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "spec": {"provider": provider},
            "status": {},
        }))
        .unwrap()
    }

    fn lookup_result(answer: &ClassLookup) -> (&'static str, Option<&str>) {
        match answer {
            ClassLookup::Current(class) => ("current", class.spec.provider.as_deref()),
            ClassLookup::LastKnown(class) => ("last", class.spec.provider.as_deref()),
            ClassLookup::NeedsRead(class) => {
                ("read", class.as_ref().and_then(|class| class.spec.provider.as_deref()))
            }
            ClassLookup::Absent => ("absent", None),
            ClassLookup::Failed(_) => ("failed", None),
        }
    }

    #[test]
    fn unrequested_classes_are_not_stored() {
        let mut store = ClassStore::default();
        store.start_watch();
        assert_eq!(store.observe(class("other", 1, "azure")), None);
        assert_eq!(store.class("other"), None);
    }

    #[test]
    fn a_class_is_current_once_it_was_read_after_the_watch_began() {
        let mut store = ClassStore::default();
        assert_eq!(store.lookup("c", HOUR), ClassLookup::NeedsRead(None));
        store.begin_read("c", HOUR);
        assert_eq!(store.observe(class("c", 5, "one")), None, "the first read is not a change");
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("last", Some("one")));
        assert_eq!(store.start_watch(), ["c"]);
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("last", Some("one")));
        assert_eq!(store.observe(class("c", 5, "one")), None);
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("current", Some("one")));
        assert_eq!(store.observe(class("c", 6, "two")), Some("c".to_owned()));
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("current", Some("two")));
    }

    #[test]
    fn first_read_of_a_class_is_not_a_change() {
        let mut store = ClassStore::default();
        store.lookup("c", HOUR);
        store.start_watch();
        assert_eq!(store.observe(class("c", 5, "one")), None);
        assert_eq!(store.observe(class("c", 6, "two")), Some("c".to_owned()));
    }

    #[test]
    fn an_older_class_never_replaces_a_newer_one() {
        let mut store = ClassStore::default();
        store.start_watch();
        store.lookup("c", HOUR);
        store.observe(class("c", 9, "new"));
        assert_eq!(store.observe(class("c", 8, "old")), None);
        assert_eq!(store.observe_deletion("c", Some("8")), None);
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("current", Some("new")));
    }

    #[test]
    fn while_the_watch_is_broken_a_class_is_only_the_last_known_one() {
        let mut store = ClassStore::default();
        store.start_watch();
        store.lookup("c", HOUR);
        store.observe(class("c", 1, "one"));
        store.pause_watch();
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("read", Some("one")));
        store.resume_watch();
        assert_eq!(lookup_result(&store.lookup("c", HOUR)), ("current", Some("one")));
    }

    #[test]
    fn deletion_and_recreation_are_two_changes() {
        let mut store = ClassStore::default();
        store.start_watch();
        store.lookup("c", HOUR);
        store.observe(class("c", 1, "one"));
        assert_eq!(store.observe_deletion("c", Some("2")), Some("c".to_owned()));
        assert_eq!(store.observe_deletion("c", None), None);
        assert_eq!(store.lookup("c", HOUR), ClassLookup::NeedsRead(None));
        assert_eq!(store.observe(class("c", 3, "two")), Some("c".to_owned()));
    }

    #[test]
    fn frequent_lookups_do_not_cause_frequent_reads() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut store = ClassStore::default();
        let ask = |store: &mut ClassStore, second: u32| {
            let answer = store.lookup("c", HOUR + second * SECOND);
            lookup_result(&answer).0
        };
        assert_eq!(ask(&mut store, 0), "read");
        store.begin_read("c", HOUR);
        store.end_read("c", HOUR + SECOND, Some("refused".to_owned()));
        assert_eq!([1, 2].map(|second| ask(&mut store, second)), ["failed", "read"]);
        // A cancelled read has no result.
        store.begin_read("c", HOUR + 2 * SECOND);
        assert_eq!(ask(&mut store, 2), "read");
        store.observe(class("c", 1, "one"));
        assert_eq!([2, 6, 7].map(|second| ask(&mut store, second)), ["last", "last", "read"]);
        store.start_watch();
        store.observe_deletion("c", Some("2"));
        store.end_read("c", HOUR + 8 * SECOND, None);
        assert_eq!([8, 37, 38].map(|second| ask(&mut store, second)), ["absent", "absent", "read"]);
    }

    #[test]
    fn change_of_unused_fields_is_not_a_change() {
        let mut store = ClassStore::default();
        store.start_watch();
        store.lookup("c", HOUR);
        store.observe(class("c", 1, "one"));
        assert_eq!(store.observe(class("c", 2, "one")), None);
        let retained = store.class("c").unwrap();
        assert_eq!(retained.metadata.managed_fields, None);
        assert_eq!(retained.metadata.annotations.as_ref().map(BTreeMap::len), Some(0));
    }

    #[test]
    fn a_class_that_is_too_large_is_not_kept_and_its_size_is_known() {
        let mut store = ClassStore::default();
        store.start_watch();
        store.lookup("c", HOUR);
        store.observe(class("c", 1, "one"));
        let size = |bytes: usize| {
            let mut large = class("c", 2, "two");
            large.0.spec.parameters = Some([("p".to_owned(), "x".repeat(bytes))].into());
            large
        };
        let mut many = class("c", 2, "two");
        many.0.spec.secret_objects = vec![SecretObject::default(); 1_024];
        for large in [size(384 << 10), many] {
            assert_eq!(store.observe(large), Some("c".to_owned()));
            assert_eq!(store.class("c"), None);
            assert!(store.oversized_bytes("c").unwrap() > 384 << 10);
            assert_eq!(
                store.lookup("c", 2 * HOUR),
                ClassLookup::Absent,
                "an oversized class is not read repeatedly"
            );
        }
        assert_eq!(store.observe(size(300 << 10)), Some("c".to_owned()));
        assert_eq!(lookup_result(&store.lookup("c", 2 * HOUR)), ("current", Some("two")));
        assert_eq!(store.oversized_bytes("c"), None);
    }

    #[test]
    fn least_recently_requested_classes_are_evicted_over_the_limit() {
        let mut stores = [ClassStore::default(), ClassStore::default()];
        for (index, name, hour) in [(0, "a", 3), (0, "b", 1), (1, "c", 2)] {
            stores[index].start_watch();
            stores[index].lookup(name, hour * HOUR);
            let mut large = class(name, 1, "azure");
            large.0.spec.parameters = Some([("p".to_owned(), "x".repeat(100 << 10))].into());
            stores[index].observe(large);
        }
        evict_to_limit(stores.iter_mut(), 250 << 10);
        let retained = |stores: &[ClassStore; 2]| {
            let is_kept = |index: usize, name| stores[index].class(name).is_some();
            [is_kept(0, "a"), is_kept(0, "b"), is_kept(1, "c")]
        };
        assert_eq!(retained(&stores), [true, false, true]);
        assert_eq!(stores[0].lookup("b", 3 * HOUR), ClassLookup::NeedsRead(None));
        evict_to_limit(stores.iter_mut(), 0);
        assert_eq!(retained(&stores), [false; 3]);
    }

    #[test]
    fn an_annotation_is_a_change() {
        let mut store = ClassStore::default();
        store.start_watch();
        store.lookup("c", HOUR);
        store.observe(class("c", 1, "one"));
        let mut annotated = class("c", 2, "one");
        let annotations = annotated.0.metadata.annotations.get_or_insert_default();
        annotations.insert("lanyard.dev/refresh".to_owned(), "1".to_owned());
        assert_eq!(store.observe(annotated), Some("c".to_owned()));
    }

    #[test]
    fn idle_classes_are_evicted() {
        let mut store = ClassStore::default();
        store.lookup("a", HOUR);
        store.lookup("b", 2 * HOUR);
        assert!(store.evict_idle(4 * HOUR, 3 * HOUR));
        assert_eq!(store.start_watch(), ["b"]);
        assert!(!store.evict_idle(5 * HOUR, 3 * HOUR));
    }
}
