//! What would be done, without doing it.

use std::fmt;
use std::sync::Arc;

use lanyard_clock::SharedClock;
use lanyard_desired::diff::format_plan;
use lanyard_desired::hosted_cluster::key_rotation::KeyRotationStep;
use lanyard_desired::objects::ControlPlaneOwner;
use lanyard_kubernetes::ApiError;
use tokio::task::JoinSet;

use crate::apply::ObjectApplier;
use crate::classification::{ClusterClassification, ClusterPause, classify_cluster};
use crate::cluster_key::ClusterKey;
use crate::encryption_key;
use crate::lease::LeaseTerms;
use crate::namespace_owner::{self, NamespaceOwner};
use crate::objects::{NamespaceAge, compare_objects};
use crate::observe::observe;
use crate::operator::Operator;
use crate::settings::OperatorRole;

/// What would be done about one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPlan {
    /// The cluster.
    pub key: ClusterKey,
    /// What would be done, or why nothing, in lines.
    pub text: String,
    /// Whether the cluster can be used, or is left alone because it is of another kind.
    pub is_applicable: bool,
}

impl Operator {
    /// What would be done about every cluster, by its name. Nothing is written.
    pub async fn plan(self) -> Vec<ClusterPlan> {
        let operator = Arc::new(self);
        let mut parts = JoinSet::new();
        operator.spawn_watches(&mut parts);
        operator.wait_until_listed().await;
        let mut plans = Vec::new();
        for key in operator.context.stores.clusters() {
            plans.extend(operator.plan_cluster(&key).await);
        }
        parts.shutdown().await;
        plans
    }

    async fn plan_cluster(&self, key: &ClusterKey) -> Option<ClusterPlan> {
        let context = &self.context;
        let mut observed = observe(context, key)?;
        namespace_owner::read_namespace_owner(context, &mut observed).await;
        // What is owned is shown, too, where the owner would be made first.
        if observed.owner == ControlPlaneOwner::Absent {
            observed.owner = ControlPlaneOwner::WithoutUid;
        }
        let says = |text: String, is_good| {
            Some(ClusterPlan { key: key.clone(), text, is_applicable: is_good })
        };
        if observed.cluster.is_deleting {
            return says("it is being deleted: what was made for it would go\n".to_owned(), true);
        }
        let usable = match classify_cluster(&observed, &context.settings) {
            ClusterClassification::OtherKind(kind) => {
                return says(format!("nothing: this is {kind}\n"), true);
            }
            ClusterClassification::Invalid(problems) => {
                let lines = problems.iter().map(|problem| format!("cannot be used: {problem}\n"));
                return says(lines.collect(), false);
            }
            ClusterClassification::Valid(usable) => usable,
        };
        if context.settings.role == OperatorRole::IdentityOnly {
            return says(
                "how its identities are would be told, and nothing else\n".to_owned(),
                true,
            );
        }
        let clock = SharedClock::clone(context.api.clock());
        let fence = LeaseTerms::permanent(clock).fencing_token(key)?;
        let (api, stores, metrics) = (&context.api, &*context.stores, &context.metrics);
        let applier = ObjectApplier { api, stores, metrics, fencing_token: &fence };
        let paused =
            if usable.pause == ClusterPause::None { "" } else { "paused: nothing is written\n" };
        let left_out: Vec<_> = observed
            .unavailable_kinds
            .iter()
            .map(|it| format!("left out: {}; {}\n", it.error, it.error.hint()))
            .collect();
        let left_out = left_out.concat();
        if let NamespaceOwner::Unknown(error) = &observed.namespace_owner {
            return says(comparison_failure(error), false);
        }
        let (key_step, is_good) =
            match encryption_key::next_key_step(context, &observed, &usable).await {
                Ok(KeyRotationStep::Unchanged) => (String::new(), true),
                Ok(KeyRotationStep::Record { message, .. }) => {
                    (format!("recorded first, in status.secretEncryption: {message}\n"), true)
                }
                Ok(KeyRotationStep::WouldLoseKey(problem)) => {
                    return says(format!("cannot be used: {problem}\n"), false);
                }
                Err(error) => (format!("cannot be compared: {error}; {}\n", error.hint()), false),
            };
        let namespace = match observed.namespace_owner {
            NamespaceOwner::Absent => NamespaceAge::New,
            _ => NamespaceAge::Existing,
        };
        let comparison = compare_objects(context, &observed, &usable, applier, namespace).await;
        let unread: String = comparison.errors.iter().map(comparison_failure).collect();
        let is_good = is_good && unread.is_empty();
        let plan = format_plan(&comparison.changes);
        says(format!("{paused}{left_out}{unread}{key_step}{plan}"), is_good)
    }
}

fn comparison_failure(error: &ApiError) -> String {
    format!("cannot be compared: {error}; {}\n", error.hint())
}

impl fmt::Display for ClusterPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "HostedCluster {}", self.key)?;
        self.text.lines().try_for_each(|line| writeln!(formatter, "  {line}"))
    }
}
