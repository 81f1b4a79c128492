//! The metrics of the node plugin.
//!
//! Names and labels are those of the Secrets Store CSI driver (v1.6.0) and of its Key Vault provider (v1.8.2)
//! where they have the metric, so that their dashboards keep working; the others begin with `lanyard_node_`.
//! Every label is bounded: an error is its [`OutcomeCode`], never its text, and names that a tenant chooses
//! are counted under `other` beyond a limit.

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

pub use self::labels::{PodStatusWriteResult, PolicyDecision, ReadKind};

/// The metrics of the node. Clones share them.
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
    /// Creates the metrics with all values at zero.
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

    /// Registers every metric.
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
        registry.register("rotation_reconcile", "Polls for newer content", it.rotation.clone());
        registry.register("rotation_reconcile_error", "Failed polls for newer content", it.rotation_error.clone());
        registry.register("rotation_reconcile_duration_sec", "Duration of a poll for newer content in seconds", it.rotation_duration.clone());
        registry.register("sync_k8s_secret", "Secrets synchronized with a volume", it.sync_secret.clone());
        registry.register("k8s_secret_duration_sec", "Duration of the synchronization of a Secret in seconds", it.sync_secret_duration.clone());
        registry.register("keyvault_request", "Duration of a Key Vault request in seconds", it.vault_request.clone());
        registry.register("grpc_request", "Duration of a served gRPC call in seconds", it.grpc_request.clone());
    }

    #[rustfmt::skip]
    fn register_own(&self, registry: &mut Registry) {
        let it = &self.0;
        registry.register("lanyard_node_outcomes", "Failures by outcome code and hop", it.outcome.clone());
        registry.register("lanyard_node_rotation_lag_seconds", "Seconds from the creation of a version in the vault to its swap in a volume", it.rotation_lag.clone());
        registry.register("lanyard_node_vault_throttles", "Throttling responses of vaults", it.vault_throttled.clone());
        registry.register("lanyard_node_stale_served", "Volumes published from the sealed cache during an outage", it.stale_served.clone());
        registry.register("lanyard_node_status_writes", "Writes of pod statuses", it.status_write.clone());
        registry.register("lanyard_node_policy_decisions", "Reads through shared identities, by decision of the policy", it.policy.clone());
        registry.register_collector(Box::new(DroppedEventsCollector(self.clone())));
        registry.register_collector(Box::new(it.classes.clone()));
        registry.register_collector(Box::new(it.memory.clone()));
        registry.register_collector(Box::new(it.policy_problem.clone()));
        registry.register_collector(Box::new(it.sync_problem.clone()));
    }

    /// Records a publish; `provider` is the provider that the class names. Masked failures of a mounted
    /// volume are rotations, not publishes.
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

    pub fn record_unpublish(&self, succeeded: bool) {
        let labels = SystemLabels { os_type: Os::Linux };
        self.0.unpublish.get_or_create(&labels).inc();
        if !succeeded {
            self.0.unpublish_error.get_or_create(&labels).inc();
        }
    }

    /// Records a poll of a mounted volume.
    pub fn record_poll(&self, poll: &PollResult) {
        let outcome = poll.outcome;
        let provider = self.0.providers.bounded_name(poll.provider.as_deref(), outcome.is_ok());
        let (os_type, rotated) = (Os::Linux, outcome == Ok(true));
        if let Err(code) = outcome {
            let (provider, error_type) = (provider.clone(), code.name());
            let labels = RotationErrorLabels { provider, error_type, os_type, rotated };
            self.0.rotation_error.get_or_create(&labels).inc();
            self.record_outcome(code);
        }
        self.0.rotation.get_or_create(&RotationLabels { provider, os_type, rotated }).inc();
        let labels = SystemLabels { os_type };
        self.0.rotation_duration.get_or_create(&labels).observe(poll.duration.as_secs_f64());
        for lag in &poll.rotation_lags {
            self.0.rotation_lag.observe(lag.as_secs_f64());
        }
    }

    /// Records a failure that no other metric shows.
    pub fn record_outcome(&self, code: OutcomeCode) {
        let labels = CodeLabels { code: code.name(), hop: code.hop().name() };
        self.0.outcome.get_or_create(&labels).inc();
    }

    /// Records the write of a Secret.
    pub fn record_secret_sync(&self, took: Duration) {
        let labels = SystemLabels { os_type: Os::Linux };
        self.0.sync_secret.get_or_create(&labels).inc();
        self.0.sync_secret_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Records a request to a vault.
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

    /// Records a throttling response of a vault.
    pub fn record_throttle(&self) {
        self.0.vault_throttled.inc();
    }

    /// Records a response from the sealed cache.
    pub fn record_stale_response(&self) {
        self.0.stale_served.inc();
    }

    /// Records the result of writing a pod status.
    pub fn record_status_write(&self, result: PodStatusWriteResult) {
        self.0.status_write.get_or_create(&StatusLabels { result }).inc();
    }

    /// Records a policy decision about a read.
    pub fn record_policy_decision(&self, decision: PolicyDecision) {
        self.0.policy.get_or_create(&PolicyLabels { decision }).inc();
    }

    /// Exposes the number of events that this queue dropped.
    pub fn watch_events(&self, events: PodEventQueue) {
        // A process has one queue; a second one is ignored.
        drop(self.0.events.set(events));
    }

    /// Records a served gRPC call; `method` is its full name, `code` the code of the response.
    pub fn record_grpc_call(&self, method: &'static str, code: tonic::Code, took: Duration) {
        let labels = GrpcLabels {
            provider: "azure",
            os_type: Os::Linux,
            grpc_method: method,
            grpc_code: labels::code_name(code),
        };
        self.0.grpc_request.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Exposes whether the policy file is the policy in use.
    pub fn watch_policy(&self, policy: Arc<ReloadablePolicy>) {
        self.0.policy_problem.watch(move || policy.load_error().is_some());
    }

    /// Exposes whether starting pods get their Secrets.
    pub fn watch_sync(&self, problem: SecretSyncHealth) {
        self.0.sync_problem.watch(move || problem.is_failing());
    }

    /// Exposes the state of the volumes of this publisher: the oldest poll and the earliest expiry of each
    /// class.
    pub fn watch_volumes(&self, publisher: &Publisher) {
        self.0.classes.watch(publisher.state_reader());
        self.0.memory.watch(publisher.memory_reader());
    }
}

/// The histogram buckets of the driver.
fn driver_seconds() -> Histogram {
    Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0])
}

/// The histogram buckets of the Key Vault provider.
fn provider_seconds() -> Histogram {
    Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 10.0, 15.0, 30.0])
}

const POLICY_PROBLEM: (&str, &str) = (
    "lanyard_node_policy_problem",
    "1 while the policy file is invalid and the previous policy is in use, else 0",
);
const SYNC_PROBLEM: (&str, &str) = (
    "lanyard_node_sync_problem",
    "1 while the API rejects the watch of the pod statuses of this node and starting pods get no Secrets, else 0",
);

/// Buckets from a forced refresh to the longest intervals in use.
const LAG_SECONDS: [f64; 12] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0];
