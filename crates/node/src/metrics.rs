//! What the node counts.
//!
//! Names and labels are those of the Secrets Store CSI driver (v1.6.0) and of its Key Vault
//! provider (v1.8.2) where they have the number, so that their dashboards go on working; ours
//! begin with `lanyard_node_`. Every label is bounded: an error is its [`OutcomeCode`], never its
//! text, and names that a tenant chooses are counted under `other` once there are many.

mod class_collector;
mod dropped_events;
mod labels;
mod memory_collector;
mod metered;
mod problem_gauge;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_telemetry::prometheus_client::metrics::counter::Counter;
use lanyard_telemetry::prometheus_client::metrics::family::Family;
use lanyard_telemetry::prometheus_client::metrics::histogram::Histogram;
use lanyard_telemetry::prometheus_client::registry::Registry;
use lanyard_vocabulary::OutcomeCode;

use self::class_collector::ClassMetricsCollector;
use self::dropped_events::DroppedEventsCollector;
use self::labels::{
    BoundedProviderNames, CodeLabels, GrpcLabels, Os, PolicyLabels, ProviderLabels,
    PublishErrorLabels, RotationErrorLabels, RotationLabels, StatusLabels, SystemLabels,
    VaultLabels,
};
use self::memory_collector::MemoryMetricsCollector;
pub use self::metered::{MeteredProvider, MeteredReporter};
use self::problem_gauge::ProblemGauge;
use crate::kubernetes::PodEventQueue;
use crate::policy::ReloadablePolicy;
use crate::publisher::Publisher;
use crate::reporter::PollResult;
use crate::sync::SecretSyncHealth;

pub use self::labels::{PolicyDecision, ReadKind, StatusWrite};

/// The numbers of the node. Clones count together.
#[derive(Debug, Clone)]
pub struct NodeMetrics(Arc<NodeMetricFamilies>);

#[derive(Debug)]
struct NodeMetricFamilies {
    providers: BoundedProviderNames,
    publish: Family<ProviderLabels, Counter>,
    publish_error: Family<PublishErrorLabels, Counter>,
    unpublish: Family<SystemLabels, Counter>,
    unpublish_error: Family<SystemLabels, Counter>,
    rotation: Family<RotationLabels, Counter>,
    rotation_error: Family<RotationErrorLabels, Counter>,
    rotation_duration: SecondsHistogram<SystemLabels>,
    sync_secret: Family<SystemLabels, Counter>,
    sync_secret_duration: SecondsHistogram<SystemLabels>,
    vault_request: SecondsHistogram<VaultLabels>,
    grpc_request: SecondsHistogram<GrpcLabels>,
    outcome: Family<CodeLabels, Counter>,
    rotation_lag: Histogram,
    vault_throttled: Counter,
    stale_served: Counter,
    status_write: Family<StatusLabels, Counter>,
    policy: Family<PolicyLabels, Counter>,
    events: OnceLock<PodEventQueue>,
    classes: ClassMetricsCollector,
    memory: MemoryMetricsCollector,
    policy_problem: ProblemGauge,
    sync_problem: ProblemGauge,
}

type SecondsHistogram<L> = Family<L, Histogram, fn() -> Histogram>;

impl NodeMetrics {
    /// Nothing is counted yet.
    pub fn new(clock: SharedClock) -> Self {
        Self(Arc::new(NodeMetricFamilies {
            providers: BoundedProviderNames::default(),
            publish: Family::default(),
            publish_error: Family::default(),
            unpublish: Family::default(),
            unpublish_error: Family::default(),
            rotation: Family::default(),
            rotation_error: Family::default(),
            rotation_duration: Family::new_with_constructor(driver_seconds),
            sync_secret: Family::default(),
            sync_secret_duration: Family::new_with_constructor(driver_seconds),
            vault_request: Family::new_with_constructor(provider_seconds),
            grpc_request: Family::new_with_constructor(provider_seconds),
            outcome: Family::default(),
            rotation_lag: Histogram::new(LAG_SECONDS),
            vault_throttled: Counter::default(),
            stale_served: Counter::default(),
            status_write: Family::default(),
            policy: Family::default(),
            events: OnceLock::new(),
            classes: ClassMetricsCollector::new(clock),
            memory: MemoryMetricsCollector::default(),
            policy_problem: ProblemGauge::new(POLICY_PROBLEM.0, POLICY_PROBLEM.1),
            sync_problem: ProblemGauge::new(SYNC_PROBLEM.0, SYNC_PROBLEM.1),
        }))
    }

