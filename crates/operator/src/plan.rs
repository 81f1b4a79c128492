//! Plans: shows the pending changes of each cluster without a write.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use lanyard_clock::{ErrorHint, SharedClock};
use lanyard_desired::ObjectChange;
use lanyard_desired::diff::format_plan;
use lanyard_desired::hosted_cluster::key_rotation::KeyRotationStep;
use lanyard_desired::objects::ControlPlaneOwner;
use lanyard_desired::{ObjectKey, ProblemSeverity, ValidationProblem, ValidationProblems};
use tokio::task::JoinSet;

use crate::apply::ObjectApplier;
use crate::classification::{ClusterClassification, ClusterPause, ValidCluster, classify_cluster};
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::deletion;
use crate::encryption_key;
use crate::error::ReconcileError;
use crate::fetch::fetch_objects;
use crate::finalizer::{self, FINALIZER};
use crate::lease::LeaseTerms;
use crate::namespace_owner::{self, NamespaceOwner};
use crate::objects::{NamespaceAge, ObjectComparison, compare_objects};
use crate::observe::{ObservedCluster, observe};
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
    /// Whether the operator would write or delete an object, add its finalizer, or write an id or a key record to
    /// the HostedCluster. The reported status is not part of the plan.
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
        if !observed.cluster.is_deleting {
            namespace_owner::read_namespace_owner(context, &mut observed).await;
        }
        // Plan the owned objects even if their owner does not exist yet.
        if observed.owner == ControlPlaneOwner::Absent {
            observed.owner = ControlPlaneOwner::WithoutUid;
        }
        let role = context.settings.role;
        let plan = match classify_cluster(&observed, &context.settings) {
            ClusterClassification::OtherKind(kind) => {
                ClusterPlan::without_changes(key, format!("no changes: this is {kind}\n"))
            }
            _ if observed.cluster.is_deleting => plan_deletion(&observed, role),
            ClusterClassification::Invalid(problems) => {
                ClusterPlan::incomplete(key, problems.iter().map(problem_line).collect())
            }
            ClusterClassification::LacksIds { missing, .. } => {
                let fields = missing.fields().join(" and ");
                ClusterPlan::with_changes(key, format!("generate first: {fields}\n"))
            }
            ClusterClassification::Valid(_) if role == OperatorRole::IdentityOnly => {
                ClusterPlan::without_changes(key, STATUS_ONLY.to_owned())
            }
            ClusterClassification::Valid(valid) => {
                return self.plan_valid_cluster(&observed, &valid).await;
            }
        };
        Some(plan)
    }

    /// Plans the finalizer, the key record and the objects of a valid cluster.
    async fn plan_valid_cluster(
        &self,
        observed: &ObservedCluster,
        valid: &ValidCluster,
    ) -> Option<ClusterPlan> {
        let (context, key) = (&self.context, &observed.key);
        let is_paused = valid.pause != ClusterPause::None;
        let paused = if is_paused { "paused: the operator writes no objects\n" } else { "" };
        let skipped = observed.unavailable_kinds.iter();
        let skipped = skipped
            .map(|it| format!("skipped: {}; {}\n", it.error, it.error.hint().unwrap_or_default()));
        let skipped: String = skipped.collect();
        if let NamespaceOwner::Unknown(error) = &observed.namespace_owner {
            let failure = comparison_failure(error);
            return Some(ClusterPlan::incomplete(key, format!("{paused}{skipped}{failure}")));
        }
        let finalizer = if is_paused || finalizer::has_finalizer(observed) {
            String::new()
        } else {
            format!("add the finalizer `{FINALIZER}`\n")
        };
        let next_step = if is_paused {
            Ok(KeyRotationStep::Unchanged)
        } else {
            encryption_key::next_key_step(context, observed, valid).await
        };
        if let Ok(KeyRotationStep::WouldLoseKey(problem)) = &next_step {
            let invalid = problem_line(problem);
            let text = format!("{paused}{skipped}{invalid}{finalizer}");
            let has_changes = !finalizer.is_empty();
            return Some(ClusterPlan { has_changes, ..ClusterPlan::incomplete(key, text) });
        }
        let record = PlannedKeyRecord::of(next_step, |message| {
            format!("record first, in `status.secretEncryption`: {message}\n")
        });
        let clock = SharedClock::clone(context.api.clock());
        let fencing_token = LeaseTerms::permanent(clock).fencing_token(key)?;
        let (api, stores, metrics) = (&context.api, &*context.stores, &context.metrics);
        let fencing_token = &fencing_token;
        let applier = ObjectApplier { api, stores, metrics, fencing_token };
        let namespace = match observed.namespace_owner {
            NamespaceOwner::Absent => NamespaceAge::New,
            _ => NamespaceAge::Existing,
        };
        let comparison = compare_objects(context, observed, valid, applier, namespace).await;
        let promotion = next_promotion(context, observed, valid, &comparison).await;
        let promotion = promotion.map(|step| {
            PlannedKeyRecord::of(step, |message| {
                format!("promote the key, in `status.secretEncryption`: {message}\n")
            })
        });
        let promotion = promotion.unwrap_or_default();
        let unread = comparison.errors.iter().map(comparison_failure);
        let unread: String = unread.chain([record.failure, promotion.failure]).collect();
        let unrendered = unrendered_lines(&valid.problems, &comparison.unrendered);
        let missing = comparison.lints.iter().map(|lint| format!("missing: {lint}\n"));
        let missing: String = missing.collect();
        let (record, promotion) = (record.change, promotion.change);
        let has_changes = !is_paused
            && (comparison.changes.iter().any(ObjectChange::is_write)
                || [&finalizer, &record, &promotion].into_iter().any(|it| !it.is_empty()));
        let is_applicable = unread.is_empty() && unrendered.is_empty();
        let plan = format_with_live_values(applier, &comparison.changes).await;
        let text = format!(
            "{paused}{skipped}{unread}{unrendered}{missing}{finalizer}{record}{promotion}{plan}"
        );
        Some(ClusterPlan { key: key.clone(), text, is_applicable, has_changes })
    }
}

