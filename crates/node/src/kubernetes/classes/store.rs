//! What is known of the classes of one namespace. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_api::secret_provider_class::{SecretObject, SecretObjectData};

use super::bounded_class::BoundedClass;

/// The classes of one namespace that somebody asked for.
#[derive(Debug, Default)]
pub(super) struct ClassStore {
    entries: BTreeMap<String, ClassEntry>,
    /// Whether every change since the last read of each confirmed class was or will be told.
    watch_active: bool,
}

#[derive(Debug, Default)]
struct ClassEntry {
    /// When last.
    last_requested: Duration,
    class: Option<Arc<SecretProviderClass>>,
    /// What the class takes in memory, in bytes; zero if there is none. One that takes more than
    /// [`MAX_CLASS_BYTES`] is not kept.
    size_bytes: u64,
    /// The version that it was last seen or missed at.
    resource_version: Option<u64>,
    /// Whether it was read after the watch began.
    read_since_watch: bool,
    /// When a read last began.
    read_started: Option<Duration>,
    /// When a read last ended, and what was wrong.
    read_finished: Option<(Duration, Option<String>)>,
}

/// What is known of a class.
#[derive(Debug, PartialEq)]
pub(super) enum ClassLookup {
    /// It is this one; a change would have been told.
    Current(Arc<SecretProviderClass>),
    /// It was this one a moment ago.
    LastKnown(Arc<SecretProviderClass>),
    /// There was none a moment ago, or none that is small enough ([`ClassStore::too_large`]).
    Absent,
    /// It could not be read a moment ago.
    Failed(String),
    /// It has to be read. It was this one, if there was one.
    NeedsRead(Option<Arc<SecretProviderClass>>),
}

impl ClassStore {
    /// What is known of a class, which somebody needs at `now`.
    ///
    /// Some ask every second or two. Where the watch does not vouch for the answer they are served
    /// from memory in between, so that an API in trouble is left alone.
    pub(super) fn lookup(&mut self, name: &str, now: Duration) -> ClassLookup {
        let following = self.watch_active;
        let asked = self.entries.entry(name.to_owned()).or_default();
        asked.last_requested = now;
        let within = |since: Duration, pause| now.saturating_sub(since) < pause;
        match (&asked.class, &asked.read_finished) {
            (Some(class), _) if following && asked.read_since_watch => {
                ClassLookup::Current(Arc::clone(class))
            }
            (None, _)
                if asked.is_too_large()
                    && (following && asked.read_since_watch
                        || asked
                            .read_started
                            .is_some_and(|begun| within(begun, MIN_READ_INTERVAL))) =>
            {
                ClassLookup::Absent
            }
            (Some(class), _)
                if asked.read_started.is_some_and(|begun| within(begun, MIN_READ_INTERVAL)) =>
            {
                ClassLookup::LastKnown(Arc::clone(class))
            }
            (None, Some((ended, Some(problem)))) if within(*ended, FAILURE_TTL) => {
                ClassLookup::Failed(problem.clone())
            }
            (None, Some((ended, None)))
                if following && asked.read_since_watch && within(*ended, ABSENCE_TTL) =>
            {
                ClassLookup::Absent
            }
            (class, _) => ClassLookup::NeedsRead(class.clone()),
        }
    }

    /// A read of a class begins.
    pub(super) fn begin_read(&mut self, name: &str, now: Duration) {
        if let Some(asked) = self.entries.get_mut(name) {
            asked.read_started = Some(now);
        }
    }

    /// A read of a class ended, with a problem or without.
    pub(super) fn end_read(&mut self, name: &str, now: Duration, problem: Option<String>) {
        if let Some(asked) = self.entries.get_mut(name) {
            asked.read_finished = Some((now, problem));
        }
    }

    /// The class as it was last seen.
    pub(super) fn class(&self, name: &str) -> Option<Arc<SecretProviderClass>> {
        self.entries.get(name)?.class.clone()
    }

    /// What the class takes in memory at least if it is too large to be kept.
    pub(super) fn oversized_bytes(&self, name: &str) -> Option<u64> {
        self.entries.get(name).filter(|asked| asked.is_too_large()).map(|asked| asked.size_bytes)
    }

    /// Takes a class that was read or told of. Returns its name if it is another than before.
    pub(super) fn observe(&mut self, received: BoundedClass) -> Option<String> {
        let BoundedClass(mut class) = received;
        let name = class.metadata.name.clone()?;
        let asked = self.entries.get_mut(&name)?;
        // It would make every update of the class another class.
        let version = parse_resource_version(class.metadata.resource_version.take().as_deref());
        if is_older(version, asked.resource_version) {
            return None;
        }
        asked.resource_version = version;
        // The first sight of a class is no change: whoever asked for it is being answered.
        let is_news = asked.class.is_some() || asked.is_too_large() || asked.read_since_watch;
        asked.read_since_watch |= self.watch_active;
        if asked.class.as_deref() == Some(&class) {
            return None;
        }
        asked.size_bytes = class_bytes(&class);
        asked.class = (!asked.is_too_large()).then(|| Arc::new(class));
        is_news.then_some(name)
    }

