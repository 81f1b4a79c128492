//! Recording which key encrypts, and taking a rotation from one stage to the next.
//!
//! Only where a template makes the API server ours: then we are who writes its configuration, and
//! nobody else keeps the record.

use std::time::Duration;

use kube::api::PatchParams;
use lanyard_desired::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_SECRET;
use lanyard_desired::hosted_cluster::key_rotation::{
    KeyRotationInputs, KeyRotationStep, awaits_api_server_rollout, has_key_record, is_rolled_out,
    next_key_rotation_step, read_configured_providers,
};
use lanyard_desired::status::{EventType, StatusTransition};
use lanyard_desired::{ObjectChange, ObjectKey, ObservedObject, OwnedKind, ValidationProblem};
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
use crate::settings::OperatorRole;
use crate::unowned_objects::fetch_regardless_of_owner;

/// The field manager of the record. It is one of its own, because applying conditions under the same
/// one would take the record away.
const KEY_FIELD_MANAGER: &str = "lanyard-encryption-key";

/// What became of the record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeyRecordOutcome {
    /// It is as it should be.
    Unchanged,
    /// It changed: the watch tells, and the next look goes on with it.
    Changed,
    /// It should change and did not.
    Pending {
        /// Why it could not.
        errors: Vec<ApiError>,
        /// Until when it is left, because somebody takes it away again and again.
        backoff_until: Option<Duration>,
        /// Whether another key would write for want of it: the [`encryption_objects`] stay as they are.
        is_needed: bool,
    },
    /// The key that encrypts would be lost: nothing may be written.
    KeyLost(ValidationProblem),
}

/// What became of a promotion.
#[derive(Debug)]
pub(crate) struct KeyPromotion {
    /// Whether the API servers are waited for.
    pub(crate) awaits_rollout: bool,
    pub(crate) record_outcome: KeyRecordOutcome,
}

/// Whether the record of a cluster's key is ours to keep.
fn owns_key_record(context: &ReconcileContext, usable: &ValidCluster) -> bool {
    context.settings.role == OperatorRole::All
        && usable.cluster.encryption.is_some()
        && context.settings.templates.deployment(api_server_deployment()).is_some()
}

/// Whether the record is ours to keep and there is none yet.
pub(crate) fn lacks_key_record(context: &ReconcileContext, usable: &ValidCluster) -> bool {
    owns_key_record(context, usable) && !has_key_record(&usable.wire)
}

/// The next step of the keys, but for a promotion. Nothing is written.
pub(crate) async fn next_key_step(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
) -> Result<KeyRotationStep, ReconcileError> {
    if !owns_key_record(context, usable) {
        return Ok(KeyRotationStep::Unchanged);
    }
    // Where nothing is recorded, what encrypts is in the configuration, whoever made that.
    let configured =
        if has_key_record(&usable.wire) || observed.namespace_owner == NamespaceOwner::Absent {
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
    Ok(next_key_rotation_step(&usable.cluster, &usable.wire, &evidence))
}

/// Records what encrypts, before anything is written that depends on it.
pub(crate) async fn record_key(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    fence: &FencingToken,
) -> Result<KeyRecordOutcome, ReconcileError> {
    let step = next_key_step(context, observed, usable).await?;
    apply_key_step(context, observed, usable, step, fence).await
}

/// What brings the keys to the API servers: the configuration, and what rolls for it.
pub(crate) fn encryption_objects(namespace: &str) -> [ObjectKey; 2] {
    let key = |kind, name: &str| object_key(namespace, kind, name);
    [
        key(OwnedKind::Secret, ENCRYPTION_CONFIG_SECRET),
        key(OwnedKind::Deployment, api_server_deployment()),
    ]
}

/// The configuration that has to be there before a change rolls the API server: pods that start
/// earlier would run with another one than their annotation says.
pub(crate) fn prerequisite_secret(change: &ObjectChange) -> Option<ObjectKey> {
    let ObjectChange::Apply { object, .. } = change else { return None };
    let [secret, deployment] =
        encryption_objects(object.key.namespace.as_deref().unwrap_or_default());
    (object.key == deployment).then_some(secret)
}

/// Whether a new key waits until every API server reads it.
pub(crate) fn awaits_promotion(context: &ReconcileContext, usable: &ValidCluster) -> bool {
    owns_key_record(context, usable) && awaits_api_server_rollout(&usable.cluster, &usable.wire)
}

/// Has the new key write, once every API server reads it: called where that [is waited for] and the
/// [`encryption_objects`] are as they should be.
///
/// [is waited for]: awaits_promotion
pub(crate) async fn promote_key(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    fence: &FencingToken,
) -> Result<KeyPromotion, ReconcileError> {
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
    let step = next_key_rotation_step(&usable.cluster, &usable.wire, &evidence);
    let recorded = apply_key_step(context, observed, usable, step, fence).await?;
    Ok(KeyPromotion { awaits_rollout: !has_rolled, record_outcome: recorded })
}

async fn apply_key_step(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    step: KeyRotationStep,
    fence: &FencingToken,
) -> Result<KeyRecordOutcome, ReconcileError> {
    match step {
        KeyRotationStep::Unchanged => Ok(KeyRecordOutcome::Unchanged),
        KeyRotationStep::WouldLoseKey(problem) => Ok(KeyRecordOutcome::KeyLost(problem)),
        KeyRotationStep::Record { status, reason, message, is_required: is_needed } => {
            let (key, wish) =
                (&observed.key, digest_without_timestamps(&desired_key_names(usable)));
            let open = |errors, until| {
                Ok(KeyRecordOutcome::Pending { errors, backoff_until: until, is_needed })
            };
            if let Some(until) = context.backoff_until(key, WriteTarget::EncryptionKey, wish) {
                return open(Vec::new(), Some(until));
            }
            match apply_key_record(context, observed, status, fence).await {
                Err(FencedWriteError::Api(error)) => return open(vec![error], None),
                applied => applied?,
            }
            let told = || WriteTarget::EncryptionKey.describe_conflict(key);
            context.record_write(key, WriteTarget::EncryptionKey, wish, told);
            let reason = reason.to_owned();
            let news = StatusTransition { event_type: EventType::Normal, reason, message };
            events::emit_events(context, observed, &[news], fence).await?;
            Ok(KeyRecordOutcome::Changed)
        }
    }
}

/// What the record is made for. What is recorded on the way there, and when, is the same wish.
fn desired_key_names(usable: &ValidCluster) -> Vec<String> {
    let encryption = usable.cluster.encryption.iter();
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
    fence: &FencingToken,
) -> Result<(), FencedWriteError> {
    // Who ends a rotation by hand holds fields of the record until the next one.
    let parameters = PatchParams::apply(KEY_FIELD_MANAGER).force();
    let action = format!("record the encryption key of HostedCluster {}", observed.key);
    let fields = HostedClusterFields::VersionedStatus {
        status: json!({"secretEncryption": status}),
        version: observed.cluster.content_version.clone(),
    };
    hosted_cluster::apply_fields(context, observed, fence, &parameters, fields, &action)
        .await
        .map(drop)
}

/// The deployment of the API server.
fn api_server_deployment() -> &'static str {
    Component::Kms.consumers().first().map_or("", |consumer| consumer.deployment)
}
