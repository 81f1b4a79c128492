//! What is known of the objects of one control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::DynamicObject;
use lanyard_desired::{DesiredObject, ObjectKey, ObservedObject, OwnedKind, Writer};
use serde_json::Value;

use crate::claim::Marks;

/// The objects of one control plane. What was found to be as it should be is kept as a digest
/// alone: the same content need not be compared twice, and other content comes with the watch. So is
/// what nobody here compares.
#[derive(Debug, Default)]
pub(crate) struct Objects(BTreeMap<ObjectKey, Stored>);

#[derive(Debug)]
struct Stored {
    uid: String,
    version: String,
    /// Whether one of our field managers has a field of it.
    is_written_here: bool,
    /// Whose it is, of a namespace alone.
    marks: Option<Box<Marks>>,
    /// Of the content without what changes all the time.
    digest: u64,
    content: Option<Box<[u8]>>,
    /// Who else wrote it last.
    rival: Option<Box<str>>,
    /// The digest of what was desired when this content was found to be so.
    settled: Option<u64>,
}

/// What a comparison is made from.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Objects with their content.
    pub(crate) observed: BTreeMap<ObjectKey, ObservedObject>,
    /// Objects whose content is not known any more.
    pub(crate) unknown: Vec<ObjectKey>,
    /// Objects that are as they should be.
    pub(crate) settled: BTreeSet<ObjectKey>,
}

/// The digests of what is desired, by object.
pub(crate) type Wished = BTreeMap<ObjectKey, u64>;

/// The digests of what is desired: an object that two write has one.
pub(crate) fn wished(desired: &[DesiredObject]) -> Wished {
    let mut hashers: BTreeMap<&ObjectKey, DefaultHasher> = BTreeMap::new();
    for object in desired {
        let hasher = hashers.entry(&object.key).or_default();
        (object.writer, object.follows_reader).hash(hasher);
        bytes_of(&object.value).hash(hasher);
    }
    hashers.into_iter().map(|(key, hasher)| (key.clone(), hasher.finish())).collect()
}

impl Objects {
    /// Takes in an object as it is now, with its content where that is of use. Tells whether
    /// anything about it is new.
    pub(crate) fn see(&mut self, key: ObjectKey, object: DynamicObject, keeps: bool) -> bool {
        // What we write comes twice: as the answer and with the watch.
        if self.0.get(&key).is_some_and(|stored| stored.is(&object)) {
            return false;
        }
        self.take_in(key, object, keeps, false)
    }

    /// Takes in an object that was read because its content was not known. It is now, until it is
    /// settled again: the next look does not read it once more.
    pub(crate) fn read(&mut self, key: ObjectKey, object: DynamicObject, keeps: bool) {
        self.take_in(key, object, keeps, keeps);
    }

    fn take_in(
        &mut self,
        key: ObjectKey,
        mut object: DynamicObject,
        keeps: bool,
        keeps_known: bool,
    ) -> bool {
        let managed_fields = object.metadata.managed_fields.take().unwrap_or_default();
        let mut managers = managed_fields.iter().filter_map(|entry| entry.manager.as_deref());
        let is_written_here = managers.any(Writer::is_manager);
        if let Some(data) = object.data.as_object_mut() {
            data.remove("status");
        }
        let is_namespace = key.kind == OwnedKind::Namespace;
        let marks = is_namespace.then(|| Box::new(Marks::of(&object.metadata)));
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let version = object.metadata.resource_version.take().unwrap_or_default();
        object.metadata.generation = None;
        let content = serde_json::to_vec(&object).unwrap_or_default();
        let digest = digest_of(&content);
        match self.0.get_mut(&key) {
            Some(stored) if is_older(&version, &stored.version) && stored.uid == uid => false,
            Some(stored) if stored.digest == digest && stored.uid == uid => {
                (stored.version, stored.is_written_here) = (version, is_written_here);
                if keeps_known {
                    (stored.content, stored.settled) = (Some(content.into_boxed_slice()), None);
                }
                false
            }
            _ => {
                let content = keeps.then(|| content.into_boxed_slice());
                // Who was there before has no field any more that we took back.
                let before = self.0.get_mut(&key).and_then(|stored| stored.rival.take());
                let rival = rival_of(&managed_fields).or(before);
                let settled = None;
                let stored = Stored {
                    uid,
                    version,
                    is_written_here,
                    marks,
                    digest,
                    content,
                    rival,
                    settled,
                };
                self.0.insert(key, stored);
                true
            }
        }
    }

