//! Single objects of any kind, as JSON.

use std::fmt;

use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::call::{ApiError, ApiRetryPolicy, KubernetesApi};

/// The kind and the name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectReference {
    /// The version of the API: `v1`, `apps/v1`.
    pub api_version: String,
    /// The kind: `ServiceAccount`.
    pub kind: String,
    /// The namespace; `None` for an object of the cluster.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// Reads and writes objects of any kind whose resource has the regular plural of the kind, such as `ingresses`.
#[derive(Debug, Clone)]
pub struct ObjectClient {
    api: KubernetesApi,
}

impl ObjectClient {
    /// A client with these connections. Sends no request.
    pub const fn new(api: KubernetesApi) -> Self {
        Self { api }
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ApiError`], also if the API server does not serve the kind.
    pub async fn read(&self, object: &ObjectReference) -> Result<Option<Value>, ApiError> {
        let api = self.api_of(object);
        let read = || api.get(&object.name);
        let found =
            self.api.call_optional(ApiRetryPolicy::STANDARD, format!("read {object}"), read);
        found.await?.map(|found| to_json(&found)).transpose()
    }

    /// Creates or changes an object with a server-side apply. Fields that the kind does not have are an error, and so are
    /// fields of other managers, unless the apply takes them.
    ///
    /// # Errors
    ///
    /// [`ApiError::Conflict`] if other managers hold fields of the body with other values.
    pub async fn apply(
        &self,
        object: &ObjectReference,
        body: &Value,
        manager: &str,
        takes_fields: bool,
    ) -> Result<Value, ApiError> {
        let api = self.api_of(object);
        let mut parameters = PatchParams::apply(manager).validation_strict();
        parameters.force = takes_fields;
        let patch = Patch::Apply(body);
        let apply = || api.patch(&object.name, &parameters, &patch);
        let action = format!("apply {object}");
        to_json(&self.api.call(ApiRetryPolicy::STANDARD, action, apply).await?)
    }

    /// Replaces an existing object, if it still has the `resourceVersion` of the body.
    ///
    /// # Errors
    ///
    /// [`ApiError`], also if the object has changed or does not exist.
    pub async fn replace(
        &self,
        object: &ObjectReference,
        body: &Value,
        manager: &str,
    ) -> Result<Value, ApiError> {
        let api = self.api_of(object);
        let action = format!("replace {object}");
        let content = serde_json::from_value(body.clone());
        let content: DynamicObject =
            content.map_err(|source| ApiError::of(&kube::Error::SerdeError(source), &action))?;
        let parameters =
            PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        let replace = || api.replace(&object.name, &parameters, &content);
        to_json(&self.api.call(ApiRetryPolicy::STANDARD, action, replace).await?)
    }

    /// Deletes the object with this uid. An object that stays until its finalizers are done is returned with its
    /// `deletionTimestamp`.
    ///
    /// # Errors
    ///
    /// [`ApiError`], also if the object has another uid or does not exist.
    pub async fn delete(
        &self,
        object: &ObjectReference,
        uid: &str,
    ) -> Result<Option<Value>, ApiError> {
        let api = self.api_of(object);
        let uid = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams::background().preconditions(uid);
        let delete = || api.delete(&object.name, &parameters);
        let action = format!("delete {object}");
        let remaining = self.api.call(ApiRetryPolicy::STANDARD, action, delete).await?.left();
        remaining.map(|remaining| to_json(&remaining)).transpose()
    }

    /// The API of the object's kind.
    fn api_of(&self, object: &ObjectReference) -> Api<DynamicObject> {
        let (group, version) =
            object.api_version.split_once('/').unwrap_or(("", &object.api_version));
        let kind = GroupVersionKind::gvk(group, version, &object.kind);
        let (client, resource) = (self.api.client().clone(), ApiResource::from_gvk(&kind));
        match &object.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }
}

impl fmt::Display for ObjectReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        match namespace {
            Some(namespace) => write!(formatter, "{kind} {namespace}/{name}"),
            None => write!(formatter, "{kind} {name}"),
        }
    }
}

fn to_json(object: &impl serde::Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(object)
        .map_err(|source| ApiError::of(&kube::Error::SerdeError(source), "read an object"))
}
