//! The cache of one control plane's objects.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::DynamicObject;
use lanyard_desired::{DesiredObject, ObjectKey, ObjectWriter, ObservedObject, OwnedKind};
use serde_json::Value;

use super::WatchStores;
use super::render_facts::RenderFacts;
use crate::namespace_owner::OwnershipMarks;

/// The cached objects of one control plane.
///
/// For an object in sync, and for one that this process does not compare, the cache keeps only a digest:
/// unchanged content need not be compared again, and the watch delivers changed content.
#[derive(Debug, Default)]
pub(crate) struct ObjectCache(BTreeMap<ObjectKey, CachedObject>);

#[derive(Debug)]
struct CachedObject {
    uid: Box<str>,
    version: Box<str>,
    /// Whether one of the operator's field managers owns a field of it.
    is_written_here: bool,
    /// The owner of a Namespace; `None` for other kinds.
    ownership_marks: Option<Box<OwnershipMarks>>,
    /// Facts that the desired objects depend on.
    render_facts: Option<Box<RenderFacts>>,
    /// The digest of the content without status and volatile metadata.
    digest: u64,
    content: Option<Box<[u8]>>,
    /// The field manager that wrote it last and is not the operator's.
    other_writer: Option<Box<str>>,
    /// The digest of the desired object that this content matched.
    in_sync_digest: Option<u64>,
}

/// The input of a comparison.
#[derive(Debug, Default)]
pub(crate) struct ObjectsToCompare {
    /// Objects with cached content.
    pub(crate) observed: BTreeMap<ObjectKey, ObservedObject>,
    /// Objects whose content must be fetched.
    pub(crate) without_content: Vec<ObjectKey>,
    /// Objects in sync.
    pub(crate) in_sync: BTreeSet<ObjectKey>,
}

/// The digests of the desired objects, by key.
pub(crate) type DesiredDigests = BTreeMap<ObjectKey, u64>;

/// The digests of the desired objects; an object with two writers has one digest.
pub(crate) fn desired_digests(desired: &[DesiredObject]) -> DesiredDigests {
    let mut hashers: BTreeMap<&ObjectKey, DefaultHasher> = BTreeMap::new();
    for object in desired {
        let hasher = hashers.entry(&object.key).or_default();
        (object.writer, object.keeps_live_vault_reader).hash(hasher);
        json_bytes(&object.value).hash(hasher);
    }
    hashers.into_iter().map(|(key, hasher)| (key.clone(), hasher.finish())).collect()
}

impl ObjectCache {
    /// Caches the current version of an object, with its content if `keeps` is set. Returns whether the
    /// content changed, or a fact that the desired objects depend on.
    pub(crate) fn observe(
        &mut self,
        key: ObjectKey,
        object: DynamicObject,
        keeps_content: bool,
    ) -> bool {
        // A write of the operator arrives twice: as the response and from the watch.
        if self.0.get(&key).is_some_and(|stored| stored.is_same_version(&object)) {
            return false;
        }
        self.insert_or_update(key, object, keeps_content, false)
    }

    /// Caches an object that was fetched for its content. The content stays until the object is in sync, so
    /// the next reconciliation does not fetch it again.
    pub(crate) fn store_fetched(
        &mut self,
        key: ObjectKey,
        object: DynamicObject,
        keeps_content: bool,
    ) {
        self.insert_or_update(key, object, keeps_content, keeps_content);
    }

    fn insert_or_update(
        &mut self,
        key: ObjectKey,
        mut object: DynamicObject,
        keeps_content: bool,
        keeps_known: bool,
    ) -> bool {
        let managed_fields = object.metadata.managed_fields.take().unwrap_or_default();
        let mut managers = managed_fields.iter().filter_map(|entry| entry.manager.as_deref());
        let is_written_here = managers.any(ObjectWriter::is_our_field_manager);
        let render_facts = RenderFacts::of(&key, &object);
        if let Some(data) = object.data.as_object_mut() {
            data.remove("status");
        }
        let is_namespace = key.kind == OwnedKind::Namespace;
        let marks = is_namespace.then(|| Box::new(OwnershipMarks::of(&object.metadata)));
        let uid = object.metadata.uid.clone().unwrap_or_default().into_boxed_str();
        let version = object.metadata.resource_version.take().unwrap_or_default().into_boxed_str();
        object.metadata.generation = None;
        let content = serde_json::to_vec(&object).unwrap_or_default();
        let digest = bytes_digest(&content);
        match self.0.get_mut(&key) {
            Some(stored) if is_older_version(&version, &stored.version) && stored.uid == uid => {
                false
            }
            Some(stored) if stored.digest == digest && stored.uid == uid => {
                (stored.version, stored.is_written_here) = (version, is_written_here);
                if keeps_known {
                    (stored.content, stored.in_sync_digest) =
                        (Some(content.into_boxed_slice()), None);
                }
                let before = std::mem::replace(&mut stored.render_facts, render_facts);
                before != stored.render_facts
            }
            _ => {
                let content = keeps_content.then(|| content.into_boxed_slice());
                // After the operator reverts a change, the other manager owns no field any more.
                let before = self.0.get_mut(&key).and_then(|stored| stored.other_writer.take());
                let other_writer = last_other_manager(&managed_fields).or(before);
                let in_sync_digest = None;
                let stored = CachedObject {
                    uid,
                    version,
                    is_written_here,
                    ownership_marks: marks,
                    render_facts,
                    digest,
                    content,
                    other_writer,
                    in_sync_digest,
                };
                self.0.insert(key, stored);
                true
            }
        }
    }

