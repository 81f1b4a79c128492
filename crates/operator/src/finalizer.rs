//! The finalizer on a HostedCluster. It stays until all objects created for the cluster are deleted.

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

/// The operator's finalizer. HyperShift has its own, which the operator never changes.
pub const FINALIZER: &str = "lanyard.dev/finalizer";

/// The result of adding the finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalizerOutcome {
    /// The finalizer was already present.
    AlreadyPresent,
    /// The finalizer was added: the HostedCluster has a new resource version.
    Added,
    /// Another manager keeps removing the finalizer; it is added again at this time.
    BackoffUntil(Duration),
}

/// Whether the HostedCluster has the operator's finalizer.
pub(crate) fn has_finalizer(observed: &ObservedCluster) -> bool {
    observed.cluster.finalizers.iter().any(|it| it == FINALIZER)
}

/// Adds the finalizer if it is missing.
pub(crate) async fn add_finalizer(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fencing_token: &FencingToken,
) -> Result<FinalizerOutcome, FencedWriteError> {
    if has_finalizer(observed) {
        return Ok(FinalizerOutcome::AlreadyPresent);
    }
    if let Some(until) = context.backoff_until(&observed.key, WriteTarget::Finalizer, 0) {
        return Ok(FinalizerOutcome::BackoffUntil(until));
    }
    let answer = apply_finalizers(context, observed, fencing_token, json!([FINALIZER])).await?;
    context.stores.store_finalizer(&observed.key, answer, FINALIZER);
    let describe_object = || WriteTarget::Finalizer.describe_conflict(&observed.key);
    context.record_write(&observed.key, WriteTarget::Finalizer, 0, describe_object);
    Ok(FinalizerOutcome::Added)
}

/// Removes the finalizer if it is present.
pub(crate) async fn remove_finalizer(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    if has_finalizer(observed) {
        apply_finalizers(context, observed, fencing_token, json!([])).await.map(drop)
    } else {
        Ok(())
    }
}

/// Applies the list of the operator's finalizers.
async fn apply_finalizers(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    fencing_token: &FencingToken,
    finalizers: Value,
) -> Result<DynamicObject, FencedWriteError> {
    let parameters = PatchParams::apply(ObjectWriter::HostedCluster.field_manager());
    let action = format!("apply the finalizer of HostedCluster {}", observed.key);
    let fields = HostedClusterFields::Finalizers(finalizers);
    hosted_cluster::apply_fields(context, observed, fencing_token, &parameters, fields, &action)
        .await
}
