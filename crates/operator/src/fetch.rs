//! Fetches objects whose content the stores do not keep.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use kube::api::{DynamicObject, ListParams};
use lanyard_desired::{ObjectKey, ObservedObject, OwnedKind};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};

use crate::store::WatchStores;
use crate::watched_kinds::MANAGED_BY_SELECTOR;
use crate::watched_resource::{WatchedResource, name_selector, observed_object};

#[derive(Debug, Default)]
pub(crate) struct FetchedObjects {
    /// The objects that exist.
    pub(crate) objects: BTreeMap<ObjectKey, ObservedObject>,
    /// The keys that could not be read.
    pub(crate) unread: BTreeSet<ObjectKey>,
    /// The errors for the unread keys.
    pub(crate) errors: Vec<ApiError>,
}

/// Keys of one kind in one namespace.
#[derive(Debug)]
struct FetchGroup {
    kind: OwnedKind,
    namespace: Option<String>,
    keys: Vec<ObjectKey>,
    /// The cached versions before the request.
    cached_versions: BTreeMap<ObjectKey, String>,
}

/// Fetches objects. Several objects of one kind share one list request, so a cluster whose leader changed
/// costs one request per kind. A failed list does not affect other kinds.
pub(crate) async fn fetch_objects(
    api: &KubernetesApi,
    stores: &WatchStores,
    keys: Vec<ObjectKey>,
) -> FetchedObjects {
    let mut found = FetchedObjects::default();
    let reads = group_keys(keys, stores).into_iter().map(|group| async move {
        let read = group.list_group(api).await;
        (group, read)
    });
    let mut reads = futures::stream::iter(reads).buffer_unordered(MAX_CONCURRENT_LISTS);
    while let Some((group, read)) = reads.next().await {
        match read {
            Ok(objects) => group.store_fetched(objects, stores, &mut found),
            Err(error) => {
                found.unread.extend(group.keys);
                found.errors.push(error);
            }
        }
    }
    found
}

fn group_keys(keys: Vec<ObjectKey>, stores: &WatchStores) -> Vec<FetchGroup> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for key in keys {
        groups.entry((key.kind, key.namespace.clone())).or_default().push(key);
    }
    let group = |((kind, namespace), keys): (_, Vec<ObjectKey>)| {
        let version = |key: &ObjectKey| Some((key.clone(), stores.version(key)?));
        let cached_versions = keys.iter().filter_map(version).collect();
        FetchGroup { kind, namespace, keys, cached_versions }
    };
    groups.into_iter().map(group).collect()
}

impl FetchGroup {
    async fn list_group(&self, api: &KubernetesApi) -> Result<Vec<DynamicObject>, ApiError> {
        let info = self.kind.info();
        let objects = self.watched_resource().api(api.client(), self.namespace.as_deref());
        let parameters = ListParams::default().labels(MANAGED_BY_SELECTOR);
        let (parameters, name_or_plural) = match &*self.keys {
            [key] => (parameters.fields(&name_selector(&key.name)), &*key.name),
            _ => (parameters, info.plural),
        };
        let list = || objects.list(&parameters);
        let place = self.namespace.as_deref().unwrap_or("all namespaces");
        let action = format!("list {} {name_or_plural} of {place}", info.kind);
        Ok(api.call(ApiRetryPolicy::STANDARD, action, list).await?.items)
    }

    /// Stores the listed objects, and marks the other requested ones as absent.
    fn store_fetched(
        self,
        objects: Vec<DynamicObject>,
        stores: &WatchStores,
        found: &mut FetchedObjects,
    ) {
        let subject = self.watched_resource();
        for object in objects {
            let object = subject.with_type_meta(object);
            // The watch delivers the objects that were not requested.
            let Some(observed) = observed_object(&object).filter(|it| self.keys.contains(&it.key))
            else {
                continue;
            };
            stores.store_fetched(&observed.key, object);
            found.objects.insert(observed.key.clone(), observed);
        }
        for (key, version) in &self.cached_versions {
            if !found.objects.contains_key(key) {
                stores.mark_absent(key, version);
            }
        }
    }

    fn watched_resource(&self) -> WatchedResource {
        WatchedResource::owned(self.kind)
    }
}

/// The maximum number of concurrent lists per cluster.
const MAX_CONCURRENT_LISTS: usize = 4;

#[cfg(test)]
mod tests;
