//! The watch of one kind in all namespaces.

use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, TypeMeta};
use kube::runtime::watcher::{self, watcher};
use lanyard_kubernetes::{ApiError, KubernetesApi, backoff};

use crate::metrics::OperatorMetrics;

/// What is watched.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) resource: ApiResource,
    /// Only objects with these labels.
    pub(crate) labels: Option<&'static str>,
    /// Only objects of this name.
    pub(crate) name: Option<&'static str>,
}

/// What a watch tells.
#[derive(Debug)]
pub(crate) enum Seen {
    /// An object as it is now.
    There(Box<DynamicObject>),
    /// An object that is gone.
    Gone(Box<DynamicObject>),
    /// All objects are told anew from here on.
    Anew,
    /// All objects were told: what was not told since [`Seen::Anew`] is not there.
    Complete,
    /// The kind cannot be watched now: not served, not allowed, or the API is not reached.
    Broken(ApiError),
}

impl Subject {
    pub(crate) fn of(api_version: &str, kind: &str, plural: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        Self { resource, labels: None, name: None }
    }

    pub(crate) const fn labelled(mut self, labels: &'static str) -> Self {
        self.labels = Some(labels);
        self
    }

    /// The right to this name is enough.
    pub(crate) const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    fn config(&self) -> watcher::Config {
        let config = watcher::Config::default();
        let config = match self.labels {
            Some(labels) => config.labels(labels),
            None => config,
        };
        match self.name {
            Some(name) => config.fields(&format!("metadata.name={name}")),
            None => config,
        }
    }

    /// Follows the kind for ever. An object that nobody can read is an object like all others here:
    /// only its metadata has a type.
    pub(crate) async fn follow(
        &self,
        api: &KubernetesApi,
        metrics: &OperatorMetrics,
        kind: &'static str,
        mut take: impl FnMut(Seen),
    ) {
        let mut failures = 0_u32;
        loop {
            let connection = api.connection_to_watch(&self.resource.plural);
            let objects: Api<DynamicObject> =
                Api::all_with(connection.client().clone(), &self.resource);
            let mut events = std::pin::pin!(watcher(objects, self.config()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        if let watcher::Event::InitDone | watcher::Event::Apply(_) = event {
                            failures = 0;
                        }
                        take(self.seen(event));
                    }
                    Err(error) => {
                        let error = self.error_of(&error);
                        if !error.is_expiry() {
                            failures = failures.saturating_add(1);
                            metrics.watch_broke(kind);
                            self.tell(&error, failures);
                            take(Seen::Broken(error.clone()));
                        }
                        let longest =
                            if error.is_transient() { LONGEST_PAUSE } else { LONGEST_REFUSED };
                        let pause = backoff(failures.max(1), FIRST_PAUSE, longest, fastrand::f64());
                        api.clock().sleep(pause).await;
                    }
                }
            }
        }
    }

    /// Once loud, then in the detail.
    fn tell(&self, error: &ApiError, failures: u32) {
        if failures == 1 {
            tracing::warn!(kind = self.resource.kind, hint = error.hint(), "{error}");
        } else {
            tracing::debug!(kind = self.resource.kind, failures, "{error}");
        }
    }

    /// The items of a list do not say what they are, and those of a watch do: both are the same here.
    pub(crate) fn typed(&self, mut object: DynamicObject) -> DynamicObject {
        let (api_version, kind) = (self.resource.api_version.clone(), self.resource.kind.clone());
        object.types = Some(TypeMeta { api_version, kind });
        object
    }

    fn seen(&self, event: watcher::Event<DynamicObject>) -> Seen {
        match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                Seen::There(Box::new(self.typed(object)))
            }
            watcher::Event::Delete(object) => Seen::Gone(Box::new(self.typed(object))),
            watcher::Event::Init => Seen::Anew,
            watcher::Event::InitDone => Seen::Complete,
        }
    }

    fn error_of(&self, error: &watcher::Error) -> ApiError {
        ApiError::of_watch(error, format!("watch {} of all namespaces", self.resource.plural))
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A kind that is not served may be installed; a right that is missing may be given.
const LONGEST_REFUSED: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
