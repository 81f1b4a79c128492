//! Recording which key encrypts, and taking a rotation from one stage to the next.
//!
//! Only where a template makes the API server ours: then we are who writes its configuration, and
//! nobody else keeps the record.

use std::time::Duration;

use kube::api::PatchParams;
use lanyard_desired::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_SECRET;
use lanyard_desired::hosted_cluster::key_rotation::{
    KeyEvidence, KeyStep, awaits_rollout, has_rolled, is_recorded, key_step, writer_in,
};
use lanyard_desired::status::{EventType, Transition};
use lanyard_desired::{ObjectKey, ObservedObject, OwnedKind, Problem};
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use crate::contest::{Subject, wish_of};
use crate::context::Context;
use crate::error::{ReconcileError, WriteError};
use crate::events;
use crate::hosted_cluster::{self, Fields};
use crate::judge::Usable;
use crate::lease::Fence;
use crate::observe::Observed;
use crate::read::fetch_objects;
use crate::settings::Role;

/// The field manager of the record. It is one of its own, because applying conditions under the same
/// one would take the record away.
const KEY_MANAGER: &str = "lanyard-encryption-key";

/// What became of the record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Recorded {
    /// It is as it should be.
    Kept,
    /// It changed: the watch tells, and the next look goes on with it.
    Changed,
    /// It should change and could not. No other key writes for want of it.
    Refused(Vec<ApiError>),
    /// Somebody takes it away again and again: it is written then. Whether nothing may be written
    /// before that.
    Held { until: Duration, is_needed: bool },
    /// The key that encrypts would be lost: nothing may be written.
    Lost(Problem),
}

/// Whether the record of a cluster's key is ours to keep.
fn is_ours(context: &Context, usable: &Usable) -> bool {
    context.settings.role == Role::All
        && usable.cluster.encryption.is_some()
        && context.settings.templates.deployment(api_server()).is_some()
}

/// Records what encrypts, before anything is written that depends on it.
pub(crate) async fn record(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    fence: &Fence,
) -> Result<Recorded, ReconcileError> {
    if !is_ours(context, usable) {
        return Ok(Recorded::Kept);
    }
    let has_config = !is_recorded(&usable.wire) && observed.owner.uid().is_some();
    let writer = if has_config {
        fetch(context, observed, OwnedKind::Secret, ENCRYPTION_CONFIG_SECRET).await?
    } else {
        None
    };
    let writer = writer.map(|secret| writer_in(&secret.value));
    let evidence = KeyEvidence { writer: writer.as_deref(), has_rolled: false, now: observed.now };
    take(context, observed, usable, &evidence, fence).await
}

/// What brings the keys to the API servers.
pub(crate) fn carriers(namespace: &str) -> [ObjectKey; 2] {
    let key = |kind, name: &str| object_key(namespace, kind, name);
    [key(OwnedKind::Secret, ENCRYPTION_CONFIG_SECRET), key(OwnedKind::Deployment, api_server())]
}

/// Has the new key write, once every API server reads it: called when the [`carriers`] are as they
/// should be. Tells whether that is still waited for.
pub(crate) async fn promote(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    fence: &Fence,
) -> Result<bool, ReconcileError> {
    if !is_ours(context, usable) || !awaits_rollout(&usable.cluster, &usable.wire) {
        return Ok(false);
    }
    let deployment = fetch(context, observed, OwnedKind::Deployment, api_server()).await?;
    let of_api_server = |deployment: Option<&str>| deployment == Some(api_server());
    let mut pods = observed.pods.iter().filter(|pod| of_api_server(pod.deployment.as_deref()));
    let has_rolled =
        deployment.is_some_and(|it| has_rolled(&it.value)) && !pods.any(|pod| pod.is_deleting);
    let evidence = KeyEvidence { writer: None, has_rolled, now: observed.now };
    let taken = take(context, observed, usable, &evidence, fence).await?;
    Ok(!has_rolled || matches!(taken, Recorded::Held { .. }))
}

async fn take(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    evidence: &KeyEvidence<'_>,
    fence: &Fence,
) -> Result<Recorded, ReconcileError> {
    match key_step(&usable.cluster, &usable.wire, evidence) {
        KeyStep::Keep => Ok(Recorded::Kept),
        KeyStep::Lost(problem) => Ok(Recorded::Lost(problem)),
        KeyStep::Record { status, reason, message, is_needed } => {
            let (key, wish) = (&observed.key, wish_of(&status));
            if let Some(until) = context.held_until(key, Subject::EncryptionKey, wish) {
                return Ok(Recorded::Held { until, is_needed });
            }
            match apply(context, observed, status, fence).await {
                Err(WriteError::Api(error)) if !is_needed => {
                    return Ok(Recorded::Refused(vec![error]));
                }
                applied => applied?,
            }
            let told = || Subject::EncryptionKey.told(key);
            context.wrote(key, Subject::EncryptionKey, wish, told);
            let reason = reason.to_owned();
            let news = Transition { event_type: EventType::Normal, reason, message };
            events::tell(context, observed, &[news], fence).await?;
            Ok(Recorded::Changed)
        }
    }
}

async fn fetch(
    context: &Context,
    observed: &Observed,
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

async fn apply(
    context: &Context,
    observed: &Observed,
    status: Value,
    fence: &Fence,
) -> Result<(), WriteError> {
    // Who ends a rotation by hand holds fields of the record until the next one.
    let parameters = PatchParams::apply(KEY_MANAGER).force();
    let action = format!("record the encryption key of HostedCluster {}", observed.key);
    let fields = Fields::Status(json!({"secretEncryption": status}));
    hosted_cluster::apply(context, observed, fence, &parameters, fields, &action).await.map(drop)
}

/// The deployment of the API server.
fn api_server() -> &'static str {
    Component::Kms.consumers().first().map_or("", |consumer| consumer.deployment)
}
