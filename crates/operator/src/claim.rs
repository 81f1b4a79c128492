//! Whose the namespace of a control plane is.
//!
//! The name follows from that of the HostedCluster, and whoever may make HostedClusters chooses it:
//! `kube/system` comes to `kube-system`. So a namespace is written only where it was made for the
//! cluster or handed over to it, and deleted at the end only where it was made here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::objects::{MANAGED_BY, MANAGED_BY_LABEL};
use lanyard_desired::{OwnedKind, Writer};
use lanyard_kubernetes::{ApiError, Patience};

use crate::apply::Applier;
use crate::context::Context;
use crate::error::WriteError;
use crate::metrics::Verb;
use crate::observe::{Observed, namespace_key};
use crate::settings::Role;
use crate::subject::{Subject, of_name};

/// Annotation of a namespace that was made for a cluster, and goes with it.
pub(crate) const CREATED: &str = "lanyard.dev/created";

/// What stands where the namespace of a control plane belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody looked.
    Unasked,
    /// Nobody can tell.
    Unknown(ApiError),
    /// Nothing.
    Free,
    /// The namespace of this cluster.
    Ours,
    /// A namespace that somebody made for something else.
    Foreign,
}

/// What a namespace says about whose it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The cluster that it is said to be of.
    cluster: Option<String>,
    is_of_control_plane: bool,
    is_created: bool,
}

impl Marks {
    /// The marks of a namespace.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let is_created = annotation(CREATED).is_some();
        Self {
            cluster: annotation(HostedCluster::CLUSTER_ANNOTATION).map(str::to_owned),
            is_of_control_plane: is_created
                || label(HostedControlPlane::CONTROL_PLANE_LABEL).is_some()
                || label(MANAGED_BY_LABEL) == Some(MANAGED_BY),
            is_created,
        }
    }

    /// Whether it was made by the operator.
    pub(crate) const fn is_created(&self) -> bool {
        self.is_created
    }

    /// What the namespace is for a cluster: `<namespace>/<name>`.
    pub(crate) fn claim(&self, cluster: &str) -> Claim {
        let is_ours = self.is_of_control_plane && self.cluster.as_deref() == Some(cluster);
        if is_ours { Claim::Ours } else { Claim::Foreign }
    }
}

/// Finds out whose a namespace is that no watch tells of: only what bears our label is watched.
pub(crate) async fn find_out(context: &Context, observed: &mut Observed) {
    if context.settings.role == Role::IdentityOnly || observed.claim != Claim::Unasked {
        return;
    }
    let namespaces = Subject::owned(OwnedKind::Namespace).objects(context.api.client(), None);
    let name = &observed.namespace;
    let parameters = ListParams::default().fields(&of_name(name));
    let list = || namespaces.list_metadata(&parameters);
    let found = context.api.call(Patience::USUAL, format!("list Namespace {name}"), list).await;
    observed.claim = match found.map(|found| found.items) {
        Ok(found) => {
            let found = found.iter().find(|it| it.metadata.name.as_ref() == Some(name));
            let key = observed.key.to_string();
            found.map_or(Claim::Free, |found| Marks::of(&found.metadata).claim(&key))
        }
        Err(error) => Claim::Unknown(error),
    };
}

/// Makes the namespace of a control plane. It is created and not applied, so that one that somebody
/// else makes in the same moment is not taken for ours.
pub(crate) async fn create_namespace(
    observed: &Observed,
    applier: Applier<'_>,
) -> Result<(), WriteError> {
    let key = namespace_key(&observed.namespace);
    let annotations = [
        (CREATED.to_owned(), "true".to_owned()),
        (HostedCluster::CLUSTER_ANNOTATION.to_owned(), observed.key.to_string()),
    ];
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        annotations: Some(BTreeMap::from(annotations)),
        ..ObjectMeta::default()
    };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let namespaces: Api<Namespace> = Api::all(applier.api.client().clone());
    let field_manager = Some(Writer::HostedCluster.field_manager().to_owned());
    let parameters = PostParams { field_manager, ..PostParams::default() };
    let create = || namespaces.create(&parameters, &namespace);
    let action = format!("create {key}");
    applier.write(&key, Verb::Create, &action, create).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Marks {
        let map = |entries: &[(&str, &str)]| {
            let entries =
                entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Some(entries.collect::<BTreeMap<_, _>>())
        };
        let (labels, annotations) = (map(labels), map(annotations));
        Marks::of(&ObjectMeta { labels, annotations, ..ObjectMeta::default() })
    }

    #[test]
    fn a_namespace_is_that_of_a_cluster_only_if_it_says_so_in_both_ways() {
        const NAMED: (&str, &str) = (HostedCluster::CLUSTER_ANNOTATION, "kube/system");
        const OTHER: (&str, &str) = (HostedCluster::CLUSTER_ANNOTATION, "kube/other");
        let created = (CREATED, "true");
        let (reference, ours) =
            ((HostedControlPlane::CONTROL_PLANE_LABEL, "true"), (MANAGED_BY_LABEL, MANAGED_BY));
        let cases: [(&[_], &[_], Claim); 10] = [
            (&[], &[], Claim::Foreign),
            (&[], &[NAMED], Claim::Foreign),
            (&[reference], &[], Claim::Foreign),
            (&[ours], &[], Claim::Foreign),
            (&[(MANAGED_BY_LABEL, "Helm")], &[NAMED], Claim::Foreign),
            (&[reference, ours], &[OTHER, created], Claim::Foreign),
            (&[], &[created], Claim::Foreign),
            (&[reference], &[NAMED], Claim::Ours),
            (&[ours], &[NAMED], Claim::Ours),
            // Made, and not applied yet.
            (&[], &[NAMED, created], Claim::Ours),
        ];
        for (labels, annotations, expected) in cases {
            let claim = marks(labels, annotations).claim("kube/system");
            assert_eq!(claim, expected, "{labels:?} {annotations:?}");
        }
        // What was handed over stays at the end.
        assert!(!marks(&[reference, ours], &[NAMED]).is_created());
        assert!(marks(&[reference, ours], &[NAMED, created]).is_created());
    }
}
