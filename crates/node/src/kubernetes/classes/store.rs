//! What is known of the classes of one namespace. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;

/// The classes of one namespace that somebody asked for.
#[derive(Debug, Default)]
pub(super) struct ClassStore {
    asked: BTreeMap<String, Asked>,
    /// Whether every change since the last read of each confirmed class was or will be told.
    following: bool,
}

#[derive(Debug, Default)]
struct Asked {
    /// When last.
    at: Duration,
    class: Option<Arc<SecretProviderClass>>,
    /// The version that it was last seen or missed at.
    version: Option<u64>,
    /// Whether it was read after the watch began.
    confirmed: bool,
}

/// What is known of a class.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// It is this one; a change would have been told.
    Current(Arc<SecretProviderClass>),
    /// It was this one.
    LastKnown(Arc<SecretProviderClass>),
    /// Nothing.
    Unknown,
}

impl ClassStore {
    /// What is known of a class, which somebody needs at `now`.
    pub(super) fn ask(&mut self, name: &str, now: Duration) -> Answer {
        let following = self.following;
        let asked = self.asked.entry(name.to_owned()).or_default();
        asked.at = now;
        match &asked.class {
            Some(class) if following && asked.confirmed => Answer::Current(Arc::clone(class)),
            Some(class) => Answer::LastKnown(Arc::clone(class)),
            None => Answer::Unknown,
        }
    }

    /// The class as it was last seen.
    pub(super) fn class(&self, name: &str) -> Option<Arc<SecretProviderClass>> {
        self.asked.get(name)?.class.clone()
    }

    /// Takes a class that was read or told of. Returns its name if it is another than before.
    pub(super) fn observe(&mut self, mut class: SecretProviderClass) -> Option<String> {
        let name = class.metadata.name.clone()?;
        let asked = self.asked.get_mut(&name)?;
        let version = version_of(class.metadata.resource_version.as_deref());
        if is_older(version, asked.version) {
            return None;
        }
        slim(&mut class);
        asked.version = version;
        // The first sight of a class is no change: whoever asked for it is being answered.
        let is_news = asked.class.is_some() || asked.confirmed;
        asked.confirmed |= self.following;
        if asked.class.as_deref() == Some(&class) {
            return None;
        }
        asked.class = Some(Arc::new(class));
        is_news.then_some(name)
    }

    /// Takes that there is no class of this name, as of `version`. Returns the name if there was.
    pub(super) fn observe_absence(&mut self, name: &str, version: Option<&str>) -> Option<String> {
        let asked = self.asked.get_mut(name)?;
        let version = version_of(version);
        if is_older(version, asked.version) {
            return None;
        }
        asked.version = version.or(asked.version);
        asked.confirmed |= self.following;
        asked.class.take().map(|_class| name.to_owned())
    }

    /// The watch goes on from now on: what was read before it began has to be read once more.
    pub(super) fn begin_to_follow(&mut self) -> Vec<String> {
        self.following = true;
        for asked in self.asked.values_mut() {
            asked.confirmed = false;
        }
        self.asked.keys().cloned().collect()
    }

    /// The watch goes on where it stopped: nothing was missed.
    pub(super) const fn resume(&mut self) {
        self.following = true;
    }

    /// The watch stopped.
    pub(super) const fn pause(&mut self) {
        self.following = false;
    }

    /// Forgets classes that nobody asked for. Returns whether any is left.
    pub(super) fn forget_idle(&mut self, now: Duration, idle_after: Duration) -> bool {
        self.asked.retain(|_, asked| now.saturating_sub(asked.at) < idle_after);
        !self.asked.is_empty()
    }
}