    /// Puts every number on a page.
    pub fn register(&self, registry: &mut Registry) {
        self.register_upstream(registry);
        self.register_own(registry);
    }

    #[rustfmt::skip]
    fn register_upstream(&self, registry: &mut Registry) {
        let it = &self.0;
        registry.register("node_publish", "Publishes of volumes", it.publish.clone());
        registry.register("node_publish_error", "Publishes that failed", it.publish_error.clone());
        registry.register("node_unpublish", "Unpublishes of volumes", it.unpublish.clone());
        registry.register("node_unpublish_error", "Unpublishes that failed", it.unpublish_error.clone());
        registry.register("rotation_reconcile", "Looks for newer content", it.rotation.clone());
        registry.register("rotation_reconcile_error", "Looks that failed", it.rotation_error.clone());
        registry.register("rotation_reconcile_duration_sec", "Seconds of a look for newer content", it.rotation_duration.clone());
        registry.register("sync_k8s_secret", "Secrets kept in step with a volume", it.sync_secret.clone());
        registry.register("k8s_secret_duration_sec", "Seconds to keep a Secret in step", it.sync_secret_duration.clone());
        registry.register("keyvault_request", "Seconds of a Key Vault request", it.vault_request.clone());
        registry.register("grpc_request", "Seconds of a served gRPC call", it.grpc_request.clone());
    }

    #[rustfmt::skip]
    fn register_own(&self, registry: &mut Registry) {
        let it = &self.0;
        registry.register("lanyard_node_outcomes", "What went wrong, by outcome code and hop", it.outcome.clone());
        registry.register("lanyard_node_rotation_lag_seconds", "Seconds from a new version in the vault to its swap in a volume", it.rotation_lag.clone());
        registry.register("lanyard_node_vault_throttles", "Answers of vaults that asked for a pause", it.vault_throttled.clone());
        registry.register("lanyard_node_stale_served", "Volumes filled from the sealed cache during an outage", it.stale_served.clone());
        registry.register("lanyard_node_status_writes", "Writes of pod statuses", it.status_write.clone());
        registry.register("lanyard_node_policy_decisions", "Reads through shared identities, as the policy saw them", it.policy.clone());
        registry.register_collector(Box::new(DroppedEventsCollector(self.clone())));
        registry.register_collector(Box::new(it.classes.clone()));
        registry.register_collector(Box::new(it.memory.clone()));
        registry.register_collector(Box::new(it.policy_problem.clone()));
        registry.register_collector(Box::new(it.sync_problem.clone()));
    }

    /// A publish ended; `provider` is who fills the volume, as its class says. Masked failures of
    /// a mounted volume are rotations, not publishes.
    pub fn record_publish(&self, provider: Option<&str>, result: Result<(), OutcomeCode>) {
        let provider = self.0.providers.bounded_name(provider, result.is_ok());
        let os_type = Os::Linux;
        if let Err(code) = result {
            let (provider, error_type) = (provider.clone(), code.name());
            let labels = PublishErrorLabels { provider, error_type, os_type };
            self.0.publish_error.get_or_create(&labels).inc();
            self.record_outcome(code);
        }
        self.0.publish.get_or_create(&ProviderLabels { provider, os_type }).inc();
    }

    /// An unpublish ended.
    pub fn record_unpublish(&self, succeeded: bool) {
        let labels = SystemLabels { os_type: Os::Linux };
        self.0.unpublish.get_or_create(&labels).inc();
        if !succeeded {
            self.0.unpublish_error.get_or_create(&labels).inc();
        }
    }

