//! The kinds that are asked for and watched, and how their objects are read.

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use lanyard_desired::{ObservedObject, OwnedKind};
use lanyard_kubernetes::{ResourceWatch, with_type_meta};

/// What is watched.
#[derive(Debug, Clone)]
pub(crate) struct WatchedResource {
    pub(crate) resource: ApiResource,
    /// Only objects with these labels.
    pub(crate) labels: Option<&'static str>,
    /// Only objects of this name.
    pub(crate) name: Option<&'static str>,
}

impl WatchedResource {
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
        let facts = kind.info();
        Self::of(facts.api_version, facts.kind, facts.plural)
    }

    /// The objects of the kind, in one namespace or in all.
    pub(crate) fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    pub(crate) const fn with_labels(mut self, labels: &'static str) -> Self {
        self.labels = Some(labels);
        self
    }

    /// The right to this name is enough.
    pub(crate) const fn with_name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// How it is followed.
    pub(crate) fn to_watch(&self) -> ResourceWatch {
        ResourceWatch {
            resource: self.resource.clone(),
            namespace: None,
            labels: self.labels.map(str::to_owned),
            fields: self.name.map(name_selector),
        }
    }

    /// The object with its type.
    pub(crate) fn with_type_meta(&self, object: DynamicObject) -> DynamicObject {
        with_type_meta(&self.resource, object)
    }
}

/// The selector of the one object of a name. A list of one is as good as a read, and asks for no other
/// right than the watch does.
pub(crate) fn name_selector(name: &str) -> String {
    format!("metadata.name={name}")
}

/// An object that says what it is, as it is compared.
pub(crate) fn observed_object(object: &DynamicObject) -> Option<ObservedObject> {
    ObservedObject::from_json(serde_json::to_value(object).ok()?)
}