    /// Removes an object. Returns whether it was cached.
    pub(crate) fn forget(&mut self, key: &ObjectKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// Drops the content of all objects, because this process no longer compares them.
    pub(crate) fn forget_content(&mut self) {
        self.0.values_mut().for_each(|stored| stored.content = None);
    }

    /// The objects to compare with the desired ones.
    pub(crate) fn objects_to_compare(&self, desired_digests: &DesiredDigests) -> ObjectsToCompare {
        let mut to_compare = ObjectsToCompare::default();
        for (key, stored) in &self.0 {
            if stored.in_sync_digest.is_some()
                && stored.in_sync_digest == desired_digests.get(key).copied()
            {
                to_compare.in_sync.insert(key.clone());
                continue;
            }
            match stored.to_observed() {
                Some(observed) => {
                    to_compare.observed.insert(key.clone(), observed);
                }
                None => to_compare.without_content.push(key.clone()),
            }
        }
        to_compare
    }

    /// Records that this version of an object matches the desired object.
    pub(crate) fn mark_in_sync(&mut self, key: &ObjectKey, version: &str, desired_digests: u64) {
        if let Some(stored) = self.0.get_mut(key).filter(|stored| *stored.version == *version) {
            (stored.in_sync_digest, stored.content) = (Some(desired_digests), None);
        }
    }

    /// The ownership marks of a Namespace.
    pub(crate) fn ownership_marks(&self, key: &ObjectKey) -> Option<&OwnershipMarks> {
        self.0.get(key)?.ownership_marks.as_deref()
    }

    /// The facts of an object that the desired objects depend on.
    pub(crate) fn render_facts(&self, key: &ObjectKey) -> Option<&RenderFacts> {
        self.0.get(key)?.render_facts.as_deref()
    }

    /// The uid of an object.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.0.get(key).map(|stored| &*stored.uid)
    }

    /// The resource version of an object.
    pub(crate) fn version(&self, key: &ObjectKey) -> Option<&str> {
        self.0.get(key).map(|stored| &*stored.version)
    }

    /// The field manager that wrote an object last and is not the operator's.
    pub(crate) fn other_writer(&self, key: &ObjectKey) -> Option<&str> {
        self.0.get(key)?.other_writer.as_deref()
    }

    /// The keys of all objects.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }

    /// The size of the cached content, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        self.0.values().filter_map(|stored| stored.content.as_ref()).map(|it| it.len()).sum()
    }
}

impl WatchStores {
    /// Whether these objects exist in a namespace and match the desired ones.
    pub(crate) fn are_in_sync(&self, namespace: &str, desired: &DesiredDigests) -> bool {
        let inner = self.inner.lock();
        let cache = inner.namespaces.get(namespace);
        desired.iter().all(|(key, digest)| {
            let stored = cache.and_then(|cache| cache.objects.0.get(key));
            stored.is_some_and(|stored| stored.in_sync_digest == Some(*digest))
        })
    }
}

impl CachedObject {
    /// Whether the cache has exactly this version of the object.
    fn is_same_version(&self, object: &DynamicObject) -> bool {
        object.metadata.uid.as_deref() == Some(&*self.uid)
            && object.metadata.resource_version.as_deref() == Some(&*self.version)
    }

    fn to_observed(&self) -> Option<ObservedObject> {
        let mut value: Value = serde_json::from_slice(self.content.as_ref()?).ok()?;
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("resourceVersion".to_owned(), Value::String(self.version.to_string()));
        let observed = ObservedObject::from_json(value)?;
        Some(ObservedObject { has_our_field_manager: self.is_written_here, ..observed })
    }
}

