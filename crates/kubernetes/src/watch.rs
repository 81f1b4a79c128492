//! Following the objects of one kind, for ever.
//!
//! The watcher of kube would not do. It begins a watch that ends at once (a proxy that cuts, a server
//! that is overloaded) again at once, as fast as the server answers; it goes on past a line that it
//! cannot read, so that what the line told is never told again; and who only sees its errors cannot
//! tell a list that failed from a watch that did, and so cannot space lists.

mod course;
mod told;

use std::ops::RangeInclusive;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta, WatchEvent, WatchParams};
use kube::{Api, Client};

use self::course::{Course, End};
use self::told::Told;
use crate::call::{ApiError, KubernetesApi, Patience};

/// What is watched: objects of one kind.
#[derive(Debug, Clone)]
pub struct Watch {
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
pub enum Seen {
    /// An object as it is now.
    There(Box<DynamicObject>),
    /// An object that is gone.
    Gone(Box<DynamicObject>),
    /// All objects are told anew from here on.
    Anew,
    /// All objects were told: what was not told since [`Seen::Anew`] is not there.
    Complete,
    /// The kind cannot be watched now: not served, not allowed, or the API is not reached. How often
    /// in a row it was refused; zero where it was not.
    Broken(ApiError, u32),
}

impl Watch {
    /// Follows the kind for ever. An object that nobody can read is an object like all others here:
    /// only its metadata has a type.
    pub async fn follow(&self, api: &KubernetesApi, mut take: impl FnMut(Seen)) {
        let (mut course, mut said) = (Course::default(), Told::default());
        loop {
            let end = match course.version() {
                None => self.list(api, &mut take).await,
                Some(version) if course.is_watch_refused() => self.try_again(api, version).await,
                Some(version) => self.watch(api, version, &mut take).await,
            };
            let (error, before, is_list) =
                (end.error().cloned(), course.failures(), course.version().is_none());
            let pause = course.after(end, fastrand::f64());
            if course.failures() < before {
                tracing::info!(kind = self.resource.kind, failures = before, "it is watched again");
            }
            if let Some(error) = error.filter(|error| !error.is_expiry()) {
                let is_news = said.is_news(&error, is_list, course.failures());
                self.tell(&error, is_news, course.failures());
                take(Seen::Broken(error, course.refusals()));
            }
            if !pause.is_zero() {
                api.clock().sleep(pause).await;
            }
        }
    }

