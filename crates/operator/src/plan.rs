//! Plans: shows the pending changes of each cluster without a write.

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

/// The pending changes of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPlan {
    /// The cluster.
    pub key: ClusterKey,
    /// The changes, or why there are none, as lines of text.
    pub text: String,
    /// Whether the plan is complete: false for an invalid HostedCluster or a failed comparison.
    pub is_applicable: bool,
}

impl Operator {
    /// Plans every cluster, sorted by name. Writes nothing.
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
        // Plan the owned objects even if their owner does not exist yet.
        if observed.owner == ControlPlaneOwner::Absent {
            observed.owner = ControlPlaneOwner::WithoutUid;
        }
        let plan_with = |text: String, is_applicable| {
            Some(ClusterPlan { key: key.clone(), text, is_applicable })
        };
        if observed.cluster.is_deleting {
            return plan_with(
                "being deleted: the operator would delete its objects\n".to_owned(),
                true,
            );
        }
        let valid = match classify_cluster(&observed, &context.settings) {
            ClusterClassification::OtherKind(kind) => {
                return plan_with(format!("no changes: this is {kind}\n"), true);
            }
            ClusterClassification::Invalid(problems) => {
                let lines = problems.iter().map(|problem| format!("invalid: {problem}\n"));
                return plan_with(lines.collect(), false);
            }
            ClusterClassification::Valid(valid) => valid,
        };
        if context.settings.role == OperatorRole::IdentityOnly {
            return plan_with(
                "the operator would only report the status of the identities\n".to_owned(),
                true,
            );
        }
        let clock = SharedClock::clone(context.api.clock());
        let fencing_token = LeaseTerms::permanent(clock).fencing_token(key)?;
        let (api, stores, metrics) = (&context.api, &*context.stores, &context.metrics);
        let applier = ObjectApplier { api, stores, metrics, fencing_token: &fencing_token };
        let paused = if valid.pause == ClusterPause::None {
            ""
        } else {
            "paused: the operator writes no objects\n"
        };
        let skipped: Vec<_> = observed
            .unavailable_kinds
            .iter()
            .map(|it| format!("skipped: {}; {}\n", it.error, it.error.hint()))
            .collect();
        let skipped = skipped.concat();
        if let NamespaceOwner::Unknown(error) = &observed.namespace_owner {
            return plan_with(comparison_failure(error), false);
        }
        let (key_step, is_applicable) =
            match encryption_key::next_key_step(context, &observed, &valid).await {
                Ok(KeyRotationStep::Unchanged) => (String::new(), true),
                Ok(KeyRotationStep::Record { message, .. }) => {
                    (format!("record first, in `status.secretEncryption`: {message}\n"), true)
                }
                Ok(KeyRotationStep::WouldLoseKey(problem)) => {
                    return plan_with(format!("invalid: {problem}\n"), false);
                }
                Err(error) => {
                    (format!("could not compare the objects: {error}; {}\n", error.hint()), false)
                }
            };
        let namespace = match observed.namespace_owner {
            NamespaceOwner::Absent => NamespaceAge::New,
            _ => NamespaceAge::Existing,
        };
        let comparison = compare_objects(context, &observed, &valid, applier, namespace).await;
        let unread: String = comparison.errors.iter().map(comparison_failure).collect();
        let is_applicable = is_applicable && unread.is_empty();
        let plan = format_plan(&comparison.changes);
        plan_with(format!("{paused}{skipped}{unread}{key_step}{plan}"), is_applicable)
    }
}

fn comparison_failure(error: &ApiError) -> String {
    format!("could not compare the objects: {error}; {}\n", error.hint())
}

impl fmt::Display for ClusterPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "HostedCluster {}", self.key)?;
        self.text.lines().try_for_each(|line| writeln!(formatter, "  {line}"))
    }
}