impl ClusterPlan {
    fn without_changes(key: &ClusterKey, text: String) -> Self {
        Self { key: key.clone(), text, is_applicable: true, has_changes: false }
    }

    fn with_changes(key: &ClusterKey, text: String) -> Self {
        Self { has_changes: true, ..Self::without_changes(key, text) }
    }

    /// A plan without changes, because they could not be determined.
    fn incomplete(key: &ClusterKey, text: String) -> Self {
        Self { is_applicable: false, ..Self::without_changes(key, text) }
    }
}

/// Plans a cluster that is being deleted.
fn plan_deletion(observed: &ObservedCluster, role: OperatorRole) -> ClusterPlan {
    let key = &observed.key;
    if deletion::deletes_objects(role, observed) {
        let text = "being deleted: the operator would delete its objects\n".to_owned();
        return ClusterPlan::with_changes(key, text);
    }
    let text = match role {
        OperatorRole::IdentityOnly => STATUS_ONLY.to_owned(),
        OperatorRole::All => format!(
            "being deleted: the operator deletes no objects, because the finalizer `{FINALIZER}` \
             is missing\n"
        ),
    };
    ClusterPlan::without_changes(key, text)
}

/// The change of the key record that a plan shows.
#[derive(Debug, Default)]
struct PlannedKeyRecord {
    /// What would be recorded, as a line; empty without a change.
    change: String,
    /// Why the change is unknown, as a line; empty if it is known.
    failure: String,
}

impl PlannedKeyRecord {
    /// The lines about the next step of the keys. `change_line` formats that of a change, from its message.
    fn of(
        step: Result<KeyRotationStep, ReconcileError>,
        change_line: impl FnOnce(String) -> String,
    ) -> Self {
        match step {
            Ok(KeyRotationStep::Record { message, .. }) => {
                Self { change: change_line(message), failure: String::new() }
            }
            Ok(_) => Self::default(),
            Err(error) => {
                let failure = comparison_failure(&error);
                Self { change: String::new(), failure }
            }
        }
    }
}

/// The decision of the reconciliation about a new key; `None` if no rotation waits for the API servers, or if the
/// objects with the keys are not in sync.
async fn next_promotion(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    comparison: &ObjectComparison,
) -> Option<Result<KeyRotationStep, ReconcileError>> {
    let carriers = encryption_key::encryption_objects(&observed.namespace);
    let is_due = valid.pause == ClusterPause::None
        && encryption_key::awaits_promotion(context, valid)
        && carriers.iter().all(|carrier| comparison.is_in_sync(carrier));
    if !is_due {
        return None;
    }
    let decision = encryption_key::next_promotion_step(context, observed, valid).await;
    Some(decision.map(|decision| decision.step))
}

/// The values that single objects need and that cannot be used, and these objects.
fn unrendered_lines(problems: &ValidationProblems, unrendered: &BTreeSet<ObjectKey>) -> String {
    let errors = problems.iter().filter(|it| it.severity == ProblemSeverity::Error);
    let errors = errors.map(problem_line);
    errors.chain(unrendered.iter().map(|key| format!("leave {key} as it is\n"))).collect()
}

/// Formats the changes with the live values, which the comparison does not keep.
async fn format_with_live_values(applier: ObjectApplier<'_>, changes: &[ObjectChange]) -> String {
    let changed = changes.iter().filter(|it| matches!(it, ObjectChange::Apply { .. }));
    let changed = changed.map(|it| it.key().clone()).collect();
    let live = fetch_objects(applier.api, applier.stores, changed).await.objects;
    format_plan(changes, &live)
}

/// The line of a problem of the HostedCluster, with the suggested fix.
fn problem_line(problem: &ValidationProblem) -> String {
    let label = match problem.severity {
        ProblemSeverity::Error => "invalid",
        ProblemSeverity::Lint => "lint",
    };
    format!("{label}: {}\n", problem.line_with_hint())
}

fn comparison_failure(error: &(impl fmt::Display + ErrorHint)) -> String {
    format!("could not compare the objects: {error}; {}\n", error.hint().unwrap_or_default())
}

/// The plan of a cluster in role `identity-only`.
const STATUS_ONLY: &str = "the operator would only report the status of the identities\n";

impl fmt::Display for ClusterPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "HostedCluster {}", self.key)?;
        self.text.lines().try_for_each(|line| writeln!(formatter, "  {line}"))
    }
}