/// The foreign field manager with the latest write to anything but the status.
fn last_other_manager(managed_fields: &[ManagedFieldsEntry]) -> Option<Box<str>> {
    let others = managed_fields.iter().filter(|entry| {
        let is_ours = entry.manager.as_deref().is_some_and(ObjectWriter::is_our_field_manager);
        entry.subresource.as_deref().unwrap_or_default().is_empty() && !is_ours
    });
    let last = others.max_by(|one, other| one.time.cmp(&other.time))?;
    last.manager.as_deref().map(Box::from)
}

/// Compares resource versions of one object as numbers; `false` if one of them is not a number.
pub(super) fn is_older_version(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

fn json_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn bytes_digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config_map_key() -> ObjectKey {
        let namespace = Some("clusters-harbour".to_owned());
        ObjectKey { kind: OwnedKind::ConfigMap, namespace, name: "m".to_owned() }
    }

    fn config_map(version: &str, value: &str) -> DynamicObject {
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
    fn content_is_dropped_once_in_sync() {
        let mut objects = ObjectCache::default();
        assert!(objects.observe(config_map_key(), config_map("1", "a"), true));
        let desired_digests = DesiredDigests::from([(config_map_key(), 7)]);
        let observed = objects
            .objects_to_compare(&desired_digests)
            .observed
            .remove(&config_map_key())
            .unwrap();
        assert_eq!(observed.resource_version, "1");
        assert!(observed.value.pointer("/metadata/managedFields").is_none());
        assert!(observed.value.get("status").is_none());
        objects.mark_in_sync(&config_map_key(), "1", 7);
        assert_eq!(objects.content_bytes(), 0);
        assert!(objects.objects_to_compare(&desired_digests).in_sync.contains(&config_map_key()));
        // A changed desired object requires the content again.
        let other = DesiredDigests::from([(config_map_key(), 8)]);
        assert_eq!(objects.objects_to_compare(&other).without_content, [config_map_key()]);
        assert_eq!(
            objects.objects_to_compare(&DesiredDigests::new()).without_content,
            [config_map_key()]
        );
    }

    #[test]
    fn last_other_writer_is_kept_after_revert() {
        let mut objects = ObjectCache::default();
        let ours = ObjectWriter::ControlPlane.field_manager();
        let managed = |version: &str, value: &str, managers: &[(&str, &str, &str)]| {
            let mut object = config_map(version, value);
            let entries = managers.iter().map(|(manager, time, sub)| {
                json!({"manager": manager, "time": format!("2026-01-01T00:00:{time}Z"),
                    "subresource": sub})
            });
            object.metadata.managed_fields = serde_json::from_value(entries.collect()).unwrap();
            object
        };
        objects.observe(
            config_map_key(),
            managed("1", "a", &[(ours, "01", ""), ("kubelet", "02", "status")]),
            true,
        );
        assert_eq!(objects.other_writer(&config_map_key()), None);
        let both = [("kubectl", "03", ""), ("meddler", "04", ""), (ours, "05", "")];
        objects.observe(config_map_key(), managed("2", "b", &both), true);
        assert_eq!(objects.other_writer(&config_map_key()), Some("meddler"));
        objects.observe(config_map_key(), managed("3", "a", &[(ours, "06", "")]), true);
        assert_eq!(objects.other_writer(&config_map_key()), Some("meddler"));
    }

    #[test]
    fn fetched_content_is_kept_until_in_sync() {
        let mut objects = ObjectCache::default();
        objects.observe(config_map_key(), config_map("2", "a"), true);
        objects.mark_in_sync(&config_map_key(), "2", 7);
        let nothing_wished = DesiredDigests::new();
        assert_eq!(objects.objects_to_compare(&nothing_wished).without_content, [config_map_key()]);
        // Older than the watched version.
        objects.store_fetched(config_map_key(), config_map("1", "a"), true);
        assert_eq!(objects.objects_to_compare(&nothing_wished).without_content, [config_map_key()]);
        objects.store_fetched(config_map_key(), config_map("2", "a"), true);
        assert!(
            objects.objects_to_compare(&nothing_wished).observed.contains_key(&config_map_key())
        );
        objects.mark_in_sync(&config_map_key(), "2", 8);
        assert_eq!(objects.content_bytes(), 0);
        // Content is not kept for objects that this process does not compare.
        objects.store_fetched(config_map_key(), config_map("2", "a"), false);
        assert_eq!(objects.content_bytes(), 0);
    }

    #[test]
    fn status_change_is_ignored_and_content_change_is_not() {
        let mut objects = ObjectCache::default();
        objects.observe(config_map_key(), config_map("1", "a"), true);
        objects.mark_in_sync(&config_map_key(), "1", 7);
        assert!(!objects.observe(config_map_key(), config_map("2", "a"), true));
        assert!(
            objects
                .objects_to_compare(&DesiredDigests::from([(config_map_key(), 7)]))
                .in_sync
                .contains(&config_map_key())
        );
        assert!(objects.observe(config_map_key(), config_map("3", "b"), true));
        assert!(
            objects
                .objects_to_compare(&DesiredDigests::from([(config_map_key(), 7)]))
                .observed
                .contains_key(&config_map_key())
        );
    }

    #[test]
    fn endpoint_of_control_plane_is_read_from_its_status() {
        let key = ObjectKey {
            kind: OwnedKind::HostedControlPlane,
            namespace: Some("clusters-harbour".to_owned()),
            name: "harbour".to_owned(),
        };
        let control_plane = |version: &str, status: Value| {
            let object = json!({
                "apiVersion": "hypershift.openshift.io/v1beta1",
                "kind": "HostedControlPlane",
                "metadata": {"name": "harbour", "namespace": "clusters-harbour", "uid": "u",
                    "resourceVersion": version},
                "status": status,
            });
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let mut objects = ObjectCache::default();
        let endpoint = |host: &str| json!({"controlPlaneEndpoint": {"host": host, "port": 443}});
        assert!(objects.observe(key.clone(), control_plane("1", endpoint("")), true));
        assert_eq!(objects.render_facts(&key), None);
        objects.mark_in_sync(&key, "1", 7);
        assert!(objects.observe(key.clone(), control_plane("2", endpoint("api.example")), true));
        let facts = objects.render_facts(&key).unwrap();
        let found = facts.control_plane_endpoint.as_ref().unwrap();
        assert_eq!((found.host.as_str(), found.port), ("api.example", 443));
        // The spec did not change, so the object is still in sync.
        let in_sync = objects.objects_to_compare(&DesiredDigests::from([(key.clone(), 7)])).in_sync;
        assert!(in_sync.contains(&key));
        assert!(!objects.observe(key.clone(), control_plane("3", endpoint("api.example")), true));
    }

    #[test]
    fn older_watch_update_does_not_replace_write_response() {
        let mut objects = ObjectCache::default();
        objects.observe(config_map_key(), config_map("10", "new"), true);
        assert!(!objects.observe(config_map_key(), config_map("9", "old"), true));
        let observed = objects
            .objects_to_compare(&DesiredDigests::new())
            .observed
            .remove(&config_map_key())
            .unwrap();
        assert_eq!(observed.value["data"]["k"], "new");
        // An in-sync result applies only to the compared version.
        objects.observe(config_map_key(), config_map("11", "newer"), true);
        objects.mark_in_sync(&config_map_key(), "10", 7);
        assert!(
            objects
                .objects_to_compare(&DesiredDigests::from([(config_map_key(), 7)]))
                .in_sync
                .is_empty()
        );
    }

    #[test]
    fn uncompared_objects_keep_only_a_digest() {
        let mut objects = ObjectCache::default();
        assert!(objects.observe(config_map_key(), config_map("1", "a"), false));
        assert!(!objects.observe(config_map_key(), config_map("2", "a"), false));
        assert_eq!((objects.content_bytes(), objects.uid(&config_map_key())), (0, Some("u")));
        assert_eq!(
            objects.objects_to_compare(&DesiredDigests::new()).without_content,
            [config_map_key()]
        );
        objects.observe(config_map_key(), config_map("3", "b"), true);
        assert!(objects.content_bytes() > 0);
        // An in-sync result stays valid without content.
        objects.mark_in_sync(&config_map_key(), "3", 7);
        objects.forget_content();
        assert!(
            objects
                .objects_to_compare(&DesiredDigests::from([(config_map_key(), 7)]))
                .in_sync
                .contains(&config_map_key())
        );
    }

    #[test]
    fn recreated_object_replaces_the_old_one() {
        let mut objects = ObjectCache::default();
        objects.observe(config_map_key(), config_map("10", "a"), true);
        objects.mark_in_sync(&config_map_key(), "10", 7);
        let mut other = config_map("9", "a");
        other.metadata.uid = Some("v".to_owned());
        assert!(objects.observe(config_map_key(), other, true));
        assert_eq!(objects.uid(&config_map_key()), Some("v"));
        assert!(objects.forget(&config_map_key()) && !objects.forget(&config_map_key()));
    }
}
