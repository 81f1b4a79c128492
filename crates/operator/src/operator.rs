//! The operator's tasks: watches fill the stores and enqueue clusters, workers reconcile them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use lanyard_clock::{ErrorHint as _, SharedClock};
use lanyard_kubernetes::{KubernetesApi, WatchUpdate};
use lanyard_telemetry::prometheus_client::registry::Registry;
use lanyard_telemetry::{Readiness, ReadinessGate};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster_key::ClusterKey;
use crate::conflict_backoff::ConflictBackoff;
use crate::context::ReconcileContext;
use crate::error::ReconcileError;
use crate::events::EventBudgets;
use crate::lease::{LeaseCandidate, LeaseTerms};
use crate::metrics::{OperatorMetrics, OperatorStateCollector};
use crate::queue::{ReconcileId, ReconcileQueue, ReconcileTrigger, Requeue};
use crate::reconcile::reconcile;
use crate::references::ReferenceReads;
use crate::settings::{OperatorRole, OperatorSettings};
use crate::shared_credentials::SharedCredentials;
use crate::status::HOSTED_CLUSTER_CONDITIONS;
use crate::store::{ComparisonScope, KindState, ListProgress, WatchStores};
use crate::watched_kinds::WatchedKind;

/// The operator of one process: watches, workers and leader election.
pub struct Operator {
    pub(crate) context: Arc<ReconcileContext>,
    queue: ReconcileQueue,
    lease_terms: LeaseTerms,
    /// Counts the changes of kinds between usable and unusable.
    kind_changes: watch::Sender<u64>,
    gate: ReadinessGate,
}

impl Operator {
    /// Creates an operator. Sends no request.
    pub fn new(api: KubernetesApi, settings: OperatorSettings, readiness: &Readiness) -> Self {
        let clock = SharedClock::clone(api.clock());
        let lease_terms = match &settings.leases {
            Some(leases) => LeaseTerms::without_shards(leases.shards, SharedClock::clone(&clock)),
            None => LeaseTerms::permanent(SharedClock::clone(&clock)),
        };
        let compared = match settings.role {
            OperatorRole::All => ComparisonScope::LedClusters(lease_terms.clone()),
            OperatorRole::IdentityOnly => ComparisonScope::Nothing,
        };
        let context = Arc::new(ReconcileContext {
            api,
            stores: Arc::new(WatchStores::new(&HOSTED_CLUSTER_CONDITIONS, compared)),
            settings,
            metrics: OperatorMetrics::default(),
            event_budgets: Mutex::new(EventBudgets::default()),
            shared_credentials: Mutex::new(SharedCredentials::default()),
            reference_reads: Mutex::new(ReferenceReads::default()),
            conflict_backoff: Mutex::new(ConflictBackoff::default()),
            drift_histories: Mutex::new(HashMap::new()),
        });
        let gate = readiness.add_gate("watches", "the watched kinds are not listed yet");
        let kind_changes = watch::Sender::new(0);
        Self { context, queue: ReconcileQueue::new(clock), lease_terms, kind_changes, gate }
    }

    /// Registers all metrics of the operator.
    pub fn register(&self, registry: &mut Registry) {
        self.context.metrics.register(registry);
        registry.register_collector(Box::new(OperatorStateCollector {
            stores: Arc::clone(&self.context.stores),
            lease_terms: self.lease_terms.clone(),
            queue: self.queue.clone(),
            role: self.context.settings.role,
            policy: self.context.settings.policy,
            clock: SharedClock::clone(self.context.api.clock()),
        }));
    }

