//! SecretProviderClasses of the Kubernetes API: watched per namespace in use, kept per class in
//! use.
//!
//! A cluster may hold many thousand classes, and a node needs a handful. So nothing is listed: a
//! class is read when a volume first names it, and one watch per namespace tells what becomes of
//! it. What nobody asked for is dropped as it arrives.

mod bounded_class;
mod namespace_watch;
mod store;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use kube::Api;
use lanyard_api::SecretProviderClass;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::AbortHandle;

use self::bounded_class::BoundedClass;
use self::store::{ClassLookup, ClassStore, MAX_CLASS_BYTES, evict_to_limit};
use super::api::NodeKubernetesApi;
use crate::classes::{ClassError, ClassSource};

/// The classes that volumes of this node name.
///
/// While the API does not answer, a class that was known before is given as it was last seen; one
/// that was not is [`ClassError::Unavailable`].
pub struct KubeClassCache {
    shared: Arc<KubeClassCacheState>,
}

/// How long classes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubeClassCacheSettings {
    /// How long after nobody asked for a class any more it is forgotten, and its namespace no
    /// longer watched when it was the last. Longer than the longest rotation interval, or a class
    /// is unknown when the API is down at the wrong time.
    pub idle_after: Duration,
}

impl Default for KubeClassCacheSettings {
    fn default() -> Self {
        Self { idle_after: Duration::from_hours(6) }
    }
}

/// A class that a volume of this node uses was changed, made or removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClassChange {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl KubeClassCache {
    /// The classes of this API. Nothing is asked yet.
    pub fn new(api: NodeKubernetesApi, settings: KubeClassCacheSettings) -> Self {
        let (changes, _) = broadcast::channel(CHANGE_CHANNEL_CAPACITY);
        let namespaces = Mutex::new(HashMap::new());
        let turns = Mutex::new(HashMap::new());
        let reads = Semaphore::new(CONCURRENT_READS);
        Self {
            shared: Arc::new(KubeClassCacheState {
                api,
                settings,
                changes,
                namespaces,
                read_locks: turns,
                reads,
            }),
        }
    }

    /// Tells from now on which classes changed. A receiver that lags has missed some, and should
    /// take every class as changed.
    pub fn changes(&self) -> broadcast::Receiver<ClassChange> {
        self.shared.changes.subscribe()
    }

    /// How many namespaces are watched.
    pub fn watched_namespaces(&self) -> usize {
        self.shared.namespaces.lock().len()
    }

    /// What is known of a class. Begins to watch its namespace where nobody does.
    fn lookup_class(&self, namespace: &str, name: &str) -> ClassLookup {
        let now = self.shared.api.clock().monotonic();
        let mut namespaces = self.shared.namespaces.lock();
        if let Some(watched) = namespaces.get_mut(namespace) {
            return watched.store.lookup(name, now);
        }
        let mut store = ClassStore::default();
        let answer = store.lookup(name, now);
        let following =
            namespace_watch::watch_namespace(Arc::downgrade(&self.shared), namespace.to_owned());
        let task = tokio::spawn(following).abort_handle();
        namespaces.insert(namespace.to_owned(), WatchedNamespace { store, task });
        answer
    }

    /// Reads a class, unless somebody else does so already: then that answer serves both.
    async fn read_class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<SecretProviderClass>>, String> {
        let turn = self.shared.read_lock(namespace, name);
        let _turn = turn.lock().await;
        let known = match self.lookup_class(namespace, name) {
            ClassLookup::Current(class) | ClassLookup::LastKnown(class) => return Ok(Some(class)),
            ClassLookup::Absent => return Ok(None),
            ClassLookup::Failed(problem) => return Err(problem),
            ClassLookup::NeedsRead(known) => known,
        };
        let patience =
            if known.is_some() { ApiRetryPolicy::SHORT } else { ApiRetryPolicy::STANDARD };
        match (self.shared.fetch_class(patience, namespace, name).await, known) {
            (Ok(class), _) => Ok(class),
            (Err(error), Some(class)) => {
                tracing::debug!(namespace, name, %error, "a class is served as it was last seen");
                Ok(Some(class))
            }
            (Err(error), None) => Err(error.to_string()),
        }
    }
}

