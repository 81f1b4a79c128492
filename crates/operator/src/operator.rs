//! The operator, put together: watches fill the stores, changes wake clusters, workers look at them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{KubernetesApi, Seen};
use lanyard_telemetry::prometheus_client::registry::Registry;
use lanyard_telemetry::{Gate, Readiness};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::contest::Contests;
use crate::context::Context;
use crate::error::ReconcileError;
use crate::events::EventBudgets;
use crate::key::ClusterKey;
use crate::kinds::WatchedKind;
use crate::lease::{Candidate, Tenures};
use crate::metrics::{Knowledge, OperatorMetrics};
use crate::queue::{Again, Queue, Turn, Wake};
use crate::reconcile::reconcile;
use crate::settings::{OperatorSettings, Role};
use crate::shared::SharedCredentials;
use crate::status::CONDITIONS;
use crate::store::{Compared, Kind, Stores, Telling};

/// The operator of one process.
pub struct Operator {
    pub(crate) context: Arc<Context>,
    queue: Queue,
    tenures: Tenures,
    /// Counts the kinds that became usable or not.
    kinds: watch::Sender<u64>,
    gate: Gate,
}

impl Operator {
    /// An operator at this API. Nothing is asked yet.
    pub fn new(api: KubernetesApi, settings: OperatorSettings, readiness: &Readiness) -> Self {
        let clock = SharedClock::clone(api.clock());
        let tenures = match &settings.leases {
            Some(leases) => Tenures::none(leases.shards, SharedClock::clone(&clock)),
            None => Tenures::for_ever(SharedClock::clone(&clock)),
        };
        let compared = match settings.role {
            Role::All => Compared::Led(tenures.clone()),
            Role::IdentityOnly => Compared::Nobodys,
        };
        let context = Arc::new(Context {
            api,
            stores: Arc::new(Stores::new(&CONDITIONS, compared)),
            settings,
            metrics: OperatorMetrics::default(),
            budgets: Mutex::new(EventBudgets::default()),
            shared: Mutex::new(SharedCredentials::default()),
            contests: Mutex::new(Contests::default()),
            memories: Mutex::new(HashMap::new()),
        });
        let gate = readiness.gate("watches", "not everything is listed yet");
        let kinds = watch::Sender::new(0);
        Self { context, queue: Queue::new(clock), tenures, kinds, gate }
    }

    /// Puts every number on a page.
    pub fn register(&self, registry: &mut Registry) {
        self.context.metrics.register(registry);
        registry.register_collector(Box::new(Knowledge {
            stores: Arc::clone(&self.context.stores),
            tenures: self.tenures.clone(),
            queue: self.queue.clone(),
            role: self.context.settings.role,
            policy: self.context.settings.policy,
            clock: SharedClock::clone(self.context.api.clock()),
        }));
    }

