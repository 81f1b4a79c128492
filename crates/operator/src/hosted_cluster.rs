//! Writing to a HostedCluster: only to the one that was looked at, and only fields of ours.

use kube::api::{DynamicObject, Patch, PatchParams};
use lanyard_api::HostedCluster;
use serde_json::{Value, json};

use crate::apply::write;
use crate::context::Context;
use crate::error::WriteError;
use crate::kinds::WatchedKind;
use crate::lease::Fence;
use crate::metrics::Verb;
use crate::observe::Observed;

/// What is applied.
#[derive(Debug)]
pub(crate) enum Fields {
    /// `metadata.finalizers`.
    Finalizers(Value),
    /// Fields of `status`.
    Status(Value),
    /// Fields of `status` that are no wish: what they say is so, and the next look goes on from there.
    /// They replace only what they were concluded from, so that one that arrives late replaces nothing.
    State { status: Value, version: String },
}

/// Applies fields of ours; those of others stay. The uid makes sure that an object that is gone is
/// not made anew.
pub(crate) async fn apply(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
    parameters: &PatchParams,
    fields: Fields,
    action: &str,
) -> Result<DynamicObject, WriteError> {
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
    let is_status = !matches!(fields, Fields::Finalizers(_));
    match fields {
        Fields::Finalizers(finalizers) => object["metadata"]["finalizers"] = finalizers,
        Fields::Status(status) => object["status"] = status,
        Fields::State { status, version } => {
            object["status"] = status;
            object["metadata"]["resourceVersion"] = version.into();
        }
    }
    let subject = WatchedKind::HostedClusters.subject(context.settings.role);
    let clusters = subject.objects(context.api.client(), Some(key.namespace()));
    let patch = Patch::Apply(&object);
    let apply = || async {
        if is_status {
            clusters.patch_status(key.name(), parameters, &patch).await
        } else {
            clusters.patch(key.name(), parameters, &patch).await
        }
    };
    let what = (HostedCluster::KIND, Verb::Apply);
    write(&context.api, fence, &context.metrics, what, action, apply).await
}