#[async_trait]
impl ClassSource for KubeClassCache {
    async fn class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError> {
        let read = match self.lookup_class(namespace, name) {
            ClassLookup::Current(class) | ClassLookup::LastKnown(class) => Ok(Some(class)),
            ClassLookup::Absent | ClassLookup::Failed(_) | ClassLookup::NeedsRead(_) => {
                self.read_class(namespace, name).await
            }
        };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match read {
            Ok(Some(class)) => Ok(class),
            Ok(None) => Err(match self.shared.oversized_class_bytes(&namespace, &name) {
                Some(size) => {
                    ClassError::TooLarge { namespace, name, size, limit: MAX_CLASS_BYTES }
                }
                None => ClassError::NotFound { namespace, name },
            }),
            Err(problem) => Err(ClassError::Unavailable { namespace, name, problem }),
        }
    }
}

impl Drop for KubeClassCache {
    fn drop(&mut self) {
        for watched in self.shared.namespaces.lock().values() {
            watched.task.abort();
        }
    }
}

impl fmt::Debug for KubeClassCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KubeClasses")
            .field("watched_namespaces", &self.watched_namespaces())
            .finish_non_exhaustive()
    }
}

/// What the askers and the watches share.
struct KubeClassCacheState {
    api: NodeKubernetesApi,
    settings: KubeClassCacheSettings,
    changes: broadcast::Sender<ClassChange>,
    namespaces: Mutex<HashMap<String, WatchedNamespace>>,
    /// Who reads which class, for as long as somebody does.
    read_locks: Mutex<HashMap<(String, String), Weak<ClassReadLock>>>,
    /// One permit for each class that may be read at the same time.
    reads: Semaphore,
}

/// Held by whoever reads a class.
type ClassReadLock = tokio::sync::Mutex<()>;

/// A namespace that is watched.
struct WatchedNamespace {
    store: ClassStore,
    task: AbortHandle,
}

impl KubeClassCacheState {
    fn classes_api(&self, namespace: &str) -> Api<BoundedClass> {
        Api::namespaced(self.api.client().clone(), namespace)
    }

    /// The lock that whoever reads a class holds.
    fn read_lock(&self, namespace: &str, name: &str) -> Arc<ClassReadLock> {
        let key = (namespace.to_owned(), name.to_owned());
        let mut turns = self.read_locks.lock();
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }

    /// Reads a class and remembers it.
    async fn fetch_class(
        &self,
        patience: ApiRetryPolicy,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<SecretProviderClass>>, ApiError> {
        let classes = self.classes_api(namespace);
        let action = format!("read SecretProviderClass {namespace}/{name}");
        let now = || self.api.clock().monotonic();
        self.update_store(namespace, |store| {
            store.begin_read(name, now());
            None
        });
        let get = async || {
            // Waiting counts as part of the attempt. The semaphore is never closed.
            let _permit = self.reads.acquire().await;
            classes.get(name).await
        };
        let read = self.api.call(patience, action, get).await;
        let problem = read.as_ref().err().filter(|error| !error.is_not_found());
        let problem = problem.map(ToString::to_string);
        self.update_store(namespace, |store| {
            store.end_read(name, now(), problem);
            None
        });
        match read {
            Ok(class) => {
                // Before another class can take its place.
                let mut known = None;
                self.update_store(namespace, |store| {
                    let news = store.observe(class);
                    known = store.class(name);
                    news
                });
                Ok(known)
            }
            Err(error) if error.is_not_found() => {
                self.update_store(namespace, |store| store.observe_deletion(name, None));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What a class takes in memory that is too large to be kept.
    fn oversized_class_bytes(&self, namespace: &str, name: &str) -> Option<u64> {
        self.namespaces.lock().get(namespace)?.store.oversized_bytes(name)
    }

    /// Changes what is known of a namespace, and tells what class that changed.
    fn update_store(
        &self,
        namespace: &str,
        change: impl FnOnce(&mut ClassStore) -> Option<String>,
    ) {
        let mut namespaces = self.namespaces.lock();
        let changed = namespaces.get_mut(namespace).and_then(|it| change(&mut it.store));
        evict_to_limit(namespaces.values_mut().map(|it| &mut it.store), MAX_CACHE_BYTES);
        drop(namespaces);
        if let Some(name) = changed {
            tracing::debug!(namespace, name, "a class changed");
            // Nobody may be listening.
            self.changes.send(ClassChange { namespace: namespace.to_owned(), name }).ok();
        }
    }
}

const CHANGE_CHANNEL_CAPACITY: usize = 256;
/// What all classes that are kept may take in memory together, in bytes: some thousand classes of
/// usual size.
const MAX_CACHE_BYTES: u64 = 8 << 20;
/// How many classes are read at the same time. An object of the API has up to 1.5 MiB (etcd's
/// `--max-request-bytes`), and is in memory twice when it arrives.
const CONCURRENT_READS: usize = 8;