    /// Tells everything there is.
    async fn list(&self, api: &KubernetesApi, take: &mut impl FnMut(Seen)) -> End {
        let connection = api.connection_to_watch(&self.resource.plural);
        let objects = self.objects(connection.client());
        take(Seen::Anew);
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.label_selector = self.labels.clone();
        parameters.field_selector = self.fields.clone();
        loop {
            let list = || objects.list(&parameters);
            let page = match api.call(LISTING, self.action("list"), list).await {
                Ok(page) => page,
                Err(error) => return End::of_list(error),
            };
            for object in page.items {
                take(Seen::There(Box::new(self.typed(object))));
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_some() {
                continue;
            }
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            let Some(version) = version else {
                let (action, problem) = (self.action("list"), NO_VERSION.to_owned());
                return End::of_list(ApiError::Unreadable { action, problem });
            };
            take(Seen::Complete);
            return End::Listed { version };
        }
    }

    /// Tells what becomes of it from a version on.
    async fn watch(
        &self,
        api: &KubernetesApi,
        version: String,
        take: &mut impl FnMut(Seen),
    ) -> End {
        let began = api.clock().monotonic();
        let mut got = Got { version, told: false };
        let ended = self.go_on(api, &mut got, take).await;
        let lasted = api.clock().monotonic().saturating_sub(began);
        let Got { version, told } = got;
        match ended {
            Ok(()) => End::Over { version, lasted, told },
            Err(error) => End::Broken { error, version: Some(version), lasted, told },
        }
    }

    /// Begins a watch that was refused, to see whether it still is.
    async fn try_again(&self, api: &KubernetesApi, version: String) -> End {
        match self.begin(api, &version).await {
            Ok(_) => End::Allowed,
            Err(error) => {
                let (version, lasted) = (Some(version), Duration::ZERO);
                End::Broken { error, version, lasted, told: false }
            }
        }
    }

    /// Begins a watch from a version on.
    async fn begin(
        &self,
        api: &KubernetesApi,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + use<>, ApiError> {
        let connection = api.connection_to_watch(&self.resource.plural);
        let objects = self.objects(connection.client());
        // Those that began together do not end together.
        let mut parameters = WatchParams::default().timeout(fastrand::u32(WATCH_SECONDS));
        parameters.label_selector = self.labels.clone();
        parameters.field_selector = self.fields.clone();
        let start = || connection.begin(objects.watch(&parameters, version));
        api.call(Patience::ONE_TRY, self.action("watch"), start).await
    }

    /// Follows one watch to its end.
    async fn go_on(
        &self,
        api: &KubernetesApi,
        got: &mut Got,
        take: &mut impl FnMut(Seen),
    ) -> Result<(), ApiError> {
        let mut events = std::pin::pin!(self.begin(api, &got.version).await?);
        loop {
            let Some(event) = api.within(LONGEST_SILENCE, events.next()).await else {
                // The server ends every watch in time: this one's connection is dead.
                let (action, deadline) = (self.action("watch"), LONGEST_SILENCE);
                return Err(ApiError::TimedOut { action, deadline });
            };
            let Some(event) = event else { return Ok(()) };
            let event = event.map_err(|error| self.error_of(&error))?;
            let (seen, newer) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let newer = object.metadata.resource_version.clone();
                    (Some(Seen::There(Box::new(self.typed(object)))), newer)
                }
                WatchEvent::Deleted(object) => {
                    let newer = object.metadata.resource_version.clone();
                    (Some(Seen::Gone(Box::new(self.typed(object)))), newer)
                }
                WatchEvent::Bookmark(mark) => (None, Some(mark.metadata.resource_version)),
                WatchEvent::Error(status) => {
                    return Err(ApiError::of_status(&status, self.action("watch")));
                }
            };
            got.told = true;
            if let Some(newer) = newer.filter(|newer| !newer.is_empty()) {
                got.version = newer;
            }
            seen.into_iter().for_each(&mut *take);
        }
    }

    /// What broke a watch. A line that is no event reads as a status that says nothing at all.
    fn error_of(&self, error: &kube::Error) -> ApiError {
        match error {
            kube::Error::Api(status) if status.code == 0 => {
                let (action, problem) = (self.action("watch"), NO_EVENT.to_owned());
                ApiError::Unreadable { action, problem }
            }
            error => ApiError::of(error, self.action("watch")),
        }
    }

    fn action(&self, verb: &str) -> String {
        let place = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "of all namespaces".to_owned(),
        };
        format!("{verb} {} {place}", self.resource.plural)
    }

    /// Loud what is news, else in the detail.
    fn tell(&self, error: &ApiError, is_news: bool, failures: u32) {
        if is_news {
            tracing::warn!(kind = self.resource.kind, hint = error.hint(), "{error}");
        } else {
            tracing::debug!(kind = self.resource.kind, failures, "{error}");
        }
    }

    fn objects(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn typed(&self, object: DynamicObject) -> DynamicObject {
        typed(&self.resource, object)
    }
}

/// The object with its type. The items of a list do not say what they are, and those of a watch do:
/// both are the same here.
pub fn typed(resource: &ApiResource, mut object: DynamicObject) -> DynamicObject {
    let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
    object.types = Some(TypeMeta { api_version, kind });
    object
}

/// How far a watch got.
struct Got {
    version: String,
    /// Whether it told anything.
    told: bool,
}

/// How many objects one answer tells at most, as client-go asks.
const PAGE: u32 = 500;
/// Every page is waited for so long.
const LISTING: Patience = Patience { deadline: Duration::from_mins(1), tries: 1 };
/// How long the server lets a watch live: less than five minutes, as every client asks.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=290;
/// How long a watch may be silent: its life, and some time for its end to arrive.
const LONGEST_SILENCE: Duration = Duration::from_mins(5);
const NO_EVENT: &str = "a line is no event";
const NO_VERSION: &str = "it has no version to watch from";

#[cfg(test)]
mod tests;