/// Versions are decimal numbers that grow (KEP-5504). One that is not orders nothing.
fn version_of(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

fn is_older(version: Option<u64>, known: Option<u64>) -> bool {
    matches!((version, known), (Some(version), Some(known)) if version < known)
}

/// Drops what nobody reads: it is most of a class.
fn slim(class: &mut SecretProviderClass) {
    class.metadata.managed_fields = None;
    class.metadata.resource_version = None;
    if let Some(annotations) = &mut class.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    class.unknown.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn class(name: &str, version: u64, provider: &str) -> SecretProviderClass {
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": name,
                "resourceVersion": version.to_string(),
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "spec": {"provider": provider},
            "status": {},
        }))
        .unwrap()
    }

    fn provider(answer: &Answer) -> (&'static str, Option<&str>) {
        match answer {
            Answer::Current(class) => ("current", class.spec.provider.as_deref()),
            Answer::LastKnown(class) => ("last", class.spec.provider.as_deref()),
            Answer::Unknown => ("unknown", None),
        }
    }

    #[test]
    fn what_nobody_asked_for_is_not_kept() {
        let mut store = ClassStore::default();
        store.begin_to_follow();
        assert_eq!(store.observe(class("other", 1, "azure")), None);
        assert_eq!(store.class("other"), None);
    }

    #[test]
    fn a_class_is_current_once_it_was_read_after_the_watch_began() {
        let mut store = ClassStore::default();
        assert_eq!(store.ask("c", HOUR), Answer::Unknown);
        assert_eq!(store.observe(class("c", 5, "one")), None, "the first sight is no change");
        assert_eq!(provider(&store.ask("c", HOUR)), ("last", Some("one")));
        assert_eq!(store.begin_to_follow(), ["c"]);
        assert_eq!(provider(&store.ask("c", HOUR)), ("last", Some("one")));
        assert_eq!(store.observe(class("c", 5, "one")), None);
        assert_eq!(provider(&store.ask("c", HOUR)), ("current", Some("one")));
        assert_eq!(store.observe(class("c", 6, "two")), Some("c".to_owned()));
        assert_eq!(provider(&store.ask("c", HOUR)), ("current", Some("two")));
    }

    #[test]
    fn the_first_sight_of_a_class_is_no_change_whether_it_was_read_before_the_watch_or_after() {
        let mut store = ClassStore::default();
        store.ask("c", HOUR);
        store.begin_to_follow();
        assert_eq!(store.observe(class("c", 5, "one")), None);
        assert_eq!(store.observe(class("c", 6, "two")), Some("c".to_owned()));
    }

    #[test]
    fn an_older_class_never_replaces_a_newer_one() {
        let mut store = ClassStore::default();
        store.begin_to_follow();
        store.ask("c", HOUR);
        store.observe(class("c", 9, "new"));
        assert_eq!(store.observe(class("c", 8, "old")), None);
        assert_eq!(store.observe_absence("c", Some("8")), None);
        assert_eq!(provider(&store.ask("c", HOUR)), ("current", Some("new")));
    }

    #[test]
    fn while_the_watch_is_broken_a_class_is_only_the_last_known_one() {
        let mut store = ClassStore::default();
        store.begin_to_follow();
        store.ask("c", HOUR);
        store.observe(class("c", 1, "one"));
        store.pause();
        assert_eq!(provider(&store.ask("c", HOUR)), ("last", Some("one")));
        store.resume();
        assert_eq!(provider(&store.ask("c", HOUR)), ("current", Some("one")));
    }

    #[test]
    fn a_class_that_is_removed_and_made_anew_is_told_twice() {
        let mut store = ClassStore::default();
        store.begin_to_follow();
        store.ask("c", HOUR);
        store.observe(class("c", 1, "one"));
        assert_eq!(store.observe_absence("c", Some("2")), Some("c".to_owned()));
        assert_eq!(store.observe_absence("c", None), None);
        assert_eq!(store.ask("c", HOUR), Answer::Unknown);
        assert_eq!(store.observe(class("c", 3, "two")), Some("c".to_owned()));
    }

    #[test]
    fn a_change_of_what_nobody_reads_is_no_change() {
        let mut store = ClassStore::default();
        store.begin_to_follow();
        store.ask("c", HOUR);
        store.observe(class("c", 1, "one"));
        let mut same = class("c", 2, "one");
        same.metadata.managed_fields = None;
        assert_eq!(store.observe(same), None);
        let kept = store.class("c").unwrap();
        assert_eq!(kept.metadata.managed_fields, None);
        assert_eq!(kept.metadata.annotations.as_ref().map(BTreeMap::len), Some(0));
    }

    #[test]
    fn an_annotation_is_a_change() {
        let mut store = ClassStore::default();
        store.begin_to_follow();
        store.ask("c", HOUR);
        store.observe(class("c", 1, "one"));
        let mut annotated = class("c", 2, "one");
        let annotations = annotated.metadata.annotations.get_or_insert_default();
        annotations.insert("lanyard.dev/refresh".to_owned(), "1".to_owned());
        assert_eq!(store.observe(annotated), Some("c".to_owned()));
    }

    #[test]
    fn classes_are_forgotten_when_nobody_asked_for_them_long_enough() {
        let mut store = ClassStore::default();
        store.ask("a", HOUR);
        store.ask("b", 2 * HOUR);
        assert!(store.forget_idle(4 * HOUR, 3 * HOUR));
        assert_eq!(store.begin_to_follow(), ["b"]);
        assert!(!store.forget_idle(5 * HOUR, 3 * HOUR));
    }
}
