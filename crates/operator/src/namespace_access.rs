//! The operator's own permissions in the namespace of a control plane.
//!
//! The chart grants no write to most kinds in all namespaces. Instead the operator binds itself to
//! [`CONTROL_PLANE_CLUSTER_ROLE`] in each namespace that it creates or that an administrator handed over. The
//! RoleBinding has no owner reference: the operator needs it to write the HostedControlPlane, which owns the
//! other objects. It is deleted with the namespace or, in a namespace that the operator did not create, as
//! the last object.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use lanyard_api::HostedCluster;
use lanyard_clock::Backoff;
use lanyard_desired::objects::{
    ApplyStep, CLUSTER_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, cluster_label,
};
use lanyard_desired::{DesiredObject, ObjectKey, ObjectWriter, OwnedKind};
use lanyard_kubernetes::{ApiRetryPolicy, KubernetesApi};
use serde_json::json;

use crate::apply::ObjectApplier;
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;
use crate::permissions::CONTROL_PLANE_CLUSTER_ROLE;
use crate::settings::ServiceAccountKey;
use crate::watched_resource::WatchedResource;

/// The key of the operator's RoleBinding in the namespace of a control plane.
pub(crate) fn access_binding_key(namespace: &str) -> ObjectKey {
    ObjectKey {
        kind: OwnedKind::RoleBinding,
        namespace: Some(namespace.to_owned()),
        name: CONTROL_PLANE_CLUSTER_ROLE.to_owned(),
    }
}

/// The operator's RoleBinding in the namespace of a control plane.
pub(crate) fn desired_access_binding(
    cluster: &ClusterKey,
    namespace: &str,
    account: &ServiceAccountKey,
) -> DesiredObject {
    let key = access_binding_key(namespace);
    let value = json!({
        "apiVersion": key.kind.info().api_version,
        "kind": key.kind.info().kind,
        "metadata": {
            "name": key.name,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY_VALUE,
                CLUSTER_LABEL: cluster_label(cluster.name()),
            },
            "annotations": {HostedCluster::CLUSTER_ANNOTATION: cluster.to_string()},
        },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": CONTROL_PLANE_CLUSTER_ROLE,
        },
        "subjects": [{
            "kind": "ServiceAccount",
            "name": account.name(),
            "namespace": account.namespace(),
        }],
    });
    DesiredObject {
        key,
        writer: ObjectWriter::HostedCluster,
        step: ApplyStep::NamespaceAccess,
        value,
        keeps_live_vault_reader: false,
    }
}

/// Creates the operator's RoleBinding if the stores lack it.
pub(crate) async fn ensure_access(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    applier: ObjectApplier<'_>,
) -> Result<(), FencedWriteError> {
    let key = access_binding_key(&observed.namespace);
    let is_known = context.stores.uid(&observed.namespace, &key).is_some();
    let Some(account) = context.settings.service_account.as_ref().filter(|_| !is_known) else {
        return Ok(());
    };
    let binding = desired_access_binding(&observed.key, &observed.namespace, account);
    applier.apply_object(&binding, WriteVerb::Create, false).await.map(drop)
}

/// Waits until the API server allows the operator's writes in a namespace, for at most [`MAX_WAIT`]: its authorizer
/// learns of the new RoleBinding through a watch, and forbids them before that.
///
/// After that time the operator writes anyway, and the user sees the response to the write.
pub(crate) async fn wait_until_access_is_granted(api: &KubernetesApi, namespace: &str) {
    let mut last_answer = "no response".to_owned();
    let reviews = review_until_granted(api, namespace, &mut last_answer);
    if api.with_timeout(MAX_WAIT, reviews).await.is_none() {
        let seconds = MAX_WAIT.as_secs();
        tracing::warn!(
            namespace,
            "no access after {seconds} s with a new RoleBinding: {last_answer}"
        );
    }
}

/// Repeats the review of the operator's access until it is granted. Other answers and errors go to `last_answer`.
async fn review_until_granted(api: &KubernetesApi, namespace: &str, last_answer: &mut String) {
    let review = access_review(namespace);
    let reviews = Api::<SelfSubjectAccessReview>::all(api.client().clone());
    let parameters = PostParams::default();
    let action = format!("review the operator's access to namespace {namespace}");
    let policy = ApiRetryPolicy { attempt_timeout: MAX_WAIT, attempts: 1 };
    for reviews_sent in 1.. {
        let mut delay = BACKOFF.delay(reviews_sent);
        match api.call(policy, &action, || reviews.create(&parameters, &review)).await {
            Ok(answer) => {
                let status = answer.status.unwrap_or_default();
                if status.allowed {
                    return;
                }
                let reason = status.reason.filter(|reason| !reason.is_empty());
                *last_answer = reason.unwrap_or_else(|| "the review denies it".to_owned());
            }
            Err(error) => {
                delay = error.retry_class().requested_delay().unwrap_or(delay);
                *last_answer = error.to_string();
            }
        }
        api.clock().sleep(delay).await;
    }
}

/// The review of one permission in a namespace of a control plane. It stands for all of them, because they are
/// granted by one RoleBinding.
fn access_review(namespace: &str) -> SelfSubjectAccessReview {
    let WatchedResource { resource, .. } = WatchedResource::owned(OwnedKind::HostedControlPlane);
    let attributes = ResourceAttributes {
        group: Some(resource.group),
        resource: Some(resource.plural),
        verb: Some("patch".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }
}

/// The longest wait for access, and the delays between reviews.
const MAX_WAIT: Duration = Duration::from_secs(3);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(25), Duration::from_secs(1));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::{ApiPermission, control_plane_permissions};

    #[test]
    fn access_review_names_a_permission_of_the_control_plane_role() {
        let review = access_review("clusters-harbour");
        let attributes = review.spec.resource_attributes.unwrap();
        assert_eq!(attributes.namespace.as_deref(), Some("clusters-harbour"));
        let (group, resource) = (attributes.group.unwrap(), attributes.resource.unwrap());
        let verb = attributes.verb.unwrap();
        let grants_it = |right: &ApiPermission| {
            right.group == group
                && right.resource == resource
                && right.verbs.contains(&verb.as_str())
        };
        assert!(control_plane_permissions().any(grants_it), "{verb} {resource} {group}");
    }

    #[test]
    fn access_binding_names_the_operator_and_its_cluster() {
        let account: ServiceAccountKey = "lanyard/lanyard-operator".parse().unwrap();
        let cluster = ClusterKey::of("clusters", "harbour");
        let binding = desired_access_binding(&cluster, "clusters-harbour", &account);
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {
                "name": "lanyard-control-plane",
                "namespace": "clusters-harbour",
                "labels": {
                    "app.kubernetes.io/managed-by": "lanyard",
                    "lanyard.dev/hosted-cluster": "harbour",
                },
                "annotations": {"hypershift.openshift.io/cluster": "clusters/harbour"},
            },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "lanyard-control-plane",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "lanyard-operator", "namespace": "lanyard"},
            ],
        });
        assert_eq!(binding.value, expected);
        assert_eq!(ObjectKey::from_json(&binding.value), Some(binding.key));
    }
}