    /// Takes that there is no class of this name, as of `version`. Returns the name if there was.
    pub(super) fn observe_deletion(&mut self, name: &str, version: Option<&str>) -> Option<String> {
        let asked = self.entries.get_mut(name)?;
        let version = parse_resource_version(version);
        if is_older(version, asked.resource_version) {
            return None;
        }
        asked.resource_version = version.or(asked.resource_version);
        asked.read_since_watch |= self.watch_active;
        let was_there = asked.class.take().is_some() || asked.is_too_large();
        asked.size_bytes = 0;
        was_there.then(|| name.to_owned())
    }

    /// The watch goes on from now on: what was read before it began has to be read once more.
    pub(super) fn start_watch(&mut self) -> Vec<String> {
        self.watch_active = true;
        for asked in self.entries.values_mut() {
            asked.read_since_watch = false;
        }
        self.entries.keys().cloned().collect()
    }

    /// The watch goes on where it stopped: nothing was missed.
    pub(super) const fn resume_watch(&mut self) {
        self.watch_active = true;
    }

    /// The watch stopped.
    pub(super) const fn pause_watch(&mut self) {
        self.watch_active = false;
    }

    /// Forgets classes that nobody asked for. Returns whether any is left.
    pub(super) fn evict_idle(&mut self, now: Duration, idle_after: Duration) -> bool {
        self.entries.retain(|_, asked| now.saturating_sub(asked.last_requested) < idle_after);
        !self.entries.is_empty()
    }
}

impl ClassEntry {
    const fn is_too_large(&self) -> bool {
        self.size_bytes > MAX_CLASS_BYTES
    }

    /// What is kept of the class, in bytes.
    fn cached_bytes(&self) -> u64 {
        self.class.as_ref().map_or(0, |_| self.size_bytes)
    }
}

/// Drops the classes that were asked for longest ago until all together take at most `limit` bytes.
/// They are read again when they are asked for.
pub(super) fn evict_to_limit<'a>(stores: impl Iterator<Item = &'a mut ClassStore>, limit: u64) {
    let classes = stores.flat_map(|store| store.entries.values_mut());
    let mut kept: Vec<&mut ClassEntry> = classes.filter(|asked| asked.class.is_some()).collect();
    let mut total = kept.iter().map(|asked| asked.cached_bytes()).fold(0, u64::saturating_add);
    if total <= limit {
        return;
    }
    kept.sort_by_key(|asked| asked.last_requested);
    for asked in kept {
        if total <= limit {
            break;
        }
        total = total.saturating_sub(asked.cached_bytes());
        (asked.class, asked.size_bytes, asked.read_since_watch) = (None, 0, false);
    }
}

/// What a class takes in memory at most, in bytes. Its `objects` may have 256 KiB of text.
pub(super) const MAX_CLASS_BYTES: u64 = 384 << 10;

/// What a class takes in memory, in bytes.
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

/// What an entry of a map or a list takes beside its text, in bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 128;

/// How long the last known answer is good enough while the watch does not vouch for it.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(5);
/// How long nobody looks again for a class that the watch would tell of.
const ABSENCE_TTL: Duration = Duration::from_secs(30);
/// How long a failure is told again instead of tried again.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Versions are decimal numbers that grow (KEP-5504). One that is not orders nothing.
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
        assert_eq!(store.observe(class("c", 5, "one")), None, "the first sight is no change");
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
        // A read that nobody waited for to its end says nothing.
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
        let kept = store.class("c").unwrap();
        assert_eq!(kept.metadata.managed_fields, None);
        assert_eq!(kept.metadata.annotations.as_ref().map(BTreeMap::len), Some(0));
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
                "it is not read again and again"
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
        let kept = |stores: &[ClassStore; 2]| {
            let is_kept = |index: usize, name| stores[index].class(name).is_some();
            [is_kept(0, "a"), is_kept(0, "b"), is_kept(1, "c")]
        };
        assert_eq!(kept(&stores), [true, false, true]);
        assert_eq!(stores[0].lookup("b", 3 * HOUR), ClassLookup::NeedsRead(None));
        evict_to_limit(stores.iter_mut(), 0);
        assert_eq!(kept(&stores), [false; 3]);
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
