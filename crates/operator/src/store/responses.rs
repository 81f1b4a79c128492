//! Stores the objects in the responses to the operator's own requests.
//!
//! A response may arrive after the watch delivered a later change of the object, or after a later response. It
//! must not replace a newer object in the cache, because no later watch event would correct that.

use kube::api::{DynamicObject, ObjectMeta};
use lanyard_api::HostedClusterIdentities;
use lanyard_desired::{ObjectKey, OwnedKind};
use lanyard_kubernetes::WatchUpdate;

use super::keys::{cache_namespace, namespaced_name, object_key};
use super::objects::is_older_version;
use super::{CachedReport, IdentitiesReport, ObjectCache, WatchStores, WatchStoresInner};
use crate::cluster_key::ClusterKey;
use crate::watched_kinds::WatchedKind;

impl WatchStores {
    /// Stores an object from the response to a write, unless the cache already has a newer version, or the
    /// watch delivered its deletion.
    pub(crate) fn store_written(&self, object: DynamicObject) {
        let (api_version, kind) = object
            .types
            .as_ref()
            .map_or(("", ""), |types| (types.api_version.as_str(), types.kind.as_str()));
        let Some(kind) = OwnedKind::parse(api_version, kind) else { return };
        let mut inner = self.inner.lock();
        let (namespace, name) = namespaced_name(&object);
        let key = object_key(kind, &namespace, name);
        if !inner.is_superseded(&key, &object.metadata) {
            inner.upsert(WatchedKind::Owned(kind), object, self.conditions);
        }
    }

    /// Stores an object from the response to a read, unless the cache already has a newer version, or the
    /// watch delivered its deletion.
    pub(crate) fn store_fetched(&self, key: &ObjectKey, object: DynamicObject) {
        let mut inner = self.inner.lock();
        if inner.is_superseded(key, &object.metadata) {
            return;
        }
        let namespace = cache_namespace(key);
        let keeps_content = inner.is_compared(&namespace);
        inner.namespaces.entry(namespace).or_default().objects.store_fetched(
            key.clone(),
            object,
            keeps_content,
        );
    }

    /// The cached resource version of an object.
    pub(crate) fn version(&self, key: &ObjectKey) -> Option<String> {
        self.inner.lock().cached_objects(key)?.version(key).map(str::to_owned)
    }

    /// Records that an object does not exist any more, unless the cache has another version than the one
    /// before the read that did not find it.
    pub(crate) fn mark_absent(&self, key: &ObjectKey, version: &str) {
        let mut inner = self.inner.lock();
        if inner.cached_objects(key).and_then(|objects| objects.version(key)) == Some(version) {
            inner.remove_owned(key);
        }
    }

    /// Records that the object with this uid does not exist any more.
    pub(crate) fn mark_deleted(&self, key: &ObjectKey, uid: &str) {
        let mut inner = self.inner.lock();
        if inner.cached_objects(key).and_then(|objects| objects.uid(key)) == Some(uid) {
            inner.remove_owned(key);
        }
    }

    /// Stores the HostedClusterIdentities from the response to a write, unless the cache already has a newer
    /// version, or the watch delivered its deletion.
    pub(crate) fn store_identities(&self, key: &ClusterKey, identities: HostedClusterIdentities) {
        let report = CachedReport::of(IdentitiesReport::of(identities));
        let mut inner = self.inner.lock();
        let is_superseded = match inner.identities.get(key) {
            Some(known) => is_older_version(report.version(), known.version()),
            None => inner.has_watched(WatchedKind::Identities, report.version()),
        };
        if !is_superseded {
            inner.identities.insert(key.clone(), report);
        }
    }

    /// Stores the operator's conditions from the response to a write.
    pub(crate) fn store_conditions(&self, key: &ClusterKey, object: DynamicObject) {
        if let Some(cluster) = self.inner.lock().clusters.get_mut(key) {
            cluster.merge_written_status(object, self.conditions);
        }
    }

    /// Stores the HostedCluster from the response to the write that added this finalizer.
    pub(crate) fn store_finalizer(&self, key: &ClusterKey, object: DynamicObject, finalizer: &str) {
        if let Some(cluster) = self.inner.lock().clusters.get_mut(key) {
            cluster.merge_finalizer(object, finalizer, self.conditions);
        }
    }
}

impl WatchStoresInner {
    /// Records the version of a watched object. The start of a new list resets it.
    pub(super) fn record_watched_version(&mut self, kind: WatchedKind, update: &WatchUpdate) {
        let object = match update {
            WatchUpdate::Applied(object) | WatchUpdate::Deleted(object) => object,
            WatchUpdate::ListStarted => {
                self.watched_versions.remove(&kind);
                return;
            }
            WatchUpdate::ListCompleted | WatchUpdate::Failed(..) => return,
        };
        let version = object.metadata.resource_version.as_deref();
        if let Some(version) = version.and_then(|version| version.parse::<u64>().ok()) {
            let watched = self.watched_versions.entry(kind).or_default();
            *watched = version.max(*watched);
        }
    }

    /// Whether the watch of the kind has delivered this version.
    fn has_watched(&self, kind: WatchedKind, version: &str) -> bool {
        let watched = self.watched_versions.get(&kind).zip(version.parse::<u64>().ok());
        watched.is_some_and(|(watched, version)| version <= *watched)
    }

    /// Whether the cache is ahead of an object in a response: it has a newer version, or the watch delivered
    /// the deletion of the object.
    fn is_superseded(&self, key: &ObjectKey, response: &ObjectMeta) -> bool {
        let version = response.resource_version.as_deref().unwrap_or_default();
        match self.cached_objects(key).and_then(|objects| objects.version(key)) {
            Some(known) => is_older_version(version, known),
            None => self.has_watched(WatchedKind::Owned(key.kind), version),
        }
    }

    fn cached_objects(&self, key: &ObjectKey) -> Option<&ObjectCache> {
        self.namespaces.get(&cache_namespace(key)).map(|cache| &cache.objects)
    }

    fn remove_owned(&mut self, key: &ObjectKey) {
        let namespace = key.namespace.clone().unwrap_or_default();
        self.remove(WatchedKind::Owned(key.kind), &(namespace, key.name.clone()));
    }
}
