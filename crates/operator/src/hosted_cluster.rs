//! Writes the operator's own fields of the observed HostedCluster.

use kube::api::{DynamicObject, Patch, PatchParams};
use lanyard_api::HostedCluster;
use serde_json::{Value, json};

use crate::apply::write_fenced;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::lease::FencingToken;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;
use crate::watched_kinds::WatchedKind;

/// The fields to apply.
#[derive(Debug)]
pub(crate) enum HostedClusterFields {
    /// `metadata.finalizers`.
    Finalizers(Value),
    /// Fields of `status`.
    Status(Value),
    /// Fields of `status` that record facts derived from one version of the object. They apply only to that
    /// version, so a late write replaces nothing.
    VersionedStatus { status: Value, version: String },
}

/// Applies fields of the operator; fields of other managers stay. The uid ensures that a deleted object
/// is not created again.
pub(crate) async fn apply_fields(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fencing_token: &FencingToken,
    parameters: &PatchParams,
    fields: HostedClusterFields,
    action: &str,
) -> Result<DynamicObject, FencedWriteError> {
    let key = &observed.key;
    let mut object = json!({
        "apiVersion": HostedCluster::API_VERSION,
        "kind": HostedCluster::KIND,
        "metadata": {
            "namespace": key.namespace(),
            "name": key.name(),
            "uid": observed.cluster.uid,
        },
    });
    let is_status = !matches!(fields, HostedClusterFields::Finalizers(_));
    match fields {
        HostedClusterFields::Finalizers(finalizers) => {
            object["metadata"]["finalizers"] = finalizers;
        }
        HostedClusterFields::Status(status) => object["status"] = status,
        HostedClusterFields::VersionedStatus { status, version } => {
            object["status"] = status;
            object["metadata"]["resourceVersion"] = version.into();
        }
    }
    let subject = WatchedKind::HostedClusters.watched_resource(context.settings.role);
    let clusters = subject.api(context.api.client(), Some(key.namespace()));
    let patch = Patch::Apply(&object);
    let apply = || async {
        if is_status {
            clusters.patch_status(key.name(), parameters, &patch).await
        } else {
            clusters.patch(key.name(), parameters, &patch).await
        }
    };
    let kind_and_verb = (HostedCluster::KIND, WriteVerb::Apply);
    write_fenced(&context.api, fencing_token, &context.metrics, kind_and_verb, action, apply).await
}
