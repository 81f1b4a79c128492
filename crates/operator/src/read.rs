//! Reading what no watch keeps: objects whose content is not known any more.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use kube::api::{DynamicObject, ListParams};
use lanyard_desired::{ObjectKey, ObservedObject, OwnedKind};
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};

use crate::kinds::OURS;
use crate::store::Stores;
use crate::subject::{Subject, observed, of_name};

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The objects that are there.
    pub(crate) objects: BTreeMap<ObjectKey, ObservedObject>,
    /// Those of which nobody knows: reading them failed.
    pub(crate) unread: BTreeSet<ObjectKey>,
    /// Why.
    pub(crate) errors: Vec<ApiError>,
}

/// Objects of one kind in one namespace.
#[derive(Debug)]
struct Group {
    kind: OwnedKind,
    namespace: Option<String>,
    keys: Vec<ObjectKey>,
}

/// Reads objects. Several of one kind come with one list, so that a cluster whose leader changed
/// costs a request for each kind. What cannot be read keeps nothing else from being read.
pub(crate) async fn fetch_objects(
    api: &KubernetesApi,
    stores: &Stores,
    keys: Vec<ObjectKey>,
) -> Found {
    let mut found = Found::default();
    let reads = groups(keys).into_iter().map(|group| async move {
        let read = group.fetch(api).await;
        (group, read)
    });
    let mut reads = futures::stream::iter(reads).buffer_unordered(AT_ONCE);
    while let Some((group, read)) = reads.next().await {
        match read {
            Ok(objects) => group.take(objects, stores, &mut found),
            Err(error) => {
                found.unread.extend(group.keys);
                found.errors.push(error);
            }
        }
    }
    found
}

fn groups(keys: Vec<ObjectKey>) -> Vec<Group> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for key in keys {
        groups.entry((key.kind, key.namespace.clone())).or_default().push(key);
    }
    let group = |((kind, namespace), keys)| Group { kind, namespace, keys };
    groups.into_iter().map(group).collect()
}

impl Group {
    async fn fetch(&self, api: &KubernetesApi) -> Result<Vec<DynamicObject>, ApiError> {
        let facts = self.kind.facts();
        let objects = self.subject().objects(api.client(), self.namespace.as_deref());
        let parameters = ListParams::default().labels(OURS);
        let (parameters, what) = match &*self.keys {
            [key] => (parameters.fields(&of_name(&key.name)), &*key.name),
            _ => (parameters, facts.plural),
        };
        let list = || objects.list(&parameters);
        let place = self.namespace.as_deref().unwrap_or("all namespaces");
        let action = format!("list {} {what} of {place}", facts.kind);
        Ok(api.call(Patience::USUAL, action, list).await?.items)
    }

    /// Takes in what is there, and that the rest is not.
    fn take(self, objects: Vec<DynamicObject>, stores: &Stores, found: &mut Found) {
        let subject = self.subject();
        for object in objects {
            let object = subject.typed(object);
            // What was not asked for comes with the watch, which wakes whom it concerns.
            let Some(observed) = observed(&object).filter(|it| self.keys.contains(&it.key)) else {
                continue;
            };
            stores.read(&observed.key, object);
            found.objects.insert(observed.key.clone(), observed);
        }
        for key in self.keys {
            if !found.objects.contains_key(&key) {
                stores.missing(&key);
            }
        }
    }

    fn subject(&self) -> Subject {
        Subject::owned(self.kind)
    }
}

/// How many requests are under way for one cluster.
const AT_ONCE: usize = 4;

#[cfg(test)]
mod tests;
