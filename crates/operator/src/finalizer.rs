//! Our finalizer of a HostedCluster: it stays until what was made for it is gone.

use std::time::Duration;

use kube::api::{DynamicObject, PatchParams};
use lanyard_desired::ObjectWriter;
use serde_json::{Value, json};

use crate::conflict_backoff::WriteTarget;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::hosted_cluster::{self, HostedClusterFields};
use crate::lease::FencingToken;
use crate::observe::ObservedCluster;

/// Our finalizer. The one of HyperShift is not ours, and stays as it is.
pub const FINALIZER: &str = "lanyard.dev/finalizer";

/// What became of adding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalizerOutcome {
    /// It is there.
    AlreadyPresent,
    /// It is there now: the HostedCluster has another version.
    Added,
    /// Somebody takes it away again and again: it is added then.
    BackoffUntil(Duration),
}

/// Whether a cluster waits for us before it goes.
pub(crate) fn has_finalizer(observed: &ObservedCluster) -> bool {
    observed.cluster.finalizers.iter().any(|it| it == FINALIZER)
}

/// Adds it, where it is not there.
pub(crate) async fn add_finalizer(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fence: &FencingToken,
) -> Result<FinalizerOutcome, FencedWriteError> {
    if has_finalizer(observed) {
        return Ok(FinalizerOutcome::AlreadyPresent);
    }
    if let Some(until) = context.backoff_until(&observed.key, WriteTarget::Finalizer, 0) {
        return Ok(FinalizerOutcome::BackoffUntil(until));
    }
    let answer = apply_finalizers(context, observed, fence, json!([FINALIZER])).await?;
    context.stores.store_finalizer(&observed.key, answer, FINALIZER);
    let told = || WriteTarget::Finalizer.describe_conflict(&observed.key);
    context.record_write(&observed.key, WriteTarget::Finalizer, 0, told);
    Ok(FinalizerOutcome::Added)
}

/// Takes it away, where it is there.
pub(crate) async fn remove_finalizer(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fence: &FencingToken,
) -> Result<(), FencedWriteError> {
    if has_finalizer(observed) {
        apply_finalizers(context, observed, fence, json!([])).await.map(drop)
    } else {
        Ok(())
    }
}

/// Applies the list of our finalizers.
async fn apply_finalizers(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fence: &FencingToken,
    finalizers: Value,
) -> Result<DynamicObject, FencedWriteError> {
    let parameters = PatchParams::apply(ObjectWriter::HostedCluster.field_manager());
    let action = format!("apply the finalizer of HostedCluster {}", observed.key);
    let fields = HostedClusterFields::Finalizers(finalizers);
    hosted_cluster::apply_fields(context, observed, fence, &parameters, fields, &action).await
}
