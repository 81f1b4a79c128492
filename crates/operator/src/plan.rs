//! What would be done, without doing it.

use std::fmt;
use std::sync::Arc;

use lanyard_clock::SharedClock;
use lanyard_desired::diff::plan_text;
use lanyard_desired::hosted_cluster::key_rotation::KeyStep;
use lanyard_desired::objects::Owner;
use lanyard_kubernetes::ApiError;
use tokio::task::JoinSet;

use crate::apply::Applier;
use crate::claim::{self, Claim};
use crate::encryption_key;
use crate::judge::{Judgement, Pause, judge};
use crate::key::ClusterKey;
use crate::lease::Tenures;
use crate::objects::{NamespaceAge, compare};
use crate::observe::observe;
use crate::operator::Operator;
use crate::settings::Role;

/// What would be done about one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPlan {
    /// The cluster.
    pub key: ClusterKey,
    /// What would be done, or why nothing, in lines.
    pub text: String,
    /// Whether the cluster can be used, or is left alone because it is of another kind.
    pub is_good: bool,
}

impl Operator {
    /// What would be done about every cluster, by its name. Nothing is written.
    pub async fn plan(self) -> Vec<ClusterPlan> {
        let operator = Arc::new(self);
        let mut parts = JoinSet::new();
        operator.watch(&mut parts);
        operator.listed().await;
        let mut plans = Vec::new();
        for key in operator.context.stores.clusters() {
            plans.extend(operator.plan_of(&key).await);
        }
        parts.shutdown().await;
        plans
    }

    async fn plan_of(&self, key: &ClusterKey) -> Option<ClusterPlan> {
        let context = &self.context;
        let mut observed = observe(context, key)?;
        claim::find_out(context, &mut observed).await;
        // What is owned is shown, too, where the owner would be made first.
        if observed.owner == Owner::NotYet {
            observed.owner = Owner::Blank;
        }
        let says = |text: String, is_good| Some(ClusterPlan { key: key.clone(), text, is_good });
        if observed.cluster.is_deleting {
            return says("it is being deleted: what was made for it would go\n".to_owned(), true);
        }
        let usable = match judge(&observed, &context.settings) {
            Judgement::NotOurs(kind) => return says(format!("nothing: this is {kind}\n"), true),
            Judgement::Unusable(problems) => {
                let lines = problems.iter().map(|problem| format!("cannot be used: {problem}\n"));
                return says(lines.collect(), false);
            }
            Judgement::Usable(usable) => usable,
        };
        if context.settings.role == Role::IdentityOnly {
            return says(
                "how its identities are would be told, and nothing else\n".to_owned(),
                true,
            );
        }
        let clock = SharedClock::clone(context.api.clock());
        let fence = Tenures::for_ever(clock).fence(key)?;
        let (api, stores, metrics) = (&context.api, &*context.stores, &context.metrics);
        let applier = Applier { api, stores, metrics, fence: &fence };
        let paused = if usable.pause == Pause::None { "" } else { "paused: nothing is written\n" };
        let left_out: Vec<_> = observed
            .lacking
            .iter()
            .map(|it| format!("left out: {}; {}\n", it.error, it.error.hint()))
            .collect();
        let left_out = left_out.concat();
        if let Claim::Unknown(error) = &observed.claim {
            return says(failed(error), false);
        }
        let (key_step, is_good) = match encryption_key::next_step(context, &observed, &usable).await
        {
            Ok(KeyStep::Keep) => (String::new(), true),
            Ok(KeyStep::Record { message, .. }) => {
                (format!("recorded first, in status.secretEncryption: {message}\n"), true)
            }
            Ok(KeyStep::Lost(problem)) => {
                return says(format!("cannot be used: {problem}\n"), false);
            }
            Err(error) => (format!("cannot be compared: {error}; {}\n", error.hint()), false),
        };
        let namespace = match observed.claim {
            Claim::Free => NamespaceAge::New,
            _ => NamespaceAge::Existing,
        };
        let comparison = compare(context, &observed, &usable, applier, namespace).await;
        let unread: String = comparison.errors.iter().map(failed).collect();
        let is_good = is_good && unread.is_empty();
        let plan = plan_text(&comparison.changes);
        says(format!("{paused}{left_out}{unread}{key_step}{plan}"), is_good)
    }
}

fn failed(error: &ApiError) -> String {
    format!("cannot be compared: {error}; {}\n", error.hint())
}

impl fmt::Display for ClusterPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "HostedCluster {}", self.key)?;
        self.text.lines().try_for_each(|line| writeln!(formatter, "  {line}"))
    }
}
