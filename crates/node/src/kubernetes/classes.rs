//! A cache of SecretProviderClasses of the Kubernetes API, with one watch per namespace in use.
//!
//! A cluster may have many thousand classes, and a node needs a handful of them. Therefore the cache lists no
//! classes: it reads a class when a volume first names it, and one watch per namespace delivers its changes.
//! Events of classes that were not requested are dropped.

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
use lanyard_provider::{ClassError, ClassSource};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::AbortHandle;

use self::bounded_class::BoundedClass;
use self::store::{ClassLookup, ClassStore, MAX_CLASS_BYTES, evict_to_limit};
use super::api::NodeKubernetesApi;

/// Caches the classes that volumes of this node name.
///
/// While the API does not answer, a known class is served from the cache; an unknown one is
/// [`ClassError::Unavailable`].
pub struct KubeClassCache {
    shared: Arc<KubeClassCacheState>,
}

/// Settings of a [`KubeClassCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubeClassCacheSettings {
    /// The time after the last request at which a class is evicted, and with the last class of a namespace
    /// also its watch. It must exceed the longest rotation interval; otherwise a class may be unknown during
    /// an outage of the API.
    pub idle_after: Duration,
}

impl Default for KubeClassCacheSettings {
    fn default() -> Self {
        Self { idle_after: Duration::from_hours(6) }
    }
}

/// A class that a volume of this node uses was changed, created or removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClassChange {
    /// The namespace of the class.
    pub namespace: String,
    /// The name of the class.
    pub name: String,
}

impl KubeClassCache {
    /// Creates a cache. It sends no request yet.
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

    /// Subscribes to changes of classes. A receiver that lags has missed some changes, and should treat every
    /// class as changed.
    pub fn changes(&self) -> broadcast::Receiver<ClassChange> {
        self.shared.changes.subscribe()
    }

    /// Returns the number of watched namespaces.
    pub fn watched_namespaces(&self) -> usize {
        self.shared.namespaces.lock().len()
    }

    /// Looks up a class, and starts the watch of its namespace if there is none.
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

    /// Reads a class. Concurrent reads of one class share a single request.
    async fn read_class(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<SecretProviderClass>>, String> {
        let slot = self.shared.read_lock(namespace, name);
        let _turn = slot.lock().await;
        let known = match self.lookup_class(namespace, name) {
            ClassLookup::Current(class) | ClassLookup::LastKnown(class) => return Ok(Some(class)),
            ClassLookup::Absent => return Ok(None),
            ClassLookup::Failed(problem) => return Err(problem),
            ClassLookup::NeedsRead(known) => known,
        };
        let timeout =
            if known.is_some() { ApiRetryPolicy::SHORT } else { ApiRetryPolicy::STANDARD };
        match (self.shared.fetch_class(timeout, namespace, name).await, known) {
            (Ok(class), _) => Ok(class),
            (Err(error), Some(class)) => {
                tracing::debug!(namespace, name, %error, "serving a class from the cache");
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

/// The state that lookups and watches share.
struct KubeClassCacheState {
    api: NodeKubernetesApi,
    settings: KubeClassCacheSettings,
    changes: broadcast::Sender<ClassChange>,
    namespaces: Mutex<HashMap<String, WatchedNamespace>>,
    /// A lock per class that is being read.
    read_locks: Mutex<HashMap<(String, String), Weak<ClassReadLock>>>,
    /// One permit for each concurrent read.
    reads: Semaphore,
}

/// Held during the read of a class.
type ClassReadLock = tokio::sync::Mutex<()>;

struct WatchedNamespace {
    store: ClassStore,
    task: AbortHandle,
}

impl KubeClassCacheState {
    fn classes_api(&self, namespace: &str) -> Api<BoundedClass> {
        Api::namespaced(self.api.client().clone(), namespace)
    }

    /// Returns the lock for reads of a class.
    fn read_lock(&self, namespace: &str, name: &str) -> Arc<ClassReadLock> {
        let key = (namespace.to_owned(), name.to_owned());
        let mut turns = self.read_locks.lock();
        if let Some(slot) = turns.get(&key).and_then(Weak::upgrade) {
            return slot;
        }
        turns.retain(|_, slot| slot.strong_count() > 0);
        let slot = Arc::default();
        turns.insert(key, Arc::downgrade(&slot));
        slot
    }

    /// Reads a class and stores it.
    async fn fetch_class(
        &self,
        timeout: ApiRetryPolicy,
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
            // The wait for a permit counts as part of the attempt. The semaphore is never closed.
            let _permit = self.reads.acquire().await;
            classes.get(name).await
        };
        let read = self.api.call(timeout, action, get).await;
        let problem = read.as_ref().err().filter(|error| !error.is_not_found());
        let problem = problem.map(ToString::to_string);
        self.update_store(namespace, |store| {
            store.end_read(name, now(), problem);
            None
        });
        match read {
            Ok(class) => {
                // The class is taken before another class can evict it.
                let mut known = None;
                self.update_store(namespace, |store| {
                    let update = store.observe(class);
                    known = store.class(name);
                    update
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

    /// Returns the size of a class that exceeds the limit.
    fn oversized_class_bytes(&self, namespace: &str, name: &str) -> Option<u64> {
        self.namespaces.lock().get(namespace)?.store.oversized_bytes(name)
    }

    /// Updates the store of a namespace, and publishes the class that changed.
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
            // There may be no subscriber.
            self.changes.send(ClassChange { namespace: namespace.to_owned(), name }).ok();
        }
    }
}

const CHANGE_CHANNEL_CAPACITY: usize = 256;
/// The memory limit of all cached classes together, in bytes: some thousand classes of usual size.
const MAX_CACHE_BYTES: u64 = 8 << 20;
/// The number of concurrent reads. An object of the API has up to 1.5 MiB (etcd's `--max-request-bytes`), and
/// is in memory twice on arrival.
const CONCURRENT_READS: usize = 8;
