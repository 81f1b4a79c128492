//! The objects of one kind in one namespace, as a watch tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::api::DynamicObject;
use lanyard_kubernetes::{ApiError, Seen};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

/// The objects by name. Clones share them.
pub(super) struct Store<K>(Arc<Mutex<Objects<K>>>);

struct Objects<K> {
    by_name: BTreeMap<String, Arc<K>>,
    /// Those that a list has told until now; nothing where none is under way.
    listed: Option<BTreeSet<String>>,
    /// Why the API does not let them be followed.
    refused: Option<ApiError>,
}

impl<K: Resource + DeserializeOwned> Store<K> {
    /// Takes in what a watch tells.
    pub(super) fn see(&self, seen: Seen) {
        let mut objects = self.0.lock();
        match seen {
            Seen::There(object) => objects.there(*object),
            Seen::Gone(object) => drop(objects.by_name.remove(&name_of(&object))),
            Seen::Anew => objects.listed = Some(BTreeSet::new()),
            Seen::Complete => {
                let listed = objects.listed.take().unwrap_or_default();
                objects.by_name.retain(|name, _| listed.contains(name));
                objects.refused = None;
            }
            // What passes by itself is not worth a word before it has.
            Seen::Broken(_, 0) => {}
            Seen::Broken(error, _) => objects.refused = Some(error),
        }
    }
}

impl<K> Store<K> {
    /// All there are.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.0.lock().by_name.values().cloned().collect()
    }

    /// The one of this name.
    pub(super) fn named(&self, name: &str) -> Option<Arc<K>> {
        self.0.lock().by_name.get(name).cloned()
    }

    /// Why the API does not let them be followed, while it does not.
    pub(super) fn refused(&self) -> Option<ApiError> {
        self.0.lock().refused.clone()
    }
}

impl<K: Resource + DeserializeOwned> Objects<K> {
    /// One that cannot be read is none that anybody here can use.
    fn there(&mut self, object: DynamicObject) {
        let name = name_of(&object);
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
        match object.try_parse() {
            Ok(object) => drop(self.by_name.insert(name, Arc::new(object))),
            Err(error) => {
                tracing::warn!(name, "an object cannot be read: {error}");
                self.by_name.remove(&name);
            }
        }
    }
}

fn name_of(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        let objects = Objects { by_name: BTreeMap::new(), listed: None, refused: None };
        Self(Arc::new(Mutex::new(objects)))
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn object(name: &str, phase: &str) -> Box<DynamicObject> {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "status": {"phase": phase}});
        Box::new(serde_json::from_value(object).unwrap())
    }

    fn names(store: &Store<Pod>) -> Vec<String> {
        store.all().iter().filter_map(|pod| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn what_stands_is_what_was_told_last_and_a_list_that_broke_takes_nothing_away() {
        let store = Store::<Pod>::default();
        let there = |name| Seen::There(object(name, "Running"));
        for seen in [Seen::Anew, there("a"), there("b"), there("c"), Seen::Complete] {
            store.see(seen);
        }
        store.see(Seen::Gone(object("b", "")));
        store.see(Seen::There(object("a", "Failed")));
        assert_eq!(names(&store), ["a", "c"]);
        let phase = store.named("a").unwrap().status.clone().unwrap().phase;
        assert_eq!(phase.as_deref(), Some("Failed"));
        for seen in [Seen::Anew, Seen::Anew, there("c")] {
            store.see(seen);
        }
        assert_eq!(names(&store), ["a", "c"]);
        store.see(Seen::Complete);
        assert_eq!(names(&store), ["c"]);
        let unreadable = json!({"metadata": {"name": "c"}, "spec": 7});
        store.see(Seen::There(Box::new(serde_json::from_value(unreadable).unwrap())));
        assert_eq!(names(&store), [""; 0]);
    }

    #[test]
    fn a_refusal_is_known_until_all_is_told_again() {
        let (store, action) = (Store::<Pod>::default(), "watch pods".to_owned());
        let away = || ApiError::Unreached { action: action.clone(), problem: "reset".to_owned() };
        store.see(Seen::Broken(away(), 0));
        assert!(store.refused().is_none(), "that passes");
        let gone = ApiError::NotServed { action: action.clone(), message: "no".to_owned() };
        store.see(Seen::Broken(gone, 1));
        for seen in [Seen::Broken(away(), 0), Seen::Anew, Seen::There(object("a", ""))] {
            store.see(seen);
            assert!(store.refused().is_some());
        }
        store.see(Seen::Complete);
        assert!(store.refused().is_none());
    }
}
