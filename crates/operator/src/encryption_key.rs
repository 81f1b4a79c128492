//! Records the active encryption key and advances key rotations.
//!
//! It applies only if a workload template makes the operator deploy the API server. Then the operator
//! also writes the encryption configuration, and no other controller keeps the record.

use std::time::Duration;

use kube::api::PatchParams;
use lanyard_desired::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_SECRET;
use lanyard_desired::hosted_cluster::key_rotation::{
    KeyRotationInputs, KeyRotationStep, awaits_api_server_rollout, has_key_record, is_rolled_out,
    next_key_rotation_step, read_configured_providers,
};
use lanyard_desired::status::{EventType, StatusTransition};
use lanyard_desired::{
    ObjectChange, ObjectKey, ObservedObject, OwnedKind, ValidatedHostedCluster, ValidationProblem,
};
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use crate::classification::ValidCluster;
use crate::conflict_backoff::{WriteTarget, digest_without_timestamps};
use crate::context::ReconcileContext;
use crate::error::{FencedWriteError, ReconcileError};
use crate::events;
use crate::fetch::fetch_objects;
use crate::hosted_cluster::{self, HostedClusterFields};
use crate::lease::FencingToken;
use crate::namespace_owner::NamespaceOwner;
use crate::observe::ObservedCluster;
use crate::settings::{OperatorRole, OperatorSettings};
use crate::unowned_objects::fetch_regardless_of_owner;

/// The field manager of the key record. It is separate, because an apply of the conditions with the same
/// manager would remove the record.
const KEY_FIELD_MANAGER: &str = "lanyard-encryption-key";

/// The result of updating the key record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeyRecordOutcome {
    /// The record is up to date.
    Unchanged,
    /// The record changed. The watch triggers the next reconciliation, which continues with it.
    Changed,
    /// The record is out of date.
    Pending {
        /// Why the write failed.
        errors: Vec<ApiError>,
        /// Until when the write is held back, because another manager keeps reverting it.
        backoff_until: Option<Duration>,
        /// Whether a key that is not recorded would become active: skip the [`encryption_objects`].
        is_needed: bool,
    },
    /// The active key would be lost: no object may be written.
    KeyLost(ValidationProblem),
}

/// The decision about a new key that waits for the API servers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyPromotionStep {
    /// Whether an API server rollout is pending.
    pub(crate) awaits_rollout: bool,
    /// The promotion, or no change while the rollout is pending.
    pub(crate) step: KeyRotationStep,
}

/// The result of a key promotion.
#[derive(Debug)]
pub(crate) struct KeyPromotion {
    /// Whether an API server rollout is pending.
    pub(crate) awaits_rollout: bool,
    pub(crate) record_outcome: KeyRecordOutcome,
}

/// Whether this operator keeps the key record of the cluster.
pub(crate) fn keeps_key_record(
    settings: &OperatorSettings,
    cluster: &ValidatedHostedCluster,
) -> bool {
    settings.role == OperatorRole::All
        && cluster.encryption.is_some()
        && settings.templates.deployment(api_server_deployment()).is_some()
}

/// Whether this operator keeps the key record and the record does not exist yet.
pub(crate) fn lacks_key_record(context: &ReconcileContext, valid: &ValidCluster) -> bool {
    keeps_key_record(&context.settings, &valid.cluster) && !has_key_record(&valid.wire)
}

/// What to record next about the cluster's encryption keys (`status.secretEncryption`). Never a
/// promotion; reads only.
pub(crate) async fn next_key_step(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
) -> Result<KeyRotationStep, ReconcileError> {
    if !keeps_key_record(&context.settings, &valid.cluster) {
        return Ok(KeyRotationStep::Unchanged);
    }
    // Without a record, the existing configuration shows which keys are active, regardless of its writer.
    let configured =
        if has_key_record(&valid.wire) || observed.namespace_owner == NamespaceOwner::Absent {
            None
        } else {
            let [secret, _] = encryption_objects(&observed.namespace);
            let found = fetch_regardless_of_owner(&context.api, &secret).await?;
            found.map(|secret| read_configured_providers(&secret.value))
        };
    let evidence = KeyRotationInputs {
        configured_providers: configured.as_ref(),
        is_rolled_out: false,
        now: observed.now,
    };
    Ok(next_key_rotation_step(&valid.cluster, &valid.wire, &evidence))
}

/// Records the active key before any object is written that depends on it.
pub(crate) async fn record_key(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    fencing_token: &FencingToken,
) -> Result<KeyRecordOutcome, ReconcileError> {
    let step = next_key_step(context, observed, valid).await?;
    apply_key_step(context, observed, valid, step, fencing_token).await
}

/// The objects that deliver the keys to the API servers: the configuration Secret and the Deployment.
pub(crate) fn encryption_objects(namespace: &str) -> [ObjectKey; 2] {
    let key = |kind, name: &str| object_key(namespace, kind, name);
    [
        key(OwnedKind::Secret, ENCRYPTION_CONFIG_SECRET),
        key(OwnedKind::Deployment, api_server_deployment()),
    ]
}

/// The Secret that a change requires: pods that start before the configuration is written would run with
/// another one than their annotation names. The Deployment may also be new, because a client deleted it.
pub(crate) fn prerequisite_secret(change: &ObjectChange) -> Option<ObjectKey> {
    let (ObjectChange::Apply { object, .. } | ObjectChange::Create { object }) = change else {
        return None;
    };
    let [secret, deployment] =
        encryption_objects(object.key.namespace.as_deref().unwrap_or_default());
    (object.key == deployment).then_some(secret)
}