    /// Runs until `end` resolves. Then no further reconciliation starts, running ones get some time to
    /// finish, and the process releases its leases.
    ///
    /// It returns earlier only if one of its tasks ended unexpectedly: without its watches, its workers or
    /// its election the process would be idle.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let operator = Arc::new(self);
        let mut end = std::pin::pin!(end);
        let mut parts = OperatorTasks::default();
        operator.spawn_watches(&mut parts.tasks);
        let is_listed = tokio::select! {
            () = operator.wait_until_listed() => true,
            () = &mut end => false,
            () = parts.wait_for_unexpected_exit() => false,
        };
        if is_listed {
            for follow in [ChangeSource::Kinds, ChangeSource::LeaseTerms] {
                let operator = Arc::clone(&operator);
                parts.tasks.spawn(async move { operator.follow_changes(follow).await });
            }
            let mut election = operator.start_election();
            let mut workers = operator.start_workers();
            tokio::select! {
                () = end => {}
                () = parts.wait_for_unexpected_exit() => {}
                () = election.wait_for_unexpected_exit() => {}
                () = workers.wait_for_unexpected_exit() => {}
            }
            workers.stop_and_wait(DRAIN_TIMEOUT, operator.context.api.clock()).await;
            election.stop_and_wait(RELEASE_TIMEOUT, operator.context.api.clock()).await;
        }
        parts.tasks.shutdown().await;
    }

    fn start_election(&self) -> OperatorTasks {
        let mut operator_tasks = OperatorTasks::default();
        if let Some(leases) = self.context.settings.leases.clone() {
            let api = self.context.api.clone();
            let candidate = LeaseCandidate::new(api, leases, self.lease_terms.clone());
            let end = operator_tasks.stop_requested();
            operator_tasks.tasks.spawn(candidate.run(end));
        }
        operator_tasks
    }

    fn start_workers(self: &Arc<Self>) -> OperatorTasks {
        let mut operator_tasks = OperatorTasks::default();
        for _ in 0..self.context.settings.workers.max(1) {
            let operator = Arc::clone(self);
            let end = operator_tasks.stop_requested();
            operator_tasks.tasks.spawn(async move { operator.run_worker(end).await });
        }
        operator_tasks
    }

    /// Spawns one watch per kind.
    pub(crate) fn spawn_watches(self: &Arc<Self>, parts: &mut JoinSet<()>) {
        for kind in WatchedKind::of(self.context.settings.role) {
            let operator = Arc::clone(self);
            parts.spawn(async move { operator.watch_kind(kind).await });
        }
    }

    async fn watch_kind(&self, kind: WatchedKind) {
        let ReconcileContext { api, stores, settings, metrics, .. } = &*self.context;
        let subject = kind.watched_resource(settings.role);
        let mut list_progress = ListProgress::default();
        let mut usable = KindUsability::Unknown;
        let take = |update| {
            match &update {
                WatchUpdate::ListStarted => metrics.record_list(kind.name()),
                WatchUpdate::Failed(..) => metrics.record_watch_failure(kind.name()),
                WatchUpdate::Applied(_) | WatchUpdate::Deleted(_) | WatchUpdate::ListCompleted => {}
            }
            let now = api.clock().monotonic();
            for (key, trigger) in stores.apply_watch_update(kind, update, &mut list_progress, now) {
                if kind == WatchedKind::HostedClusters {
                    for other in self.context.track_shared_credentials(&key) {
                        self.queue.enqueue(&other, ReconcileTrigger::RelatedChanged);
                    }
                }
                self.queue.enqueue(&key, trigger);
            }
            let now = KindUsability::of(&stores.kind_state(kind));
            if std::mem::replace(&mut usable, now) != now {
                self.kind_changes.send_modify(|count| *count += 1);
            }
        };
        subject.to_watch().follow(api, take).await;
    }

    /// Waits until every kind is listed or known to be unusable.
    pub(crate) async fn wait_until_listed(&self) {
        let mut kinds = self.kind_changes.subscribe();
        while !self.update_readiness() {
            // It fails only without a sender, and `self` holds one.
            drop(kinds.changed().await);
        }
    }

    /// Whether every kind is listed or known to be unusable. Updates the readiness gate to match.
    fn update_readiness(&self) -> bool {
        let (mut waiting, mut missing) = (Vec::new(), Vec::new());
        for kind in WatchedKind::of(self.context.settings.role) {
            match self.context.stores.kind_state(kind) {
                KindState::Unlisted => waiting.push(kind.name()),
                KindState::Unusable(error) | KindState::Stale(error) if kind.is_required() => {
                    missing.push(error.to_string());
                }
                KindState::Unusable(_) | KindState::Stale(_) | KindState::Listed => {}
            }
        }
        if !missing.is_empty() {
            self.gate.close(missing.join("; "));
        } else if waiting.is_empty() {
            self.gate.open();
        } else {
            self.gate.close(format!("not listed yet: {}", waiting.join(", ")));
        }
        waiting.is_empty() && missing.is_empty()
    }

    /// Updates readiness whenever the state of a kind changes, or enqueues all clusters whenever the leases
    /// of this process change.
    async fn follow_changes(&self, follow: ChangeSource) {
        let mut changes = match follow {
            ChangeSource::Kinds => self.kind_changes.subscribe(),
            ChangeSource::LeaseTerms => self.lease_terms.subscribe_changes(),
        };
        let mut before = self.lease_terms.led_shards();
        while changes.changed().await.is_ok() {
            match follow {
                ChangeSource::Kinds => drop(self.update_readiness()),
                ChangeSource::LeaseTerms => {
                    self.context.stores.drop_unneeded_content();
                    self.forget_lost_shards(&mut before);
                    for key in self.context.stores.clusters() {
                        self.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
                    }
                }
            }
        }
    }

    /// Drops the in-memory state of clusters that this process did not lead `before` or does not lead now.
    pub(crate) fn forget_lost_shards(&self, before: &mut BTreeSet<u32>) {
        let now = self.lease_terms.led_shards();
        let retained: BTreeSet<_> = before.intersection(&now).copied().collect();
        let shards = self.lease_terms.shards();
        self.context.retain_clusters(|key| retained.contains(&key.shard(shards)));
        *before = now;
    }

    async fn run_worker(&self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            // Reconciling a cluster in sync never awaits, and a thousand of them would starve the watches
            // and the lease renewal.
            tokio::task::yield_now().await;
            let (key, reconcile_id) = tokio::select! {
                biased;
                () = &mut end => return,
                taken = self.queue.take_next() => taken,
            };
            self.reconcile_cluster(&key, reconcile_id).await;
        }
    }

    /// Removes a cluster from the queue, because another replica leads it.
    fn dequeue_if_not_leader(&self, key: &ClusterKey) {
        self.queue.remove(key);
        // This process may have acquired the shard meanwhile; removal also dropped that trigger.
        if self.lease_terms.fencing_token(key).is_some() {
            self.queue.enqueue(key, ReconcileTrigger::SpecChanged);
        }
    }

    async fn reconcile_cluster(&self, key: &ClusterKey, reconcile_id: ReconcileId) {
        // A change of the leases enqueues the cluster again.
        let Some(fencing_token) = self.lease_terms.fencing_token(key) else {
            return self.dequeue_if_not_leader(key);
        };
        let clock = self.context.api.clock();
        let began = clock.monotonic();
        // A panic for one cluster must not end the worker. A reconciliation keeps no state except in the
        // stores, which are consistent between two calls.
        let reconciliation =
            AssertUnwindSafe(reconcile(&self.context, key, &fencing_token)).catch_unwind();
        let outcome = reconciliation.await.unwrap_or(Err(ReconcileError::Panicked));
        let took = clock.monotonic().saturating_sub(began);
        let (result, requeue) = match &outcome {
            Ok(requeue) => ("good", *requeue),
            Err(error) => (error.category(), error.requeue()),
        };
        self.context.metrics.record_reconcile(result, took);
        if matches!(outcome, Err(ReconcileError::NotLeader)) {
            return self.dequeue_if_not_leader(key);
        }
        let failures = self.queue.finish(key, reconcile_id, requeue);
        // A failure must not delay a write whose back-off ends sooner than the retry.
        if let Some(due) = self.context.next_write_due(key).filter(|_| outcome.is_err()) {
            self.queue.requeue_by(key, due);
        }
        if let Err(error) = &outcome {
            // Warn about a transient error only once it repeats.
            if failures >= FAILURES_BEFORE_WARNING
                || !matches!(requeue, Requeue::RetrySoon | Requeue::RetryAfter(_))
            {
                tracing::warn!(cluster = %key, failures, hint = error.hint().as_deref(), "{error}");
            } else {
                tracing::debug!(cluster = %key, failures, "{error}");
            }
        }
        if self.context.stores.cluster(key).is_none() {
            self.queue.remove(key);
            // The HostedCluster may have been created again meanwhile.
            if self.context.stores.cluster(key).is_some() {
                self.queue.enqueue(key, ReconcileTrigger::SpecChanged);
            }
        }
    }
}

