//! Recording which key encrypts, and taking a rotation from one stage to the next.
//!
//! Only where a template makes the API server ours: then we are who writes its configuration, and
//! nobody else keeps the record.

use std::time::Duration;

use kube::api::PatchParams;
use lanyard_desired::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_SECRET;
use lanyard_desired::hosted_cluster::key_rotation::{
    KeyEvidence, KeyStep, awaits_rollout, has_rolled, is_recorded, key_step, providers_in,
};
use lanyard_desired::status::{EventType, Transition};
use lanyard_desired::{Change, ObjectKey, ObservedObject, OwnedKind, Problem};
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use crate::claim::Claim;
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
use crate::strangers::fetch_whosesoever;

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
    /// It should change and did not.
    Open {
        /// Why it could not.
        errors: Vec<ApiError>,
        /// Until when it is left, because somebody takes it away again and again.
        until: Option<Duration>,
        /// Whether another key would write for want of it: the [`carriers`] stay as they are.
        is_needed: bool,
    },
    /// The key that encrypts would be lost: nothing may be written.
    Lost(Problem),
}

/// What became of a promotion.
#[derive(Debug)]
pub(crate) struct Promotion {
    /// Whether the API servers are waited for.
    pub(crate) awaits_rollout: bool,
    pub(crate) recorded: Recorded,
}

/// Whether the record of a cluster's key is ours to keep.
fn is_ours(context: &Context, usable: &Usable) -> bool {
    context.settings.role == Role::All
        && usable.cluster.encryption.is_some()
        && context.settings.templates.deployment(api_server()).is_some()
}

/// Whether the record is ours to keep and there is none yet.
pub(crate) fn is_unrecorded(context: &Context, usable: &Usable) -> bool {
    is_ours(context, usable) && !is_recorded(&usable.wire)
}

/// The next step of the keys, but for a promotion. Nothing is written.
pub(crate) async fn next_step(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
) -> Result<KeyStep, ReconcileError> {
    if !is_ours(context, usable) {
        return Ok(KeyStep::Keep);
    }
    // Where nothing is recorded, what encrypts is in the configuration, whoever made that.
    let configured = if is_recorded(&usable.wire) || observed.claim == Claim::Free {
        None
    } else {
        let [secret, _] = carriers(&observed.namespace);
        let found = fetch_whosesoever(&context.api, &secret).await?;
        found.map(|secret| providers_in(&secret.value))
    };
    let evidence =
        KeyEvidence { configured: configured.as_ref(), has_rolled: false, now: observed.now };
    Ok(key_step(&usable.cluster, &usable.wire, &evidence))
}

/// Records what encrypts, before anything is written that depends on it.
pub(crate) async fn record(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    fence: &Fence,
) -> Result<Recorded, ReconcileError> {
    let step = next_step(context, observed, usable).await?;
    take(context, observed, usable, step, fence).await
}

/// What brings the keys to the API servers: the configuration, and what rolls for it.
pub(crate) fn carriers(namespace: &str) -> [ObjectKey; 2] {
    let key = |kind, name: &str| object_key(namespace, kind, name);
    [key(OwnedKind::Secret, ENCRYPTION_CONFIG_SECRET), key(OwnedKind::Deployment, api_server())]
}

/// The configuration that has to be there before a change rolls the API server: pods that start
/// earlier would run with another one than their annotation says.
pub(crate) fn waits_for(change: &Change) -> Option<ObjectKey> {
    let Change::Apply { object, .. } = change else { return None };
    let [secret, deployment] = carriers(object.key.namespace.as_deref().unwrap_or_default());
    (object.key == deployment).then_some(secret)
}

/// Whether a new key waits until every API server reads it.
pub(crate) fn awaits_promotion(context: &Context, usable: &Usable) -> bool {
    is_ours(context, usable) && awaits_rollout(&usable.cluster, &usable.wire)
}

/// Has the new key write, once every API server reads it: called where that [is waited for] and the
/// [`carriers`] are as they should be.
///
/// [is waited for]: awaits_promotion
pub(crate) async fn promote(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    fence: &Fence,
) -> Result<Promotion, ReconcileError> {
    let deployment = fetch(context, observed, OwnedKind::Deployment, api_server()).await?;
    let of_api_server = |deployment: Option<&str>| deployment == Some(api_server());
    let mut pods = observed.pods.iter().filter(|pod| of_api_server(pod.deployment.as_deref()));
    let has_rolled =
        deployment.is_some_and(|it| has_rolled(&it.value)) && !pods.any(|pod| pod.is_deleting);
    let evidence = KeyEvidence { configured: None, has_rolled, now: observed.now };
    let step = key_step(&usable.cluster, &usable.wire, &evidence);
    let recorded = take(context, observed, usable, step, fence).await?;
    Ok(Promotion { awaits_rollout: !has_rolled, recorded })
}

async fn take(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    step: KeyStep,
    fence: &Fence,
) -> Result<Recorded, ReconcileError> {
    match step {
        KeyStep::Keep => Ok(Recorded::Kept),
        KeyStep::Lost(problem) => Ok(Recorded::Lost(problem)),
        KeyStep::Record { status, reason, message, is_needed } => {
            let (key, wish) = (&observed.key, wish_of(&keys_of(usable)));
            let open = |errors, until| Ok(Recorded::Open { errors, until, is_needed });
            if let Some(until) = context.held_until(key, Subject::EncryptionKey, wish) {
                return open(Vec::new(), Some(until));
            }
            match apply(context, observed, status, fence).await {
                Err(WriteError::Api(error)) => return open(vec![error], None),
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

/// What the record is made for. What is recorded on the way there, and when, is the same wish.
fn keys_of(usable: &Usable) -> Vec<String> {
    let encryption = usable.cluster.encryption.iter();
    let keys = encryption.flat_map(|it| [Some(&it.active_key), it.backup_key.as_ref()]);
    keys.flatten().map(ToString::to_string).collect()
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
    let fields = Fields::State {
        status: json!({"secretEncryption": status}),
        version: observed.cluster.content_version.clone(),
    };
    hosted_cluster::apply(context, observed, fence, &parameters, fields, &action).await.map(drop)
}

/// The deployment of the API server.
fn api_server() -> &'static str {
    Component::Kms.consumers().first().map_or("", |consumer| consumer.deployment)
}