/// Whether a new key waits until every API server has read it. An API server that does not read the
/// configuration never has.
pub(crate) fn awaits_promotion(context: &ReconcileContext, valid: &ValidCluster) -> bool {
    keeps_key_record(&context.settings, &valid.cluster)
        && context.settings.templates.lint_encryption_flags().is_none()
        && awaits_api_server_rollout(&valid.cluster, &valid.wire)
}

/// Decides whether the new key becomes the write key, which requires that every API server has read it. Reads
/// only. Call it if [`awaits_promotion`] returns true and the [`encryption_objects`] are in sync.
pub(crate) async fn next_promotion_step(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
) -> Result<KeyPromotionStep, ReconcileError> {
    let deployment =
        fetch_owned(context, observed, OwnedKind::Deployment, api_server_deployment()).await?;
    let of_api_server = |deployment: Option<&str>| deployment == Some(api_server_deployment());
    let mut pods = observed.pods.iter().filter(|pod| of_api_server(pod.deployment.as_deref()));
    let has_rolled =
        deployment.is_some_and(|it| is_rolled_out(&it.value)) && !pods.any(|pod| pod.is_deleting);
    let evidence = KeyRotationInputs {
        configured_providers: None,
        is_rolled_out: has_rolled,
        now: observed.now,
    };
    let step = next_key_rotation_step(&valid.cluster, &valid.wire, &evidence);
    Ok(KeyPromotionStep { awaits_rollout: !has_rolled, step })
}

/// Promotes the new key to the write key if [`next_promotion_step`] decides so. The same preconditions apply.
pub(crate) async fn promote_key(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    fencing_token: &FencingToken,
) -> Result<KeyPromotion, ReconcileError> {
    let KeyPromotionStep { awaits_rollout, step } =
        next_promotion_step(context, observed, valid).await?;
    let record_outcome = apply_key_step(context, observed, valid, step, fencing_token).await?;
    Ok(KeyPromotion { awaits_rollout, record_outcome })
}

async fn apply_key_step(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    step: KeyRotationStep,
    fencing_token: &FencingToken,
) -> Result<KeyRecordOutcome, ReconcileError> {
    match step {
        KeyRotationStep::Unchanged => Ok(KeyRecordOutcome::Unchanged),
        KeyRotationStep::WouldLoseKey(problem) => Ok(KeyRecordOutcome::KeyLost(problem)),
        KeyRotationStep::Record { status, reason, message, is_required: is_needed } => {
            let (key, desired_digest) =
                (&observed.key, digest_without_timestamps(&desired_key_names(valid)));
            let pending = |errors, until| {
                Ok(KeyRecordOutcome::Pending { errors, backoff_until: until, is_needed })
            };
            if let Some(until) =
                context.backoff_until(key, WriteTarget::EncryptionKey, desired_digest)
            {
                return pending(Vec::new(), Some(until));
            }
            match apply_key_record(context, observed, status, fencing_token).await {
                Err(FencedWriteError::Api(error)) => return pending(vec![error], None),
                applied => applied?,
            }
            let describe_object = || WriteTarget::EncryptionKey.describe_conflict(key);
            context.record_write(key, WriteTarget::EncryptionKey, desired_digest, describe_object);
            let reason = reason.to_owned();
            let transition = StatusTransition { event_type: EventType::Normal, reason, message };
            events::emit_events(context, observed, &[transition], fencing_token).await?;
            Ok(KeyRecordOutcome::Changed)
        }
    }
}

/// The desired keys. Their names identify a write of the record; stages and times do not.
fn desired_key_names(valid: &ValidCluster) -> Vec<String> {
    let encryption = valid.cluster.encryption.iter();
    let keys = encryption.flat_map(|it| [Some(&it.active_key), it.backup_key.as_ref()]);
    keys.flatten().map(ToString::to_string).collect()
}

async fn fetch_owned(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    kind: OwnedKind,
    name: &str,
) -> Result<Option<ObservedObject>, ReconcileError> {
    let key = object_key(&observed.namespace, kind, name);
    let mut found = fetch_objects(&context.api, &context.stores, vec![key.clone()]).await;
    if !found.errors.is_empty() {
        return Err(ReconcileError::Calls(found.errors));
    }
    Ok(found.objects.remove(&key))
}

fn object_key(namespace: &str, kind: OwnedKind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: Some(namespace.to_owned()), name: name.to_owned() }
}

async fn apply_key_record(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    status: Value,
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    // Force: a user who ended a rotation by hand owns fields of the record.
    let parameters = PatchParams::apply(KEY_FIELD_MANAGER).force();
    let action = format!("record the encryption key of HostedCluster {}", observed.key);
    let fields = HostedClusterFields::VersionedStatus {
        status: json!({"secretEncryption": status}),
        version: observed.cluster.content_version.clone(),
    };
    hosted_cluster::apply_fields(context, observed, fencing_token, &parameters, fields, &action)
        .await
        .map(drop)
}

/// The name of the API server Deployment.
fn api_server_deployment() -> &'static str {
    Component::Kms.consumers().first().map_or("", |consumer| consumer.deployment)
}
