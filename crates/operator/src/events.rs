//! Events about HostedClusters: one for each transition, and few.

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
use lanyard_desired::status::Transition;
use lanyard_kubernetes::ApiError;

use crate::apply::write;
use crate::context::Context;
use crate::error::WriteError;
use crate::key::ClusterKey;
use crate::lease::Fence;
use crate::metrics::Verb;
use crate::observe::Observed;

/// How many new events each cluster may still have.
#[derive(Debug, Default)]
pub(crate) struct EventBudgets(HashMap<ClusterKey, Budget>);

#[derive(Debug)]
struct Budget {
    left: u32,
    filled: Duration,
}

impl EventBudgets {
    /// Takes one, if there is one left at `now`.
    fn take(&mut self, key: &ClusterKey, now: Duration) -> bool {
        let full = || Budget { left: BURST, filled: now };
        let budget = self.0.entry(key.clone()).or_insert_with(full);
        let passed = now.saturating_sub(budget.filled).as_secs() / ONE_MORE_EVERY.as_secs();
        let whole = u32::try_from(passed).unwrap_or(u32::MAX);
        budget.left = budget.left.saturating_add(whole).min(BURST);
        budget.filled = budget.filled.saturating_add(ONE_MORE_EVERY.saturating_mul(whole));
        let left = budget.left.checked_sub(1);
        budget.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Forgets all clusters but these.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&ClusterKey) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// Forgets a cluster that is gone.
    pub(crate) fn forget(&mut self, key: &ClusterKey) {
        self.0.remove(key);
    }
}

/// Tells what is news about a cluster.
///
/// Events are told before the status that they lead to is written, and their names come from the
/// status that they lead away from. So who is interrupted in between tells none of them twice and
/// loses none. What the API refuses is logged and counted, and lost: the status tells the same.
pub(crate) async fn tell(
    context: &Context,
    observed: &Observed,
    news: &[Transition],
    fence: &Fence,
) -> Result<(), WriteError> {
    let key = &observed.key;
    for transition in news {
        let now = context.api.clock().monotonic();
        tracing::info!(cluster = %key, reason = transition.reason, "{}", transition.message);
        if !context.budgets.lock().take(key, now) {
            context.metrics.event_dropped();
            continue;
        }
        let before = observed.previous.as_ref().map_or("", |told| told.version.as_str());
        let event = event_of(observed, transition, before, &context.settings.instance);
        let events: Api<Event> = Api::namespaced(context.api.client().clone(), key.namespace());
        let parameters = PostParams::default();
        let create = || events.create(&parameters, &event);
        let action = format!("create an event about HostedCluster {key}");
        let what = ("Event", Verb::Create);
        match write(&context.api, fence, &context.metrics, what, &action, create).await {
            Ok(_) | Err(WriteError::Api(ApiError::Refused { status: 409, .. })) => {}
            Err(WriteError::NotLeader) => return Err(WriteError::NotLeader),
            Err(WriteError::Api(error)) => {
                context.metrics.event_dropped();
                tracing::warn!(cluster = %key, hint = error.hint(), "{error}");
            }
        }
    }
    Ok(())
}

fn event_of(observed: &Observed, news: &Transition, before: &str, instance: &str) -> Event {
    let key = &observed.key;
    let now: Timestamp = observed.now;
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(observed, news, before)),
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
        type_: Some(news.event_type.name().to_owned()),
        reason: Some(news.reason.clone()),
        message: Some(news.message.clone()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(instance.chars().take(MAX_INSTANCE).collect()),
        ..Event::default()
    }
}

fn event_name(observed: &Observed, news: &Transition, before: &str) -> String {
    let mut digest = Digest::new(&SHA256);
    for part in
        [&*observed.cluster.uid, before, news.event_type.name(), &news.reason, &news.message]
    {
        digest.update(&part.len().to_le_bytes());
        digest.update(part.as_bytes());
    }
    let mut ending = String::with_capacity(2 * DIGEST_BYTES);
    for byte in digest.finish().as_ref().iter().take(DIGEST_BYTES) {
        // Writing to a string cannot fail.
        write!(ending, "{byte:02x}").unwrap_or_default();
    }
    let kept: String = observed.key.name().chars().take(MAX_NAME - ending.len() - 1).collect();
    let kept = kept.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
    format!("{kept}-{ending}")
}

const COMPONENT: &str = "lanyard-operator";
/// How many new events a cluster may have at once: each of nine identities may fail and come back.
const BURST: u32 = 24;
const ONE_MORE_EVERY: Duration = Duration::from_mins(2);
/// RFC 1123 subdomain: names of objects.
const MAX_NAME: usize = 253;
const MAX_INSTANCE: usize = 128;
const DIGEST_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_has_a_budget_that_fills_again() {
        let mut budgets = EventBudgets::default();
        let key = ClusterKey::of("clusters", "harbour");
        let take = |budgets: &mut EventBudgets, minutes: u64| {
            let now = Duration::from_mins(minutes);
            (0..100).filter(|_| budgets.take(&key, now)).count()
        };
        assert_eq!(take(&mut budgets, 0), 24);
        assert_eq!(take(&mut budgets, 1), 0);
        assert_eq!(take(&mut budgets, 5), 2);
        assert_eq!(take(&mut budgets, 6), 1);
        assert_eq!(take(&mut budgets, 10_000), 24);
        assert!(budgets.take(&ClusterKey::of("clusters", "other"), Duration::ZERO));
    }
}
