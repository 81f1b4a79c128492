//! Our finalizer of a HostedCluster: it stays until what was made for it is gone.

use kube::api::{Patch, PatchParams};
use lanyard_api::HostedCluster;
use lanyard_desired::Writer;
use serde_json::{Value, json};

use crate::apply::write;
use crate::context::Context;
use crate::error::WriteError;
use crate::lease::Fence;
use crate::metrics::Verb;
use crate::observe::Observed;

/// Our finalizer. The one of HyperShift is not ours, and stays as it is.
pub const FINALIZER: &str = "lanyard.dev/finalizer";

/// Whether a cluster waits for us before it goes.
pub(crate) fn is_held(observed: &Observed) -> bool {
    observed.cluster.finalizers.iter().any(|it| it == FINALIZER)
}

/// Adds it, where it is not there.
pub(crate) async fn add(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
) -> Result<(), WriteError> {
    if is_held(observed) {
        Ok(())
    } else {
        apply(context, observed, fence, json!([FINALIZER])).await
    }
}

/// Takes it away, where it is there.
pub(crate) async fn remove(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
) -> Result<(), WriteError> {
    if is_held(observed) { apply(context, observed, fence, json!([])).await } else { Ok(()) }
}

/// Applies the list of our finalizers; those of others stay. The uid makes sure that an object that
/// is gone is not made anew.
async fn apply(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
    finalizers: Value,
) -> Result<(), WriteError> {
    let key = &observed.key;
    let clusters = context.hosted_clusters(key);
    let patch = Patch::Apply(json!({
        "apiVersion": HostedCluster::API_VERSION,
        "kind": HostedCluster::KIND,
        "metadata": {
            "namespace": key.namespace(),
            "name": key.name(),
            "uid": observed.cluster.uid,
            "finalizers": finalizers,
        },
    }));
    let parameters = PatchParams::apply(Writer::HostedCluster.field_manager());
    let action = format!("apply the finalizer of HostedCluster {key}");
    let apply = || clusters.patch(key.name(), &parameters, &patch);
    let what = (HostedCluster::KIND, Verb::Apply);
    let written = write(&context.api, fence, &context.metrics, what, &action, apply).await?;
    drop(written);
    Ok(())
}