    /// Works until the end. Then no look begins any more, those that have begun may go on for a
    /// while, and what this process leads is given back.
    ///
    /// It ends by itself only where a part of it did, by a defect: without its watches, its workers or
    /// its election it would go on and do nothing.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let operator = Arc::new(self);
        let mut end = std::pin::pin!(end);
        let mut parts = Crew::default();
        operator.watch(&mut parts.tasks);
        let is_listed = tokio::select! {
            () = operator.listed() => true,
            () = &mut end => false,
            () = parts.lost() => false,
        };
        if is_listed {
            for follow in [Follow::Kinds, Follow::Tenures] {
                let operator = Arc::clone(&operator);
                parts.tasks.spawn(async move { operator.keep_up(follow).await });
            }
            let mut election = operator.begin_election();
            let mut workers = operator.begin_work();
            tokio::select! {
                () = end => {}
                () = parts.lost() => {}
                () = election.lost() => {}
                () = workers.lost() => {}
            }
            workers.end(DRAIN, operator.context.api.clock()).await;
            election.end(RELEASE, operator.context.api.clock()).await;
        }
        parts.tasks.shutdown().await;
    }

    fn begin_election(&self) -> Crew {
        let mut crew = Crew::default();
        if let Some(leases) = self.context.settings.leases.clone() {
            let api = self.context.api.clone();
            let candidate = Candidate::new(api, leases, self.tenures.clone());
            let end = crew.asked_to_end();
            crew.tasks.spawn(candidate.run(end));
        }
        crew
    }

    fn begin_work(self: &Arc<Self>) -> Crew {
        let mut crew = Crew::default();
        for _ in 0..self.context.settings.workers.max(1) {
            let operator = Arc::clone(self);
            let end = crew.asked_to_end();
            crew.tasks.spawn(async move { operator.work(end).await });
        }
        crew
    }

    /// Begins to watch everything.
    pub(crate) fn watch(self: &Arc<Self>, parts: &mut JoinSet<()>) {
        for kind in WatchedKind::of(self.context.settings.role) {
            let operator = Arc::clone(self);
            parts.spawn(async move { operator.follow(kind).await });
        }
    }

    async fn follow(&self, kind: WatchedKind) {
        let Context { api, stores, settings, metrics, .. } = &*self.context;
        let subject = kind.subject(settings.role);
        let mut telling = Telling::default();
        let mut usable = Usability::Unknown;
        let take = |seen| {
            match &seen {
                Seen::Anew => metrics.listed(kind.name()),
                Seen::Broken(..) => metrics.watch_broke(kind.name()),
                Seen::There(_) | Seen::Gone(_) | Seen::Complete => {}
            }
            let now = api.clock().monotonic();
            for (key, wake) in stores.see(kind, seen, &mut telling, now) {
                if kind == WatchedKind::HostedClusters {
                    for other in self.context.learn(&key) {
                        self.queue.wake(&other, Wake::Surroundings);
                    }
                }
                self.queue.wake(&key, wake);
            }
            let now = Usability::of(&stores.kind(kind));
            if std::mem::replace(&mut usable, now) != now {
                self.kinds.send_modify(|count| *count += 1);
            }
        };
        subject.watch().follow(api, take).await;
    }

    /// Ready when every kind was listed, or is known not to be usable.
    pub(crate) async fn listed(&self) {
        let mut kinds = self.kinds.subscribe();
        while !self.look_at_kinds() {
            // It fails only without a sender, and we hold one.
            drop(kinds.changed().await);
        }
    }

    /// Whether every kind was listed, or is known not to be usable; the gate tells the same.
    fn look_at_kinds(&self) -> bool {
        let (mut waiting, mut missing) = (Vec::new(), Vec::new());
        for kind in WatchedKind::of(self.context.settings.role) {
            match self.context.stores.kind(kind) {
                Kind::Unlisted => waiting.push(kind.name()),
                Kind::Unusable(error) | Kind::Stale(error) if kind.is_needed() => {
                    missing.push(error.to_string());
                }
                Kind::Unusable(_) | Kind::Stale(_) | Kind::Listed => {}
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

    /// Tells whether everything is usable, or looks at everything anew that this process leads from
    /// now on, whenever that changes.
    async fn keep_up(&self, follow: Follow) {
        let mut changes = match follow {
            Follow::Kinds => self.kinds.subscribe(),
            Follow::Tenures => self.tenures.changes(),
        };
        let mut before = self.tenures.held();
        while changes.changed().await.is_ok() {
            match follow {
                Follow::Kinds => drop(self.look_at_kinds()),
                Follow::Tenures => {
                    self.context.stores.trim();
                    self.forget_what_was_lost(&mut before);
                    for key in self.context.stores.clusters() {
                        self.queue.wake(&key, Wake::Wish);
                    }
                }
            }
        }
    }

    /// Forgets what was remembered of clusters that were not led here `before`, or are not now.
    pub(crate) fn forget_what_was_lost(&self, before: &mut BTreeSet<u32>) {
        let now = self.tenures.held();
        let kept: BTreeSet<_> = before.intersection(&now).copied().collect();
        let shards = self.tenures.shards();
        self.context.forget_all_but(|key| kept.contains(&key.shard(shards)));
        *before = now;
    }

    async fn work(&self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            // A look at what is settled waits for nothing, and a thousand of them would keep the
            // watches and the lease from the thread.
            tokio::task::yield_now().await;
            let (key, turn) = tokio::select! {
                biased;
                () = &mut end => return,
                taken = self.queue.take() => taken,
            };
            self.look(&key, turn).await;
        }
    }

    /// Leaves a cluster to whoever leads it.
    fn leave(&self, key: &ClusterKey) {
        self.queue.remove(key);
        // Its shard may have been won in between, and the wake of that was removed, too.
        if self.tenures.fence(key).is_some() {
            self.queue.wake(key, Wake::Wish);
        }
    }

    async fn look(&self, key: &ClusterKey, turn: Turn) {
        // What another replica leads is woken when that changes.
        let Some(fence) = self.tenures.fence(key) else { return self.leave(key) };
        let clock = self.context.api.clock();
        let began = clock.monotonic();
        // One cluster that leads into a defect takes no worker from all others. Nothing of a look is
        // kept but what the stores hold, and they are whole between two calls.
        let look = AssertUnwindSafe(reconcile(&self.context, key, &fence)).catch_unwind();
        let outcome = look.await.unwrap_or(Err(ReconcileError::Panicked));
        let took = clock.monotonic().saturating_sub(began);
        let (result, again) = match &outcome {
            Ok(again) => ("good", *again),
            Err(error) => (error.category(), error.again()),
        };
        self.context.metrics.reconciled(result, took);
        if matches!(outcome, Err(ReconcileError::NotLeader)) {
            return self.leave(key);
        }
        let failures = self.queue.end(key, turn, again);
        // What failed keeps nothing waiting that may be written sooner.
        if let Some(due) = self.context.next_due(key).filter(|_| outcome.is_err()) {
            self.queue.at_latest(key, due);
        }
        if let Err(error) = &outcome {
            // What may pass by itself is nobody's business at once.
            if failures >= WORTH_TELLING || !matches!(again, Again::Soon | Again::AfterAsked(_)) {
                tracing::warn!(cluster = %key, failures, hint = error.hint(), "{error}");
            } else {
                tracing::debug!(cluster = %key, failures, "{error}");
            }
        }
        if self.context.stores.cluster(key).is_none() {
            self.queue.remove(key);
            // It may have come back in between.
            if self.context.stores.cluster(key).is_some() {
                self.queue.wake(key, Wake::Wish);
            }
        }
    }
}

/// Whether a kind can be used, without why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usability {
    Unknown,
    Usable,
    Unusable,
}

