//! The requested and watched resources, and the parsing of their objects.

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use lanyard_desired::{ObservedObject, OwnedKind};
use lanyard_kubernetes::{ResourceWatch, with_type_meta};

/// A resource with the filter of its watch.
#[derive(Debug, Clone)]
pub(crate) struct WatchedResource {
    pub(crate) resource: ApiResource,
    /// A label selector.
    pub(crate) labels: Option<&'static str>,
    /// The name of the only watched object.
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

    /// A kind whose objects the operator or another controller creates for a hosted cluster.
    pub(crate) fn owned(kind: OwnedKind) -> Self {
        let info = kind.info();
        Self::of(info.api_version, info.kind, info.plural)
    }

    /// The API of the resource, in one namespace or in all.
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

    /// Restricts the watch to one name; a permission with `resourceNames` is then sufficient.
    pub(crate) const fn with_name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// The watch of the resource.
    pub(crate) fn to_watch(&self) -> ResourceWatch {
        ResourceWatch {
            resource: self.resource.clone(),
            namespace: None,
            labels: self.labels.map(str::to_owned),
            fields: self.name.map(name_selector),
        }
    }

    /// Sets `apiVersion` and `kind` of the object.
    pub(crate) fn with_type_meta(&self, object: DynamicObject) -> DynamicObject {
        with_type_meta(&self.resource, object)
    }
}

/// The field selector for one name. A list with it replaces a read, and needs no other permission than
/// the watch.
pub(crate) fn name_selector(name: &str) -> String {
    format!("metadata.name={name}")
}

/// Converts an object with type metadata for the comparison.
pub(crate) fn observed_object(object: &DynamicObject) -> Option<ObservedObject> {
    ObservedObject::from_json(serde_json::to_value(object).ok()?)
}