    /// A mounted volume was looked after.
    pub fn record_poll(&self, look: &PollResult) {
        let outcome = look.outcome;
        let provider = self.0.providers.bounded_name(look.provider.as_deref(), outcome.is_ok());
        let (os_type, rotated) = (Os::Linux, outcome == Ok(true));
        if let Err(code) = outcome {
            let (provider, error_type) = (provider.clone(), code.name());
            let labels = RotationErrorLabels { provider, error_type, os_type, rotated };
            self.0.rotation_error.get_or_create(&labels).inc();
            self.record_outcome(code);
        }
        self.0.rotation.get_or_create(&RotationLabels { provider, os_type, rotated }).inc();
        let labels = SystemLabels { os_type };
        self.0.rotation_duration.get_or_create(&labels).observe(look.duration.as_secs_f64());
        for lag in &look.rotation_lags {
            self.0.rotation_lag.observe(lag.as_secs_f64());
        }
    }

    /// Something went wrong that none of the other numbers tells.
    pub fn record_outcome(&self, code: OutcomeCode) {
        let labels = CodeLabels { code: code.name(), hop: code.hop().name() };
        self.0.outcome.get_or_create(&labels).inc();
    }

    /// A Secret was written, to be in step with a volume.
    pub fn record_secret_sync(&self, took: Duration) {
        let labels = SystemLabels { os_type: Os::Linux };
        self.0.sync_secret.get_or_create(&labels).inc();
        self.0.sync_secret_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A vault answered, or did not.
    pub fn record_vault_request(
        &self,
        kind: ReadKind,
        took: Duration,
        result: Result<(), OutcomeCode>,
    ) {
        let error = result.err().map_or("", OutcomeCode::name);
        let labels =
            VaultLabels { provider: "azure", os_type: Os::Linux, object_type: kind, error };
        self.0.vault_request.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A vault asked for a pause.
    pub fn record_throttle(&self) {
        self.0.vault_throttled.inc();
    }

    /// A volume was filled from the sealed cache.
    pub fn record_stale_response(&self) {
        self.0.stale_served.inc();
    }

    /// A pod status was to be written.
    pub fn record_status_write(&self, result: StatusWrite) {
        self.0.status_write.get_or_create(&StatusLabels { result }).inc();
    }

    /// The policy was asked about a read.
    pub fn record_policy_decision(&self, decision: PolicyDecision) {
        self.0.policy.get_or_create(&PolicyLabels { decision }).inc();
    }

    /// Tells from now on how many events this queue dropped.
    pub fn watch_events(&self, events: PodEventQueue) {
        // There is one queue in a process; a second one is not told.
        drop(self.0.events.set(events));
    }

    /// A gRPC call was answered; `method` is its full name, `code` the answer's.
    pub fn record_grpc_call(&self, method: &'static str, code: tonic::Code, took: Duration) {
        let labels = GrpcLabels {
            provider: "azure",
            os_type: Os::Linux,
            grpc_method: method,
            grpc_code: labels::code_name(code),
        };
        self.0.grpc_request.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Tells from now on whether the policy file is the policy in use.
    pub fn watch_policy(&self, keeper: Arc<ReloadablePolicy>) {
        self.0.policy_problem.watch(move || keeper.load_error().is_some());
    }

    /// Tells from now on whether pods that start get their Secrets.
    pub fn watch_sync(&self, problem: SecretSyncHealth) {
        self.0.sync_problem.watch(move || problem.is_failing());
    }

    /// Tells from now on how the volumes of this publisher are. The page tells the oldest look and
    /// the first end of each class.
    pub fn watch_volumes(&self, publisher: &Publisher) {
        self.0.classes.watch(publisher.state_reader());
        self.0.memory.watch(publisher.memory_reader());
    }
}

/// The buckets of the driver.
fn driver_seconds() -> Histogram {
    Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0])
}

/// The buckets of the Key Vault provider.
fn provider_seconds() -> Histogram {
    Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 10.0, 15.0, 30.0])
}

const POLICY_PROBLEM: (&str, &str) = (
    "lanyard_node_policy_problem",
    "1 while the policy file cannot be used and the one before it is in use, else 0",
);
const SYNC_PROBLEM: (&str, &str) = (
    "lanyard_node_sync_problem",
    "1 while the API refuses the pod statuses of this node and pods that start get no Secrets, else 0",
);

/// From a forced refresh to the longest intervals in use.
const LAG_SECONDS: [f64; 12] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0];
