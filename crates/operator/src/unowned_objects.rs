//! Objects of others that stand where ours would be made.
//!
//! Only what bears our label is watched, so an object that seems not to be there may be somebody
//! else's. Applying would make it ours, and it would go with the cluster.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use lanyard_desired::{ObjectChange, ObjectKey, ObservedObject, OwnedKind};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};

use crate::fetch::FetchedObjects;
use crate::watched_resource::{WatchedResource, name_selector, observed_object};

/// What is there of all that would be created. One list for each kind, of names alone and out of the
/// API server's cache; nothing is asked where nothing would be created. What cannot be listed is not
/// known to be free.
pub(crate) async fn fetch_unowned(
    api: &KubernetesApi,
    namespace: &str,
    changes: &[ObjectChange],
) -> FetchedObjects {
    let mut groups: BTreeMap<OwnedKind, BTreeSet<ObjectKey>> = BTreeMap::new();
    let created = changes.iter().filter(|change| matches!(change, ObjectChange::Create { .. }));
    // Whose the namespace is was found out before.
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

/// An object of a namespace, whoever made it.
pub(crate) async fn fetch_regardless_of_owner(
    api: &KubernetesApi,
    key: &ObjectKey,
) -> Result<Option<ObservedObject>, ApiError> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    NamespacedKind { api, namespace, kind: key.kind }.fetch_by_name(&key.name).await
}

/// The objects of one kind in one namespace, whoever made them.
#[derive(Debug, Clone, Copy)]
struct NamespacedKind<'a> {
    api: &'a KubernetesApi,
    namespace: &'a str,
    kind: OwnedKind,
}

impl NamespacedKind<'_> {
    /// Those of these that are there.
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

    /// One object, by a list of one: it needs no other right.
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

    fn list_action(self, what: &str) -> String {
        format!("list {} {what} of {}", self.kind.info().kind, self.namespace)
    }
}
