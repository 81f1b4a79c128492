//! Plans: shows the pending changes of each cluster without a write.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use lanyard_clock::SharedClock;
use lanyard_desired::ObjectChange;
use lanyard_desired::diff::format_plan;
use lanyard_desired::hosted_cluster::key_rotation::KeyRotationStep;
use lanyard_desired::objects::ControlPlaneOwner;
use lanyard_desired::{ObjectKey, ProblemSeverity, ValidationProblems};
use lanyard_kubernetes::ApiError;
use tokio::task::JoinSet;

use crate::apply::ObjectApplier;
use crate::classification::{ClusterClassification, ClusterPause, classify_cluster};
use crate::cluster_key::ClusterKey;
use crate::encryption_key;
use crate::error::ReconcileError;
use crate::fetch::fetch_objects;
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
    /// Whether the plan is complete: false for an invalid HostedCluster, a failed comparison, or an object
    /// that cannot be rendered.
    pub is_applicable: bool,
    /// Whether the operator would write or delete an object.
    pub has_changes: bool,
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
        let plan_without_changes = |text: String, is_applicable| {
            Some(ClusterPlan { key: key.clone(), text, is_applicable, has_changes: false })
        };
        let plan_with_changes = |text: String| {
            Some(ClusterPlan { key: key.clone(), text, is_applicable: true, has_changes: true })
        };
        if observed.cluster.is_deleting {
            let text = "being deleted: the operator would delete its objects\n".to_owned();
            return plan_with_changes(text);
        }
        let valid = match classify_cluster(&observed, &context.settings) {
            ClusterClassification::OtherKind(kind) => {
                return plan_without_changes(format!("no changes: this is {kind}\n"), true);
            }
            ClusterClassification::Invalid(problems) => {
                let lines = problems.iter().map(|problem| format!("invalid: {problem}\n"));
                return plan_without_changes(lines.collect(), false);
            }
            ClusterClassification::LacksIds(missing) => {
                let fields = missing.fields().join(" and ");
                return plan_with_changes(format!("generate first: {fields}\n"));
            }
            ClusterClassification::Valid(valid) => valid,
        };
        if context.settings.role == OperatorRole::IdentityOnly {
            return plan_without_changes(
                "the operator would only report the status of the identities\n".to_owned(),
                true,
            );
        }
        let clock = SharedClock::clone(context.api.clock());
        let fencing_token = LeaseTerms::permanent(clock).fencing_token(key)?;
        let (api, stores, metrics) = (&context.api, &*context.stores, &context.metrics);
        let fencing_token = &fencing_token;
        let applier =
            ObjectApplier { api, stores, metrics, fencing_token, access_written_at: None };
        let paused = if valid.pause == ClusterPause::None {
            ""
        } else {
            "paused: the operator writes no objects\n"
        };
        let skipped = observed.unavailable_kinds.iter();
        let skipped = skipped.map(|it| format!("skipped: {}; {}\n", it.error, it.error.hint()));
        let skipped: String = skipped.collect();
        if let NamespaceOwner::Unknown(error) = &observed.namespace_owner {
            return plan_without_changes(comparison_failure(error), false);
        }
        let step = encryption_key::next_key_step(context, &observed, &valid).await;
        if let Ok(KeyRotationStep::WouldLoseKey(problem)) = &step {
            return plan_without_changes(format!("invalid: {problem}\n"), false);
        }
        let is_applicable = step.is_ok();
        let key_step = describe_key_step(step);
        let namespace = match observed.namespace_owner {
            NamespaceOwner::Absent => NamespaceAge::New,
            _ => NamespaceAge::Existing,
        };
        let comparison = compare_objects(context, &observed, &valid, applier, namespace).await;
        let unread: String = comparison.errors.iter().map(comparison_failure).collect();
        let unrendered = unrendered_lines(&valid.problems, &comparison.unrendered);
        let is_applicable = is_applicable && unread.is_empty() && unrendered.is_empty();
        let missing = comparison.lints.iter().map(|lint| format!("missing: {lint}\n"));
        let missing: String = missing.collect();
        let has_changes = valid.pause == ClusterPause::None
            && (!key_step.is_empty() || comparison.changes.iter().any(ObjectChange::is_write));
        let plan = format_with_live_values(applier, &comparison.changes).await;
        let text = format!("{paused}{skipped}{unread}{unrendered}{missing}{key_step}{plan}");
        Some(ClusterPlan { key: key.clone(), text, is_applicable, has_changes })
    }
}

/// What would be recorded about the encryption keys, or why that is unknown.
fn describe_key_step(step: Result<KeyRotationStep, ReconcileError>) -> String {
    match step {
        Ok(KeyRotationStep::Record { message, .. }) => {
            format!("record first, in `status.secretEncryption`: {message}\n")
        }
        Ok(_) => String::new(),
        Err(error) => format!("could not compare the objects: {error}; {}\n", error.hint()),
    }
}

/// The values that single objects need and that cannot be used, and these objects.
fn unrendered_lines(problems: &ValidationProblems, unrendered: &BTreeSet<ObjectKey>) -> String {
    let errors = problems.iter().filter(|it| it.severity == ProblemSeverity::Error);
    let errors = errors.map(|problem| format!("invalid: {problem}\n"));
    errors.chain(unrendered.iter().map(|key| format!("leave {key} as it is\n"))).collect()
}

/// Formats the changes with the live values, which the comparison does not keep.
async fn format_with_live_values(applier: ObjectApplier<'_>, changes: &[ObjectChange]) -> String {
    let changed = changes.iter().filter(|it| matches!(it, ObjectChange::Apply { .. }));
    let changed = changed.map(|it| it.key().clone()).collect();
    let live = fetch_objects(applier.api, applier.stores, changed).await.objects;
    format_plan(changes, &live)
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
