//! The watch of one kind in all namespaces.

use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use kube::api::{ApiResource, DynamicObject, TypeMeta};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use lanyard_desired::{ObservedObject, OwnedKind};
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
    /// The kind cannot be watched now: not served, not allowed, or the API is not reached. How often
    /// in a row it was refused; zero where it was not.
    Broken(ApiError, u32),
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

    /// What we or others make for a hosted cluster.
    pub(crate) fn owned(kind: OwnedKind) -> Self {
        let facts = kind.facts();
        Self::of(facts.api_version, facts.kind, facts.plural)
    }

    /// The objects of the kind, in one namespace or in all.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
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
            Some(name) => config.fields(&of_name(name)),
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
        let mut outage = Outage::default();
        loop {
            let connection = api.connection_to_watch(&self.resource.plural);
            let objects = self.objects(connection.client(), None);
            let mut events = std::pin::pin!(watcher(objects, self.config()));
            loop {
                let event = if outage.failures == 0 {
                    events.next().await
                } else {
                    // A watch that goes on from where it was says nothing about it.
                    let quiet = api.clock().sleep(GOOD_ENOUGH);
                    let Either::Left((event, _)) = select(events.next(), quiet).await else {
                        self.tell_end(&mut outage);
                        continue;
                    };
                    event
                };
                let Some(event) = event else { break };
                let error = match event {
                    Ok(event) => {
                        if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                            self.tell_end(&mut outage);
                        }
                        take(self.seen(event));
                        continue;
                    }
                    Err(error) => self.error_of(&error),
                };
                if !error.is_expiry() {
                    outage.note(&error);
                    metrics.watch_broke(kind);
                    self.tell(&error, outage.failures);
                    take(Seen::Broken(error.clone(), outage.refusals));
                }
                api.clock().sleep(outage.pause(&error, fastrand::f64())).await;
                if outage.refusals > 0 {
                    // Only a list proves that what was refused is not refused any more.
                    break;
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

    fn tell_end(&self, outage: &mut Outage) {
        let Outage { failures, .. } = std::mem::take(outage);
        if failures > 0 {
            tracing::info!(kind = self.resource.kind, failures, "it is watched again");
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

/// The selector of the one object of a name. A list of one is as good as a read, and asks for no other
/// right than the watch does.
pub(crate) fn of_name(name: &str) -> String {
    format!("metadata.name={name}")
}

/// An object that says what it is, as it is compared.
pub(crate) fn observed(object: &DynamicObject) -> Option<ObservedObject> {
    ObservedObject::of(serde_json::to_value(object).ok()?)
}

/// A time in which a watch breaks again and again.
#[derive(Debug, Default)]
struct Outage {
    failures: u32,
    /// How often in a row the kind was refused with the same status.
    refusals: u32,
    refusal: Option<u16>,
}

impl Outage {
    fn note(&mut self, error: &ApiError) {
        self.failures = self.failures.saturating_add(1);
        let refusal = error.refusal();
        let is_the_same = self.refusal == refusal;
        self.refusals = match refusal {
            Some(_) if is_the_same => self.refusals.saturating_add(1),
            Some(_) => 1,
            None => 0,
        };
        self.refusal = refusal;
    }

    /// How long to wait before the next try; never shorter than the API asked for.
    fn pause(&self, error: &ApiError, chance: f64) -> Duration {
        let longest = if error.is_transient() { LONGEST_PAUSE } else { LONGEST_REFUSED };
        let pause = backoff(self.failures.max(1), FIRST_PAUSE, longest, chance);
        error.retry_after().map_or(pause, |asked| pause.max(asked))
    }
}

/// A watch that did not break for so long is as good as one that told something: longer than a
/// connection may take to come about.
const GOOD_ENOUGH: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A kind that is not served may be installed; a right that is missing may be given.
const LONGEST_REFUSED: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
