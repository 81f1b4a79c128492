//! Lists and watches the objects of one kind, and resumes after every failure.
//!
//! kube's own watcher is not used, for three reasons. It restarts a watch that ends immediately (a proxy
//! that cuts connections, an overloaded server) without any back-off. It skips a line that it cannot
//! parse, so that this change is lost. Its errors do not distinguish a failed list from a failed watch,
//! so a caller cannot space the lists.

mod cursor;
mod failure_log;

use std::ops::RangeInclusive;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams};
use kube::{Api, Client};
use lanyard_clock::ErrorHint as _;

use self::cursor::{WatchCursor, WatchOutcome};
use self::failure_log::LoggedFailure;
use crate::call::{ApiError, ApiRetryPolicy, KubernetesApi};

/// A watch of the objects of one kind.
#[derive(Debug, Clone)]
pub struct ResourceWatch {
    /// The watched resource.
    pub resource: ApiResource,
    /// Restricts the watch to this namespace; permissions in this namespace are then sufficient.
    pub namespace: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
    /// A field selector.
    pub fields: Option<String>,
}

/// An update from a list or a watch.
#[derive(Debug)]
pub enum WatchUpdate {
    /// The object exists with this content.
    Applied(Box<DynamicObject>),
    /// The object was deleted.
    Deleted(Box<DynamicObject>),
    /// A new list begins: a [`WatchUpdate::Applied`] follows for each existing object.
    ListStarted,
    /// The list is complete: objects not sent since [`WatchUpdate::ListStarted`] do not exist.
    ListCompleted,
    /// The list or the watch failed. The number counts consecutive refusals (not served or not allowed)
    /// with the same status; zero for all other errors.
    Failed(ApiError, u32),
}

impl ResourceWatch {
    /// Lists and watches the kind until the future is dropped, and passes every update to `take`. Only the
    /// metadata of the objects is typed, so malformed content is passed on like any other.
    pub async fn follow(&self, api: &KubernetesApi, mut take: impl FnMut(WatchUpdate)) {
        let (mut cursor, mut failure_log) = (WatchCursor::default(), LoggedFailure::default());
        loop {
            let outcome = match cursor.version() {
                None => self.list_all(api, &mut take).await,
                Some(version) if cursor.is_watch_refused() => {
                    self.retry_refused_watch(api, version).await
                }
                Some(version) => self.watch_from(api, version, &mut take).await,
            };
            let (error, before, is_list) =
                (outcome.error().cloned(), cursor.failures(), cursor.version().is_none());
            let pause = cursor.record_outcome(outcome, fastrand::f64());
            if cursor.failures() < before {
                tracing::info!(kind = self.resource.kind, failures = before, "the watch recovered");
            }
            if let Some(error) = error.filter(|error| !error.is_expired()) {
                let should_warn = failure_log.should_log(&error, is_list, cursor.failures());
                self.log_failure(&error, should_warn, cursor.failures());
                take(WatchUpdate::Failed(error, cursor.refusals()));
            }
            if !pause.is_zero() {
                api.clock().sleep(pause).await;
            }
        }
    }

