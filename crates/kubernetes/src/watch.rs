//! Following the objects of one kind, for ever.
//!
//! The watcher of kube would not do. It begins a watch that ends at once (a proxy that cuts, a server
//! that is overloaded) again at once, as fast as the server answers; it goes on past a line that it
//! cannot read, so that what the line told is never told again; and who only sees its errors cannot
//! tell a list that failed from a watch that did, and so cannot space lists.

mod cursor;
mod failure_log;

use std::ops::RangeInclusive;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams};
use kube::{Api, Client};

use self::cursor::{WatchCursor, WatchOutcome};
use self::failure_log::LoggedFailure;
use crate::call::{ApiError, ApiRetryPolicy, KubernetesApi};

/// What is watched: objects of one kind.
#[derive(Debug, Clone)]
pub struct ResourceWatch {
    /// The kind.
    pub resource: ApiResource,
    /// Only objects in this namespace: the rights in it are enough.
    pub namespace: Option<String>,
    /// Only objects with these labels.
    pub labels: Option<String>,
    /// Only objects with these fields.
    pub fields: Option<String>,
}

/// What a watch tells.
#[derive(Debug)]
pub enum WatchUpdate {
    /// An object as it is now.
    Applied(Box<DynamicObject>),
    /// An object that is gone.
    Deleted(Box<DynamicObject>),
    /// All objects are told anew from here on.
    ListStarted,
    /// All objects were told: what was not told since [`WatchUpdate::ListStarted`] is not there.
    ListCompleted,
    /// The kind cannot be watched now: not served, not allowed, or the API is not reached. How often
    /// in a row it was refused; zero where it was not.
    Failed(ApiError, u32),
}

impl ResourceWatch {
    /// Follows the kind for ever. An object that nobody can read is an object like all others here:
    /// only its metadata has a type.
    pub async fn follow(&self, api: &KubernetesApi, mut take: impl FnMut(WatchUpdate)) {
        let (mut course, mut said) = (WatchCursor::default(), LoggedFailure::default());
        loop {
            let end = match course.version() {
                None => self.list_all(api, &mut take).await,
                Some(version) if course.is_watch_refused() => {
                    self.retry_refused_watch(api, version).await
                }
                Some(version) => self.watch_from(api, version, &mut take).await,
            };
            let (error, before, is_list) =
                (end.error().cloned(), course.failures(), course.version().is_none());
            let pause = course.record_outcome(end, fastrand::f64());
            if course.failures() < before {
                tracing::info!(kind = self.resource.kind, failures = before, "it is watched again");
            }
            if let Some(error) = error.filter(|error| !error.is_expired()) {
                let is_news = said.should_log(&error, is_list, course.failures());
                self.log_failure(&error, is_news, course.failures());
                take(WatchUpdate::Failed(error, course.refusals()));
            }
            if !pause.is_zero() {
                api.clock().sleep(pause).await;
            }
        }
    }

    /// Tells everything there is.
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

    /// Tells what becomes of it from a version on.
    async fn watch_from(
        &self,
        api: &KubernetesApi,
        version: String,
        take: &mut impl FnMut(WatchUpdate),
    ) -> WatchOutcome {
        let began = api.clock().monotonic();
        let mut got = WatchProgress { version, has_events: false };
        let ended = self.stream_events(api, &mut got, take).await;
        let lasted = api.clock().monotonic().saturating_sub(began);
        let WatchProgress { version, has_events: told } = got;
        match ended {
            Ok(()) => WatchOutcome::Ended { version, duration: lasted, had_events: told },
            Err(error) => WatchOutcome::Failed {
                error,
                version: Some(version),
                duration: lasted,
                had_events: told,
            },
        }
    }

    /// Begins a watch that was refused, to see whether it still is.
    async fn retry_refused_watch(&self, api: &KubernetesApi, version: String) -> WatchOutcome {
        match self.start_watch(api, &version).await {
            Ok(_) => WatchOutcome::PermissionRestored,
            Err(error) => {
                let (version, lasted) = (Some(version), Duration::ZERO);
                WatchOutcome::Failed { error, version, duration: lasted, had_events: false }
            }
        }
    }

    /// Begins a watch from a version on.
    async fn start_watch(
        &self,
        api: &KubernetesApi,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + use<>, ApiError> {
        let connection = api.connection_to_watch(&self.resource.plural);
        let objects = self.api_for_resource(connection.client());
        // Those that began together do not end together.
        let mut parameters = WatchParams::default().timeout(fastrand::u32(WATCH_SECONDS));
        parameters.label_selector = self.labels.clone();
        parameters.field_selector = self.fields.clone();
        let start = || connection.start(objects.watch(&parameters, version));
        api.call(ApiRetryPolicy::SINGLE_ATTEMPT, self.describe_action("watch"), start).await
    }

    /// Follows one watch to its end.
    async fn stream_events(
        &self,
        api: &KubernetesApi,
        got: &mut WatchProgress,
        take: &mut impl FnMut(WatchUpdate),
    ) -> Result<(), ApiError> {
        let mut events = std::pin::pin!(self.start_watch(api, &got.version).await?);
        loop {
            let Some(event) = api.with_timeout(MAX_SILENCE, events.next()).await else {
                // The server ends every watch in time: this one's connection is dead.
                let (action, deadline) = (self.describe_action("watch"), MAX_SILENCE);
                return Err(ApiError::TimedOut { action, deadline });
            };
            let Some(event) = event else { return Ok(()) };
            let event = event.map_err(|error| self.stream_error(&error))?;
            let (seen, newer) = match event {
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
            seen.into_iter().for_each(&mut *take);
        }
    }

    /// What broke a watch. A line that is no event reads as a status that says nothing at all.
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

    /// Loud what is news, else in the detail.
    fn log_failure(&self, error: &ApiError, is_news: bool, failures: u32) {
        if is_news {
            tracing::warn!(kind = self.resource.kind, hint = error.hint(), "{error}");
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

/// The object with its type. The items of a list do not say what they are, and those of a watch do:
/// both are the same here.
pub fn with_type_meta(resource: &ApiResource, mut object: DynamicObject) -> DynamicObject {
    let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
    object.types = Some(TypeMeta { api_version, kind });
    object
}

/// How far a watch got.
struct WatchProgress {
    version: String,
    /// Whether it told anything.
    has_events: bool,
}

/// How many objects one answer tells at most, as client-go asks.
const PAGE_SIZE: u32 = 500;
/// Every page is waited for so long.
const LIST_RETRY_POLICY: ApiRetryPolicy =
    ApiRetryPolicy { attempt_timeout: Duration::from_mins(1), attempts: 1 };
/// How long the server lets a watch live: less than five minutes, as every client asks.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=290;
/// How long a watch may be silent: its life, and some time for its end to arrive.
const MAX_SILENCE: Duration = Duration::from_mins(5);
const NOT_AN_EVENT: &str = "a line is no event";
const NO_VERSION: &str = "it has no version to watch from";

#[cfg(test)]
mod tests;