    /// An object is gone. Tells whether it was known.
    pub(crate) fn forget(&mut self, key: &ObjectKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// Nobody here compares these objects now.
    pub(crate) fn forget_content(&mut self) {
        self.0.values_mut().for_each(|stored| stored.content = None);
    }

    /// What has to be compared with what is desired.
    pub(crate) fn unsettled(&self, wished: &Wished) -> Unsettled {
        let mut unsettled = Unsettled::default();
        for (key, stored) in &self.0 {
            if stored.settled.is_some() && stored.settled == wished.get(key).copied() {
                unsettled.settled.insert(key.clone());
                continue;
            }
            match stored.observed() {
                Some(observed) => {
                    unsettled.observed.insert(key.clone(), observed);
                }
                None => unsettled.unknown.push(key.clone()),
            }
        }
        unsettled
    }

    /// Objects were found to be as they should be: those in this version.
    pub(crate) fn settle(&mut self, key: &ObjectKey, version: &str, wished: u64) {
        if let Some(stored) = self.0.get_mut(key).filter(|stored| stored.version == version) {
            (stored.settled, stored.content) = (Some(wished), None);
        }
    }

    /// What a namespace says about whose it is.
    pub(crate) fn marks(&self, key: &ObjectKey) -> Option<&Marks> {
        self.0.get(key)?.marks.as_deref()
    }

    /// The uid of an object.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.0.get(key).map(|stored| stored.uid.as_str())
    }

    /// Who else wrote an object last.
    pub(crate) fn rival(&self, key: &ObjectKey) -> Option<&str> {
        self.0.get(key)?.rival.as_deref()
    }

    /// The keys of all objects.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }

    /// How many bytes of content are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().filter_map(|stored| stored.content.as_ref()).map(|it| it.len()).sum()
    }
}

impl Stored {
    /// Whether this is the very version of an object that is known.
    fn is(&self, object: &DynamicObject) -> bool {
        object.metadata.uid.as_deref() == Some(&self.uid)
            && object.metadata.resource_version.as_deref() == Some(&self.version)
    }

    fn observed(&self) -> Option<ObservedObject> {
        let mut value: Value = serde_json::from_slice(self.content.as_ref()?).ok()?;
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("resourceVersion".to_owned(), Value::String(self.version.clone()));
        let observed = ObservedObject::of(value)?;
        Some(ObservedObject { is_written_here: self.is_written_here, ..observed })
    }
}

/// The field manager that wrote something else than the status last, and is none of ours.
fn rival_of(managed_fields: &[ManagedFieldsEntry]) -> Option<Box<str>> {
    let others = managed_fields.iter().filter(|entry| {
        let is_ours = entry.manager.as_deref().is_some_and(Writer::is_manager);
        entry.subresource.as_deref().unwrap_or_default().is_empty() && !is_ours
    });
    let last = others.max_by(|one, other| one.time.cmp(&other.time))?;
    last.manager.as_deref().map(Box::from)
}

/// Versions of one object grow; one that is no number may be anything.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