    /// Lists all objects, page by page.
    async fn list_all(
        &self,
        api: &KubernetesApi,
        take: &mut impl FnMut(WatchUpdate),
    ) -> WatchOutcome {
        let connection = api.connection_to_watch(&self.resource.plural);
        let objects = self.api_for_resource(connection.client());
        take(WatchUpdate::ListStarted);
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        parameters.label_selector = self.labels.clone();
        parameters.field_selector = self.fields.clone();
        loop {
            let list = || objects.list(&parameters);
            let page = match api.call(LIST_RETRY_POLICY, self.describe_action("list"), list).await {
                Ok(page) => page,
                Err(error) => return WatchOutcome::list_failed(error),
            };
            for object in page.items {
                take(WatchUpdate::Applied(Box::new(self.with_type_meta(object))));
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_some() {
                continue;
            }
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            let Some(version) = version else {
                let (action, problem) = (self.describe_action("list"), NO_VERSION.to_owned());
                return WatchOutcome::list_failed(ApiError::Unreadable { action, problem });
            };
            take(WatchUpdate::ListCompleted);
            return WatchOutcome::Listed { version };
        }
    }

    /// Watches from a resource version on, until the watch ends or fails.
    async fn watch_from(
        &self,
        api: &KubernetesApi,
        version: String,
        take: &mut impl FnMut(WatchUpdate),
    ) -> WatchOutcome {
        let began = api.clock().monotonic();
        let mut got = WatchProgress { version, has_events: false };
        let ended = self.stream_events(api, &mut got, take).await;
        let duration = api.clock().monotonic().saturating_sub(began);
        let WatchProgress { version, has_events: had_events } = got;
        match ended {
            Ok(()) => WatchOutcome::Ended { version, duration, had_events },
            Err(error) => {
                WatchOutcome::Failed { error, version: Some(version), duration, had_events }
            }
        }
    }

    /// Starts a watch after a refusal, only to see whether it is allowed now.
    async fn retry_refused_watch(&self, api: &KubernetesApi, version: String) -> WatchOutcome {
        match self.start_watch(api, &version).await {
            Ok(_) => WatchOutcome::PermissionRestored,
            Err(error) => {
                let (version, lasted) = (Some(version), Duration::ZERO);
                WatchOutcome::Failed { error, version, duration: lasted, had_events: false }
            }
        }
    }

    /// Starts a watch from a resource version on.
    async fn start_watch(
        &self,
        api: &KubernetesApi,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + use<>, ApiError> {
        let connection = api.connection_to_watch(&self.resource.plural);
        let objects = self.api_for_resource(connection.client());
        // A random timeout, so that watches that started together do not end together.
        let mut parameters = WatchParams::default().timeout(fastrand::u32(WATCH_SECONDS));
        parameters.label_selector = self.labels.clone();
        parameters.field_selector = self.fields.clone();
        let start = || connection.start(objects.watch(&parameters, version));
        api.call(ApiRetryPolicy::SINGLE_ATTEMPT, self.describe_action("watch"), start).await
    }

    /// Passes on the events of one watch until it ends.
    async fn stream_events(
        &self,
        api: &KubernetesApi,
        got: &mut WatchProgress,
        take: &mut impl FnMut(WatchUpdate),
    ) -> Result<(), ApiError> {
        let mut events = std::pin::pin!(self.start_watch(api, &got.version).await?);
        loop {
            let Some(event) = api.with_timeout(MAX_SILENCE, events.next()).await else {
                // The server ends every watch sooner than this: the connection is dead.
                let (action, deadline) = (self.describe_action("watch"), MAX_SILENCE);
                return Err(ApiError::TimedOut { action, deadline });
            };
            let Some(event) = event else { return Ok(()) };
            let event = event.map_err(|error| self.stream_error(&error))?;
            let (update, newer) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let newer = object.metadata.resource_version.clone();
                    (Some(WatchUpdate::Applied(Box::new(self.with_type_meta(object)))), newer)
                }
                WatchEvent::Deleted(object) => {
                    let newer = object.metadata.resource_version.clone();
                    (Some(WatchUpdate::Deleted(Box::new(self.with_type_meta(object)))), newer)
                }
                WatchEvent::Bookmark(mark) => (None, Some(mark.metadata.resource_version)),
                WatchEvent::Error(status) => {
                    return Err(ApiError::of_status(&status, self.describe_action("watch")));
                }
            };
            got.has_events = true;
            if let Some(newer) = newer.filter(|newer| !newer.is_empty()) {
                got.version = newer;
            }
            update.into_iter().for_each(&mut *take);
        }
    }

    /// Converts an error of the event stream. kube turns a line that is no event into an empty status.
    fn stream_error(&self, error: &kube::Error) -> ApiError {
        match error {
            kube::Error::Api(status) if status.code == 0 => {
                let (action, problem) = (self.describe_action("watch"), NOT_AN_EVENT.to_owned());
                ApiError::Unreadable { action, problem }
            }
            error => ApiError::of(error, self.describe_action("watch")),
        }
    }

    fn describe_action(&self, verb: &str) -> String {
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "of all namespaces".to_owned(),
        };
        format!("{verb} {} {place}", self.resource.plural)
    }

    /// Logs a new failure as a warning, a repeated one at debug level.
    fn log_failure(&self, error: &ApiError, should_warn: bool, failures: u32) {
        if should_warn {
            tracing::warn!(kind = self.resource.kind, hint = error.hint().as_deref(), "{error}");
        } else {
            tracing::debug!(kind = self.resource.kind, failures, "{error}");
        }
    }

    fn api_for_resource(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn with_type_meta(&self, object: DynamicObject) -> DynamicObject {
        with_type_meta(&self.resource, object)
    }
}

/// Sets `apiVersion` and `kind` of the object. The items of a list lack them, those of a watch have them.
pub fn with_type_meta(resource: &ApiResource, mut object: DynamicObject) -> DynamicObject {
    let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
    object.types = Some(TypeMeta { api_version, kind });
    object
}

/// The progress of one watch.
struct WatchProgress {
    version: String,
    /// Whether any event arrived.
    has_events: bool,
}

/// The page size of lists; client-go uses the same size.
const PAGE_SIZE: u32 = 500;
/// The policy for each page of a list.
const LIST_RETRY_POLICY: ApiRetryPolicy =
    ApiRetryPolicy { attempt_timeout: Duration::from_mins(1), attempts: 1 };
/// The timeout that the client asks the server to apply to a watch: less than five minutes.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=290;
/// The longest time without an event: the timeout of a watch, and a margin for its end to arrive.
const MAX_SILENCE: Duration = Duration::from_mins(5);
const NOT_AN_EVENT: &str = "a line of the stream is not a watch event";
const NO_VERSION: &str = "the list has no `resourceVersion` to watch from";

#[cfg(test)]
mod tests;