/// The usability of a kind, without the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KindUsability {
    Unknown,
    Usable,
    Unusable,
}

impl KindUsability {
    const fn of(kind: &KindState) -> Self {
        match kind {
            KindState::Unlisted => Self::Unknown,
            KindState::Listed => Self::Usable,
            KindState::Stale(_) | KindState::Unusable(_) => Self::Unusable,
        }
    }
}

/// The source of changes that a task follows, besides the watches.
#[derive(Debug, Clone, Copy)]
enum ChangeSource {
    Kinds,
    LeaseTerms,
}

/// Tasks that end on request.
struct OperatorTasks {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Default for OperatorTasks {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), stop: watch::Sender::new(false) }
    }
}

impl OperatorTasks {
    fn stop_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move { drop(stop.wait_for(|stop| *stop).await) }
    }

    /// Waits until a task ends without a stop request; forever if there are no tasks.
    async fn wait_for_unexpected_exit(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(())) => tracing::error!("an operator task ended unexpectedly"),
            Some(Err(error)) => tracing::error!("an operator task failed: {error}"),
            None => std::future::pending().await,
        }
    }

    /// Requests the stop and waits for the tasks, for at most `timeout`.
    async fn stop_and_wait(mut self, timeout: Duration, clock: &SharedClock) {
        self.stop.send_replace(true);
        tokio::select! {
            () = async { while self.tasks.join_next().await.is_some() {} } => {}
            () = clock.sleep(timeout) => {}
        }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Operator")
            .field("queue", &self.queue)
            .field("lease_terms", &self.lease_terms)
            .finish_non_exhaustive()
    }
}

/// The time for running reconciliations to finish. With the release of the leases it fits into the
/// termination grace period of a pod.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// The time for the release of the leases.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of consecutive failures after which a transient error is logged as a warning.
const FAILURES_BEFORE_WARNING: u32 = 3;

#[cfg(test)]
mod tests;
