//! Finds existing objects of other owners where the operator would create its own.
//!
//! Only objects with the operator's label are watched, so an object that the store lacks may exist without
//! the label. Applying it would adopt it, and the deletion of the cluster would delete it.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use lanyard_desired::{ObjectChange, ObjectKey, ObservedObject, OwnedKind};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};

use crate::fetch::FetchedObjects;
use crate::watched_resource::{WatchedResource, name_selector, observed_object};

/// Fetches the existing objects among those that `changes` would create. It sends one metadata list per
/// kind, answered from the API server's watch cache, and no request if nothing would be created. Keys
/// whose kind cannot be listed are returned as unread.
pub(crate) async fn fetch_unowned(
    api: &KubernetesApi,
    namespace: &str,
    changes: &[ObjectChange],
) -> FetchedObjects {
    let mut groups: BTreeMap<OwnedKind, BTreeSet<ObjectKey>> = BTreeMap::new();
    let created = changes.iter().filter(|change| matches!(change, ObjectChange::Create { .. }));
    // The owner of the namespace is already known.
    for key in created.map(ObjectChange::key).filter(|key| key.kind != OwnedKind::Namespace) {
        groups.entry(key.kind).or_default().insert(key.clone());
    }
    let lists = groups.into_iter().map(|(kind, keys)| async move {
        let place = NamespacedKind { api, namespace, kind };
        (place.fetch_existing(&keys).await, keys)
    });
    let mut found = FetchedObjects::default();
    for (objects, keys) in join_all(lists).await {
        match objects {
            Ok(objects) => found.objects.extend(objects),
            Err(error) => {
                found.unread.extend(keys);
                found.errors.push(error);
            }
        }
    }
    found
}

/// Fetches an object, whichever owner it has.
pub(crate) async fn fetch_regardless_of_owner(
    api: &KubernetesApi,
    key: &ObjectKey,
) -> Result<Option<ObservedObject>, ApiError> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    NamespacedKind { api, namespace, kind: key.kind }.fetch_by_name(&key.name).await
}

/// The objects of one kind in one namespace, whichever owner they have.
#[derive(Debug, Clone, Copy)]
struct NamespacedKind<'a> {
    api: &'a KubernetesApi,
    namespace: &'a str,
    kind: OwnedKind,
}

impl NamespacedKind<'_> {
    /// Fetches those of these objects that exist.
    async fn fetch_existing(
        self,
        keys: &BTreeSet<ObjectKey>,
    ) -> Result<BTreeMap<ObjectKey, ObservedObject>, ApiError> {
        let (objects, parameters) = (self.api_for_kind(), ListParams::default().match_any());
        let list = || objects.list_metadata(&parameters);
        let names =
            self.api.call(ApiRetryPolicy::STANDARD, self.list_action("names"), list).await?.items;
        let names: BTreeSet<_> = names.into_iter().filter_map(|it| it.metadata.name).collect();
        let mut found = BTreeMap::new();
        for key in keys.iter().filter(|key| names.contains(&key.name)) {
            if let Some(object) = self.fetch_by_name(&key.name).await? {
                found.insert(key.clone(), object);
            }
        }
        Ok(found)
    }

    /// Fetches one object with a list request, which needs no further permission.
    async fn fetch_by_name(self, name: &str) -> Result<Option<ObservedObject>, ApiError> {
        let parameters = ListParams::default().fields(&name_selector(name));
        let objects = self.api_for_kind();
        let list = || objects.list(&parameters);
        let found = self.api.call(ApiRetryPolicy::STANDARD, self.list_action(name), list).await?;
        let object = found.items.into_iter().next();
        Ok(object
            .and_then(|object| observed_object(&self.watched_resource().with_type_meta(object))))
    }

    fn api_for_kind(self) -> Api<DynamicObject> {
        self.watched_resource().api(self.api.client(), Some(self.namespace))
    }

    fn watched_resource(self) -> WatchedResource {
        WatchedResource::owned(self.kind)
    }

    fn list_action(self, target: &str) -> String {
        format!("list {} {target} of {}", self.kind.info().kind, self.namespace)
    }
}
