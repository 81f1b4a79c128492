//! The watch of one namespace.

use std::sync::Weak;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use lanyard_clock::{Backoff, ErrorHint as _};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};

use super::KubeClassCacheState;
use super::bounded_class::BoundedClass;

/// Watches the classes of a namespace until none has been requested for a while.
pub(super) async fn watch_namespace(shared: Weak<KubeClassCacheState>, namespace: String) {
    let mut failures = 0;
    let mut version = None;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match shared.watch_once(&namespace, version.take()).await {
            Ok(ClassWatchEnd::Idle) => return,
            Ok(ClassWatchEnd::Closed { resource_version: at, lasted: after }) => {
                failures = 0;
                version = Some(at);
                if after < MIN_WATCH_DURATION {
                    let sleep = shared.api.clock().sleep(FIRST_PAUSE);
                    drop(shared);
                    sleep.await;
                }
            }
            Err(stopped) => {
                let expired = stopped.error.is_expired();
                version = stopped.resource_version.filter(|_| !expired);
                shared.update_store(&namespace, |store| {
                    store.pause_watch();
                    None
                });
                // An expired resource version is an ordinary end of a watch.
                if !expired {
                    failures += 1;
                    log_watch_failure(&namespace, &stopped.error, failures);
                }
                let pause = BACKOFF.delay_with_jitter(failures, fastrand::f64());
                let sleep = shared.api.clock().sleep(pause);
                drop(shared);
                sleep.await;
            }
        }
    }
}

/// Logs the first failure as a warning and later ones at debug level, because each namespace has its own
/// watch.
fn log_watch_failure(namespace: &str, error: &ApiError, failures: u32) {
    if failures == 1 {
        tracing::warn!(
            namespace,
            hint = error.hint().as_deref(),
            "{error}; serving classes from the cache"
        );
    } else {
        tracing::debug!(namespace, failures, "{error}");
    }
}

/// How a watch ended.
enum ClassWatchEnd {
    /// No class of the namespace was requested for a while.
    Idle,
    /// The server closed the watch, as it does regularly.
    Closed {
        /// The resource version from which the next watch continues.
        resource_version: String,
        /// The duration of the watch.
        lasted: Duration,
    },
}

/// A failed watch, and the resource version from which to continue.
struct BrokenClassWatch {
    resource_version: Option<String>,
    error: ApiError,
}

impl KubeClassCacheState {
    /// Watches from a resource version, or from now.
    async fn watch_once(
        &self,
        namespace: &str,
        version: Option<String>,
    ) -> Result<ClassWatchEnd, BrokenClassWatch> {
        let version = match version {
            Some(version) => version,
            None => self
                .start_watch(namespace)
                .await
                .map_err(|error| BrokenClassWatch { resource_version: None, error })?,
        };
        self.consume_watch(namespace, version).await
    }

    /// Returns the resource version to watch from, and reads the cached classes again.
    async fn start_watch(&self, namespace: &str) -> Result<String, ApiError> {
        let classes = self.classes_api(namespace);
        let action = format!("list SecretProviderClasses of {namespace}");
        // The list is read only for its resource version; one class is the smallest page.
        let one = ListParams::default().limit(1);
        let list = self
            .api
            .call(ApiRetryPolicy::SINGLE_ATTEMPT, action, || classes.list_metadata(&one))
            .await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut names = Vec::new();
        self.update_store(namespace, |store| {
            names = store.start_watch();
            None
        });
        for name in names {
            self.fetch_class(ApiRetryPolicy::SINGLE_ATTEMPT, namespace, &name).await?;
        }
        Ok(version)
    }

    async fn consume_watch(
        &self,
        namespace: &str,
        mut version: String,
    ) -> Result<ClassWatchEnd, BrokenClassWatch> {
        let action = || format!("watch SecretProviderClasses of {namespace}");
        let stopped = |version: &str, error| BrokenClassWatch {
            resource_version: Some(version.to_owned()),
            error,
        };
        let connection = self.api.connection_to_watch(namespace);
        let client = connection.client().clone();
        let classes = Api::<BoundedClass>::namespaced(client, namespace);
        let parameters = WatchParams::default().timeout(WATCH_SECONDS);
        let start = || connection.start(classes.watch(&parameters, &version));
        let events = self.api.call(ApiRetryPolicy::SINGLE_ATTEMPT, action(), start).await;
        let events = events.map_err(|error| stopped(&version, error))?;
        let mut events = std::pin::pin!(events.into_stream());
        self.update_store(namespace, |store| {
            store.resume_watch();
            None
        });
        let began = self.api.clock().monotonic();
        let mut silence = Duration::ZERO;
        loop {
            match self.api.with_timeout(IDLE_CHECK_INTERVAL, events.next()).await {
                Some(Some(Ok(event))) => {
                    silence = Duration::ZERO;
                    self.apply_watch_event(namespace, event, &mut version, action)?;
                }
                Some(Some(Err(error))) => {
                    return Err(stopped(&version, ApiError::of(&error, action())));
                }
                Some(None) => {
                    let after = self.api.clock().monotonic().saturating_sub(began);
                    return Ok(ClassWatchEnd::Closed { resource_version: version, lasted: after });
                }
                None => silence += IDLE_CHECK_INTERVAL,
            }
            if !self.evict_idle(namespace) {
                return Ok(ClassWatchEnd::Idle);
            }
            // The server ends every watch in time, so this connection is dead.
            if silence > MAX_SILENCE {
                let error = ApiError::TimedOut { action: action(), deadline: MAX_SILENCE };
                return Err(stopped(&version, error));
            }
        }
    }

    fn apply_watch_event(
        &self,
        namespace: &str,
        event: WatchEvent<BoundedClass>,
        version: &mut String,
        action: impl Fn() -> String,
    ) -> Result<(), BrokenClassWatch> {
        let mut go_on_from = |newer: Option<&str>| {
            if let Some(newer) = newer {
                newer.clone_into(version);
            }
        };
        match event {
            WatchEvent::Added(class) | WatchEvent::Modified(class) => {
                go_on_from(class.0.metadata.resource_version.as_deref());
                self.update_store(namespace, |store| store.observe(class));
            }
            WatchEvent::Deleted(class) => {
                let at = class.0.metadata.resource_version.as_deref();
                go_on_from(at);
                let name = class.0.metadata.name.as_deref().unwrap_or_default();
                self.update_store(namespace, |store| store.observe_deletion(name, at));
            }
            WatchEvent::Bookmark(bookmark) => go_on_from(Some(&bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => {
                let error = ApiError::of_status(&status, action());
                return Err(BrokenClassWatch { resource_version: Some(version.clone()), error });
            }
        }
        Ok(())
    }

    /// Evicts idle classes, and the namespace with its last class.
    fn evict_idle(&self, namespace: &str) -> bool {
        let now = self.api.clock().monotonic();
        let mut namespaces = self.namespaces.lock();
        let Some(watched) = namespaces.get_mut(namespace) else { return false };
        let in_use = watched.store.evict_idle(now, self.settings.idle_after);
        if !in_use {
            namespaces.remove(namespace);
        }
        in_use
    }
}

/// The requested timeout of a watch. It is below five minutes, as in every client.
const WATCH_SECONDS: u32 = 290;
/// The maximum time without a message on a watch: its timeout and a margin.
const MAX_SILENCE: Duration = Duration::from_mins(5);
/// How often a silent watch checks whether the namespace is still in use.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// A shorter watch did not end by its timeout.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const BACKOFF: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_secs(30));
