//! Our finalizer of a HostedCluster: it stays until what was made for it is gone.

use std::time::Duration;

use kube::api::{DynamicObject, PatchParams};
use lanyard_desired::Writer;
use serde_json::{Value, json};

use crate::contest::Subject;
use crate::context::Context;
use crate::error::WriteError;
use crate::hosted_cluster::{self, Fields};
use crate::lease::Fence;
use crate::observe::Observed;

/// Our finalizer. The one of HyperShift is not ours, and stays as it is.
pub const FINALIZER: &str = "lanyard.dev/finalizer";

/// What became of adding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is there.
    Already,
    /// It is there now: the HostedCluster has another version.
    Now,
    /// Somebody takes it away again and again: it is added then.
    Held(Duration),
}

/// Whether a cluster waits for us before it goes.
pub(crate) fn is_held(observed: &Observed) -> bool {
    observed.cluster.finalizers.iter().any(|it| it == FINALIZER)
}

/// Adds it, where it is not there.
pub(crate) async fn add(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
) -> Result<Added, WriteError> {
    if is_held(observed) {
        return Ok(Added::Already);
    }
    if let Some(until) = context.held_until(&observed.key, Subject::Finalizer, 0) {
        return Ok(Added::Held(until));
    }
    let answer = apply(context, observed, fence, json!([FINALIZER])).await?;
    context.stores.held(&observed.key, answer, FINALIZER);
    let told = || Subject::Finalizer.told(&observed.key);
    context.wrote(&observed.key, Subject::Finalizer, 0, told);
    Ok(Added::Now)
}

/// Takes it away, where it is there.
pub(crate) async fn remove(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
) -> Result<(), WriteError> {
    if is_held(observed) {
        apply(context, observed, fence, json!([])).await.map(drop)
    } else {
        Ok(())
    }
}

/// Applies the list of our finalizers.
async fn apply(
    context: &Context,
    observed: &Observed,
    fence: &Fence,
    finalizers: Value,
) -> Result<DynamicObject, WriteError> {
    let parameters = PatchParams::apply(Writer::HostedCluster.field_manager());
    let action = format!("apply the finalizer of HostedCluster {}", observed.key);
    let fields = Fields::Finalizers(finalizers);
    hosted_cluster::apply(context, observed, fence, &parameters, fields, &action).await
}
