//! The operator's own permissions in the namespace of a control plane.
//!
//! The chart grants no write to most kinds in all namespaces. Instead the operator binds itself to
//! [`CONTROL_PLANE_CLUSTER_ROLE`] in each namespace that it creates or that an administrator handed over. The
//! RoleBinding has no owner reference: the operator needs it to write the HostedControlPlane, which owns the
//! other objects. It is deleted with the namespace or, in a namespace that the operator did not create, as
//! the last object.

use lanyard_api::HostedCluster;
use lanyard_desired::objects::{
    ApplyStep, CLUSTER_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, cluster_label,
};
use lanyard_desired::{DesiredObject, ObjectKey, ObjectWriter, OwnedKind};
use serde_json::json;

use crate::apply::ObjectApplier;
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;
use crate::permissions::CONTROL_PLANE_CLUSTER_ROLE;
use crate::settings::ServiceAccountKey;

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

/// Creates the operator's RoleBinding if the stores lack it. Returns the applier for the writes that need it.
pub(crate) async fn ensure_access<'a>(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    applier: ObjectApplier<'a>,
) -> Result<ObjectApplier<'a>, FencedWriteError> {
    let key = access_binding_key(&observed.namespace);
    let is_known = context.stores.uid(&observed.namespace, &key).is_some();
    let Some(account) = context.settings.service_account.as_ref().filter(|_| !is_known) else {
        return Ok(applier);
    };
    let binding = desired_access_binding(&observed.key, &observed.namespace, account);
    applier.apply_object(&binding, WriteVerb::Create, false).await?;
    Ok(applier.with_new_access())
}

#[cfg(test)]
mod tests {
    use super::*;

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