fn bytes_of(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn digest_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key() -> ObjectKey {
        let namespace = Some("clusters-harbour".to_owned());
        ObjectKey { kind: OwnedKind::ConfigMap, namespace, name: "m".to_owned() }
    }

    fn object(version: &str, value: &str) -> DynamicObject {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "m",
                "namespace": "clusters-harbour",
                "uid": "u",
                "resourceVersion": version,
                "managedFields": [{"manager": "x"}],
            },
            "data": {"k": value},
            "status": {"seen": version},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_what_the_comparison_needs_is_kept_and_that_only_until_it_was_made() {
        let mut objects = Objects::default();
        assert!(objects.see(key(), object("1", "a"), true));
        let wished = Wished::from([(key(), 7)]);
        let observed = objects.unsettled(&wished).observed.remove(&key()).unwrap();
        assert_eq!(observed.resource_version, "1");
        assert!(observed.value.pointer("/metadata/managedFields").is_none());
        assert!(observed.value.get("status").is_none());
        objects.settle(&key(), "1", 7);
        assert_eq!(objects.bytes(), 0);
        assert!(objects.unsettled(&wished).settled.contains(&key()));
        // Another wish needs the content again.
        let other = Wished::from([(key(), 8)]);
        assert_eq!(objects.unsettled(&other).unknown, [key()]);
        assert_eq!(objects.unsettled(&Wished::new()).unknown, [key()]);
    }

    #[test]
    fn who_else_wrote_an_object_last_stays_known_when_it_is_set_back() {
        let mut objects = Objects::default();
        let ours = Writer::ControlPlane.field_manager();
        let managed = |version: &str, value: &str, managers: &[(&str, &str, &str)]| {
            let mut object = object(version, value);
            let entries = managers.iter().map(|(manager, time, sub)| {
                json!({"manager": manager, "time": format!("2026-01-01T00:00:{time}Z"),
                    "subresource": sub})
            });
            object.metadata.managed_fields = serde_json::from_value(entries.collect()).unwrap();
            object
        };
        objects.see(
            key(),
            managed("1", "a", &[(ours, "01", ""), ("kubelet", "02", "status")]),
            true,
        );
        assert_eq!(objects.rival(&key()), None);
        let both = [("kubectl", "03", ""), ("meddler", "04", ""), (ours, "05", "")];
        objects.see(key(), managed("2", "b", &both), true);
        assert_eq!(objects.rival(&key()), Some("meddler"));
        objects.see(key(), managed("3", "a", &[(ours, "06", "")]), true);
        assert_eq!(objects.rival(&key()), Some("meddler"));
    }

    #[test]
    fn what_was_read_is_known_until_it_is_settled_again() {
        let mut objects = Objects::default();
        objects.see(key(), object("2", "a"), true);
        objects.settle(&key(), "2", 7);
        let nothing_wished = Wished::new();
        assert_eq!(objects.unsettled(&nothing_wished).unknown, [key()]);
        // Older than what the watch told meanwhile.
        objects.read(key(), object("1", "a"), true);
        assert_eq!(objects.unsettled(&nothing_wished).unknown, [key()]);
        objects.read(key(), object("2", "a"), true);
        assert!(objects.unsettled(&nothing_wished).observed.contains_key(&key()));
        objects.settle(&key(), "2", 8);
        assert_eq!(objects.bytes(), 0);
        // What nobody here compares is not kept.
        objects.read(key(), object("2", "a"), false);
        assert_eq!(objects.bytes(), 0);
    }

    #[test]
    fn a_status_that_changes_is_no_news_and_other_content_is() {
        let mut objects = Objects::default();
        objects.see(key(), object("1", "a"), true);
        objects.settle(&key(), "1", 7);
        assert!(!objects.see(key(), object("2", "a"), true));
        assert!(objects.unsettled(&Wished::from([(key(), 7)])).settled.contains(&key()));
        assert!(objects.see(key(), object("3", "b"), true));
        assert!(objects.unsettled(&Wished::from([(key(), 7)])).observed.contains_key(&key()));
    }

    #[test]
    fn a_watch_that_lags_does_not_take_back_what_the_answer_to_a_write_told() {
        let mut objects = Objects::default();
        objects.see(key(), object("10", "new"), true);
        assert!(!objects.see(key(), object("9", "old"), true));
        let observed = objects.unsettled(&Wished::new()).observed.remove(&key()).unwrap();
        assert_eq!(observed.value["data"]["k"], "new");
        // What was found meanwhile counts for the version that was compared alone.
        objects.see(key(), object("11", "newer"), true);
        objects.settle(&key(), "10", 7);
        assert!(objects.unsettled(&Wished::from([(key(), 7)])).settled.is_empty());
    }

    #[test]
    fn what_nobody_compares_is_kept_as_a_digest_alone() {
        let mut objects = Objects::default();
        assert!(objects.see(key(), object("1", "a"), false));
        assert!(!objects.see(key(), object("2", "a"), false));
        assert_eq!((objects.bytes(), objects.uid(&key())), (0, Some("u")));
        assert_eq!(objects.unsettled(&Wished::new()).unknown, [key()]);
        objects.see(key(), object("3", "b"), true);
        assert!(objects.bytes() > 0);
        // What was found to be so stays found, whoever compares.
        objects.settle(&key(), "3", 7);
        objects.forget_content();
        assert!(objects.unsettled(&Wished::from([(key(), 7)])).settled.contains(&key()));
    }

    #[test]
    fn a_new_object_of_the_same_name_is_another_one() {
        let mut objects = Objects::default();
        objects.see(key(), object("10", "a"), true);
        objects.settle(&key(), "10", 7);
        let mut other = object("9", "a");
        other.metadata.uid = Some("v".to_owned());
        assert!(objects.see(key(), other, true));
        assert_eq!(objects.uid(&key()), Some("v"));
        assert!(objects.forget(&key()) && !objects.forget(&key()));
    }
}
