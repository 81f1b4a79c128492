//! Events about HostedClusters: one per status transition, with a budget per cluster.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use aws_lc_rs::digest::{Context as Digest, SHA256};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::PostParams;
use lanyard_api::HostedCluster;
use lanyard_clock::ErrorHint as _;
use lanyard_desired::status::StatusTransition;
use lanyard_kubernetes::ApiError;

use crate::apply::write_fenced;
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::lease::FencingToken;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;

/// The maximum length of an event message.
pub(crate) const MAX_MESSAGE_CHARS: usize = 1_000;

/// The number of events that each cluster may still emit.
#[derive(Debug, Default)]
pub(crate) struct EventBudgets(HashMap<ClusterKey, EventBudget>);

#[derive(Debug)]
struct EventBudget {
    remaining: u32,
    refilled_at: Duration,
}

impl EventBudgets {
    /// Takes one event from the budget, if any is left at `now`.
    fn try_take(&mut self, key: &ClusterKey, now: Duration) -> bool {
        let full = || EventBudget { remaining: BURST, refilled_at: now };
        let budget = self.0.entry(key.clone()).or_insert_with(full);
        let passed = now.saturating_sub(budget.refilled_at).as_secs() / REFILL_INTERVAL.as_secs();
        let whole = u32::try_from(passed).unwrap_or(u32::MAX);
        budget.remaining = budget.remaining.saturating_add(whole).min(BURST);
        budget.refilled_at =
            budget.refilled_at.saturating_add(REFILL_INTERVAL.saturating_mul(whole));
        let remaining = budget.remaining.checked_sub(1);
        budget.remaining = remaining.unwrap_or_default();
        remaining.is_some()
    }

    /// Forgets all clusters except these.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&ClusterKey) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// Forgets a deleted cluster.
    pub(crate) fn forget(&mut self, key: &ClusterKey) {
        self.0.remove(key);
    }
}

/// Emits the events for status transitions.
///
/// Events are created before the new status is written, and their names derive from the version of the
/// previous status. After an interruption no event is therefore duplicated or lost. An event that the API
/// server rejects is logged, counted and dropped, because the status contains the same message.
pub(crate) async fn emit_events(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    transitions: &[StatusTransition],
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    for transition in transitions {
        let now = context.api.clock().monotonic();
        tracing::info!(cluster = %key, reason = transition.reason, "{}", transition.message);
        if !context.event_budgets.lock().try_take(key, now) {
            context.metrics.record_dropped_event();
            continue;
        }
        let before = observed.last_report.as_ref().map_or("", |report| report.version.as_str());
        let event = new_event(observed, transition, before, &context.settings.reporting_instance);
        let events: Api<Event> = Api::namespaced(context.api.client().clone(), key.namespace());
        let parameters = PostParams::default();
        let create = || events.create(&parameters, &event);
        let action = format!("create an event about HostedCluster {key}");
        let kind_and_verb = ("Event", WriteVerb::Create);
        match write_fenced(
            &context.api,
            fencing_token,
            &context.metrics,
            kind_and_verb,
            &action,
            create,
        )
        .await
        {
            Ok(_) | Err(FencedWriteError::Api(ApiError::Refused { status: 409, .. })) => {}
            Err(FencedWriteError::NotLeader) => return Err(FencedWriteError::NotLeader),
            Err(FencedWriteError::Api(error)) => {
                context.metrics.record_dropped_event();
                tracing::warn!(cluster = %key, hint = error.hint().as_deref(), "{error}");
            }
        }
    }
    Ok(())
}

fn new_event(
    observed: &ObservedCluster,
    transition: &StatusTransition,
    before: &str,
    instance: &str,
) -> Event {
    let key = &observed.key;
    let now: Timestamp = observed.now;
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(observed, transition, before)),
            namespace: Some(key.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(HostedCluster::API_VERSION.to_owned()),
            kind: Some(HostedCluster::KIND.to_owned()),
            namespace: Some(key.namespace().to_owned()),
            name: Some(key.name().to_owned()),
            uid: Some(observed.cluster.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(transition.event_type.name().to_owned()),
        reason: Some(transition.reason.clone()),
        message: Some(transition.message.clone()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(instance.chars().take(MAX_INSTANCE).collect()),
        ..Event::default()
    }
}

fn event_name(observed: &ObservedCluster, transition: &StatusTransition, before: &str) -> String {
    let mut digest = Digest::new(&SHA256);
    for part in [
        &*observed.cluster.uid,
        before,
        transition.event_type.name(),
        &transition.reason,
        &transition.message,
    ] {
        digest.update(&part.len().to_le_bytes());
        digest.update(part.as_bytes());
    }
    let mut suffix = String::with_capacity(2 * DIGEST_BYTES);
    for byte in digest.finish().as_ref().iter().take(DIGEST_BYTES) {
        // Writing to a string cannot fail.
        write!(suffix, "{byte:02x}").unwrap_or_default();
    }
    let prefix: String = observed.key.name().chars().take(MAX_NAME - suffix.len() - 1).collect();
    let prefix = prefix.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
    format!("{prefix}-{suffix}")
}

const COMPONENT: &str = "lanyard-operator";
/// The maximum number of events in a burst: each of nine identities may fail and recover.
const BURST: u32 = 24;
const REFILL_INTERVAL: Duration = Duration::from_mins(2);
/// The maximum length of an object name (RFC 1123 subdomain).
const MAX_NAME: usize = 253;
const MAX_INSTANCE: usize = 128;
const DIGEST_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_budget_refills_per_cluster() {
        let mut budgets = EventBudgets::default();
        let key = ClusterKey::of("clusters", "harbour");
        let take = |budgets: &mut EventBudgets, minutes: u64| {
            let now = Duration::from_mins(minutes);
            (0..100).filter(|_| budgets.try_take(&key, now)).count()
        };
        assert_eq!(take(&mut budgets, 0), 24);
        assert_eq!(take(&mut budgets, 1), 0);
        assert_eq!(take(&mut budgets, 5), 2);
        assert_eq!(take(&mut budgets, 6), 1);
        assert_eq!(take(&mut budgets, 10_000), 24);
        assert!(budgets.try_take(&ClusterKey::of("clusters", "other"), Duration::ZERO));
    }
}