impl Usability {
    const fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Unlisted => Self::Unknown,
            Kind::Listed => Self::Usable,
            Kind::Stale(_) | Kind::Unusable(_) => Self::Unusable,
        }
    }
}

/// What is followed beside the kinds.
#[derive(Debug, Clone, Copy)]
enum Follow {
    Kinds,
    Tenures,
}

/// Tasks that end when they are asked to.
struct Crew {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Default for Crew {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), stop: watch::Sender::new(false) }
    }
}

impl Crew {
    fn asked_to_end(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move { drop(stop.wait_for(|stop| *stop).await) }
    }

    /// Ready when one of the tasks has ended though nobody asked it to; never where there is none.
    async fn lost(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(())) => tracing::error!("a part of the operator ended by itself"),
            Some(Err(error)) => tracing::error!("a part of the operator was lost: {error}"),
            None => std::future::pending().await,
        }
    }

    /// Asks for the end and waits for it, for a while.
    async fn end(mut self, patience: Duration, clock: &SharedClock) {
        self.stop.send_replace(true);
        tokio::select! {
            () = async { while self.tasks.join_next().await.is_some() {} } => {}
            () = clock.sleep(patience) => {}
        }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Operator")
            .field("queue", &self.queue)
            .field("tenures", &self.tenures)
            .finish_non_exhaustive()
    }
}

/// How long looks that have begun may go on. With the leases it is less than the grace of a pod.
const DRAIN: Duration = Duration::from_secs(12);
/// How long leases may take to be given back.
const RELEASE: Duration = Duration::from_secs(10);
/// After how many tries something that may pass by itself is told.
const WORTH_TELLING: u32 = 3;

#[cfg(test)]
mod tests;
