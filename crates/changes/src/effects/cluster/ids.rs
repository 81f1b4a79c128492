//! The ids of resources in a Kubernetes cluster.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use lanyard_kubernetes::ObjectReference;

use crate::resource_id::ResourceId;

const KUBERNETES: &str = "kubernetes:";
const HELM: &str = "helm:";

/// Stands for the namespace of an object that has none. No namespace can have this name.
const NO_NAMESPACE: &str = "_";

/// The id of a Kubernetes object: `kubernetes:<cluster>/<apiVersion>/<kind>/<namespace>/<name>`, with `_` for the slash
/// of the API version, and in place of the namespace of an object that has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesObjectId {
    /// The caller's name of the cluster, without a slash.
    pub cluster: String,
    /// The kind and the name of the object.
    pub object: ObjectReference,
}

impl KubernetesObjectId {
    /// Parses an id; `None` if it is not one of a Kubernetes object.
    pub fn parse(id: &ResourceId) -> Option<Self> {
        let [cluster, api_version, kind, namespace, name] = segments(id, KUBERNETES)?;
        let object = ObjectReference {
            api_version: api_version.replace('_', "/"),
            kind: kind.to_owned(),
            namespace: (namespace != NO_NAMESPACE).then(|| namespace.to_owned()),
            name: name.to_owned(),
        };
        Some(Self { cluster: cluster.to_owned(), object })
    }

    /// The object with this id, which must be one of this cluster.
    pub(super) fn object_of(
        cluster: &str,
        id: &ResourceId,
    ) -> Result<ObjectReference, OtherClusterError> {
        let parsed = Self::parse(id).filter(|it| it.cluster == cluster);
        let error = || OtherClusterError { id: id.clone(), cluster: cluster.to_owned() };
        parsed.map(|it| it.object).ok_or_else(error)
    }

    /// Whether the object is a namespace.
    pub(super) fn is_namespace(&self) -> bool {
        self.object.api_version == "v1" && self.object.kind == "Namespace"
    }
}

impl From<&KubernetesObjectId> for ResourceId {
    fn from(id: &KubernetesObjectId) -> Self {
        let KubernetesObjectId { cluster, object } = id;
        let (api_version, kind) = (object.api_version.replace('/', "_"), &object.kind);
        let namespace = object.namespace.as_deref().unwrap_or(NO_NAMESPACE);
        Self::from(format!(
            "{KUBERNETES}{cluster}/{api_version}/{kind}/{namespace}/{}",
            object.name
        ))
    }
}

/// The id of a Helm release: `helm:<cluster>/<namespace>/<release>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmReleaseId {
    /// The caller's name of the cluster, without a slash.
    pub cluster: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The name of the release.
    pub name: String,
}

impl HelmReleaseId {
    /// Parses an id; `None` if it is not one of a Helm release.
    pub fn parse(id: &ResourceId) -> Option<Self> {
        let [cluster, namespace, name] = segments(id, HELM)?.map(str::to_owned);
        Some(Self { cluster, namespace, name })
    }

    /// The release with this id, which must be one of this cluster.
    pub(super) fn of(cluster: &str, id: &ResourceId) -> Result<Self, OtherClusterError> {
        let parsed = Self::parse(id).filter(|it| it.cluster == cluster);
        parsed.ok_or_else(|| OtherClusterError { id: id.clone(), cluster: cluster.to_owned() })
    }
}

impl From<&HelmReleaseId> for ResourceId {
    fn from(id: &HelmReleaseId) -> Self {
        Self::from(format!("{HELM}{}/{}/{}", id.cluster, id.namespace, id.name))
    }
}

/// The segments of an id. A journal that another person changed could otherwise have names that are flags of Helm, or end
/// the path of a URL.
fn segments<'a, const N: usize>(id: &'a ResourceId, scheme: &str) -> Option<[&'a str; N]> {
    let is_name = |part: &&str| {
        let is_allowed = |it: char| it.is_ascii_alphanumeric() || "-._:".contains(it);
        !part.is_empty() && !part.starts_with(['.', '-']) && part.chars().all(is_allowed)
    };
    let parts: Vec<_> = id.as_str().strip_prefix(scheme)?.split('/').collect();
    let parts = parts.iter().all(is_name).then_some(parts)?;
    parts.try_into().ok()
}

/// The id is not one of this cluster. Another person can have changed the journal.
#[derive(Debug, thiserror::Error)]
#[error("`{id}` is not a resource of the cluster `{cluster}`")]
pub struct OtherClusterError {
    /// The id.
    pub id: ResourceId,
    /// The name of the cluster.
    pub cluster: String,
}

impl ErrorHint for OtherClusterError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("check who can write to the journal".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_printed_as_they_are_parsed() {
        for id in [
            "kubernetes:weu/v1/ServiceAccount/shop/api",
            "kubernetes:weu/v1/Namespace/_/shop",
            "kubernetes:weu/rbac.authorization.k8s.io_v1/ClusterRole/_/system:reader",
        ] {
            let parsed = KubernetesObjectId::parse(&ResourceId::from(id.to_owned())).unwrap();
            assert_eq!(ResourceId::from(&parsed).as_str(), id);
        }
        let id = ResourceId::from("helm:weu/shop/api".to_owned());
        let parsed = HelmReleaseId::parse(&id).unwrap();
        assert_eq!(ResourceId::from(&parsed).as_str(), id.as_str());
        assert_eq!((parsed.namespace.as_str(), id.group(), id.name()), ("shop", "helm", "api"));
    }

    #[test]
    fn other_ids_are_not_parsed() {
        for id in [
            "kubernetes:weu/v1/ServiceAccount/api",
            "kubernetes:weu/v1/ServiceAccount//api",
            "kubernetes:weu/apps/v1/Deployment/shop/api",
            "helm:weu/shop",
            "helm:weu/shop/--kubeconfig",
            "kubernetes:weu/v1/ConfigMap/shop/..",
            "kubernetes:weu/v1/ConfigMap/shop/a?dryRun=All",
            "/subscriptions/s",
        ] {
            let id = ResourceId::from(id.to_owned());
            assert_eq!((KubernetesObjectId::parse(&id), HelmReleaseId::parse(&id)), (None, None));
        }
        let deployment = ResourceId::from("kubernetes:weu/apps_v1/Deployment/shop/api".to_owned());
        let object = KubernetesObjectId::parse(&deployment).unwrap().object;
        assert_eq!(
            (object.api_version.as_str(), object.to_string().as_str()),
            ("apps/v1", "Deployment shop/api")
        );
    }
}
