//! The owner of a control-plane namespace.
//!
//! The namespace name follows from the HostedCluster, so every user who may create HostedClusters chooses
//! it: `kube/system` maps to `kube-system`. The operator therefore writes to a namespace only if it
//! created the namespace for this cluster or if an administrator handed it over, and deletes the
//! namespace only if it created it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::objects::{MANAGED_BY_LABEL, MANAGED_BY_VALUE};
use lanyard_desired::{ObjectWriter, OwnedKind};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};

use crate::apply::ObjectApplier;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::metrics::WriteVerb;
use crate::observe::{ObservedCluster, namespace_key};
use crate::settings::OperatorRole;
use crate::watched_resource::{WatchedResource, name_selector};

/// Annotation of a namespace that the operator created for a cluster and deletes with it.
pub(crate) const CREATED_ANNOTATION: &str = "lanyard.dev/created";

/// The owner of a control-plane namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamespaceOwner {
    /// Not checked yet.
    Unchecked,
    /// The check failed.
    Unknown(ApiError),
    /// The namespace does not exist.
    Absent,
    /// The namespace belongs to this cluster.
    Ours,
    /// The namespace exists for another purpose.
    Foreign,
}

/// The labels and annotations that mark the owner of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnershipMarks {
    /// The cluster that the annotation names.
    cluster_annotation: Option<String>,
    is_of_control_plane: bool,
    is_created: bool,
}

impl OwnershipMarks {
    /// Reads the marks of a namespace.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let is_created = annotation(CREATED_ANNOTATION).is_some();
        Self {
            cluster_annotation: annotation(HostedCluster::CLUSTER_ANNOTATION).map(str::to_owned),
            is_of_control_plane: is_created
                || label(HostedControlPlane::CONTROL_PLANE_LABEL).is_some()
                || label(MANAGED_BY_LABEL) == Some(MANAGED_BY_VALUE),
            is_created,
        }
    }

    /// Whether the operator created the namespace.
    pub(crate) const fn is_created(&self) -> bool {
        self.is_created
    }

    /// The owner relative to a cluster, written as `<namespace>/<name>`.
    pub(crate) fn owner_for(&self, cluster: &str) -> NamespaceOwner {
        let is_ours =
            self.is_of_control_plane && self.cluster_annotation.as_deref() == Some(cluster);
        if is_ours { NamespaceOwner::Ours } else { NamespaceOwner::Foreign }
    }
}

/// Reads a namespace that is not in the store: only labelled namespaces are watched.
pub(crate) async fn read_namespace_owner(
    context: &ReconcileContext,
    observed: &mut ObservedCluster,
) {
    if context.settings.role == OperatorRole::IdentityOnly
        || observed.namespace_owner != NamespaceOwner::Unchecked
    {
        return;
    }
    let namespaces = WatchedResource::owned(OwnedKind::Namespace).api(context.api.client(), None);
    let name = &observed.namespace;
    let parameters = ListParams::default().fields(&name_selector(name));
    let list = || namespaces.list_metadata(&parameters);
    let found =
        context.api.call(ApiRetryPolicy::STANDARD, format!("list Namespace {name}"), list).await;
    observed.namespace_owner = match found.map(|found| found.items) {
        Ok(found) => {
            let found = found.iter().find(|it| it.metadata.name.as_ref() == Some(name));
            let key = observed.key.to_string();
            found.map_or(NamespaceOwner::Absent, |found| {
                OwnershipMarks::of(&found.metadata).owner_for(&key)
            })
        }
        Err(error) => NamespaceOwner::Unknown(error),
    };
}

/// Creates the namespace of a control plane. It uses create instead of apply, so that a namespace that
/// another client creates at the same time is not adopted.
pub(crate) async fn create_namespace(
    observed: &ObservedCluster,
    applier: ObjectApplier<'_>,
) -> Result<(), FencedWriteError> {
    let key = namespace_key(&observed.namespace);
    let annotations = [
        (CREATED_ANNOTATION.to_owned(), "true".to_owned()),
        (HostedCluster::CLUSTER_ANNOTATION.to_owned(), observed.key.to_string()),
    ];
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        annotations: Some(BTreeMap::from(annotations)),
        ..ObjectMeta::default()
    };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let namespaces: Api<Namespace> = Api::all(applier.api.client().clone());
    let field_manager = Some(ObjectWriter::HostedCluster.field_manager().to_owned());
    let parameters = PostParams { field_manager, ..PostParams::default() };
    let create = || namespaces.create(&parameters, &namespace);
    let action = format!("create {key}");
    applier.write_object(&key, WriteVerb::Create, &action, create).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> OwnershipMarks {
        let map = |entries: &[(&str, &str)]| {
            let entries =
                entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(entries.collect::<BTreeMap<_, _>>())
        };
        let (labels, annotations) = (map(labels), map(annotations));
        OwnershipMarks::of(&ObjectMeta { labels, annotations, ..ObjectMeta::default() })
    }

    #[test]
    fn namespace_is_owned_only_with_annotation_and_label() {
        const NAMED: (&str, &str) = (HostedCluster::CLUSTER_ANNOTATION, "kube/system");
        const OTHER: (&str, &str) = (HostedCluster::CLUSTER_ANNOTATION, "kube/other");
        let created = (CREATED_ANNOTATION, "true");
        let (reference, ours) = (
            (HostedControlPlane::CONTROL_PLANE_LABEL, "true"),
            (MANAGED_BY_LABEL, MANAGED_BY_VALUE),
        );
        let cases: [(&[_], &[_], NamespaceOwner); 10] = [
            (&[], &[], NamespaceOwner::Foreign),
            (&[], &[NAMED], NamespaceOwner::Foreign),
            (&[reference], &[], NamespaceOwner::Foreign),
            (&[ours], &[], NamespaceOwner::Foreign),
            (&[(MANAGED_BY_LABEL, "Helm")], &[NAMED], NamespaceOwner::Foreign),
            (&[reference, ours], &[OTHER, created], NamespaceOwner::Foreign),
            (&[], &[created], NamespaceOwner::Foreign),
            (&[reference], &[NAMED], NamespaceOwner::Ours),
            (&[ours], &[NAMED], NamespaceOwner::Ours),
            // Created, but not applied yet.
            (&[], &[NAMED, created], NamespaceOwner::Ours),
        ];
        for (labels, annotations, expected) in cases {
            let owner = marks(labels, annotations).owner_for("kube/system");
            assert_eq!(owner, expected, "{labels:?} {annotations:?}");
        }
        // A namespace that was handed over is not deleted.
        assert!(!marks(&[reference, ours], &[NAMED]).is_created());
        assert!(marks(&[reference, ours], &[NAMED, created]).is_created());
    }
}
