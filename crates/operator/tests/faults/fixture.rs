//! An operator that runs in virtual time, with the fake API and the clusters of a test.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::forecast::RenewalPolicy;
use lanyard_desired::objects::VolumeRefresh;
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::{ClusterPlan, Operator, OperatorRole, OperatorSettings};
use lanyard_telemetry::Readiness;
use lanyard_vocabulary::Component;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::api_state::ReceivedRequest;
use crate::management_api::FakeManagementApi;
use crate::request_path::RequestVerb;

pub(crate) const HOSTED_CLUSTERS: &str = "hostedclusters";
pub(crate) const IDENTITIES: &str = "hostedclusteridentities";
pub(crate) const SECRET_PROVIDER_CLASSES: &str = "secretproviderclasses";
pub(crate) const NAMESPACE: &str = "clusters";
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

const EXAMPLE: &str = include_str!("../../../../examples/hostedcluster.yaml");

/// An operator and its fake API.
pub(crate) struct OperatorFixture {
    pub(crate) server: FakeManagementApi,
    pub(crate) clock: ManualClock,
    settings: OperatorSettings,
    operator: JoinHandle<()>,
}

impl OperatorFixture {
    /// Starts an operator; `prepare` sets up the fake API before.
    pub(crate) fn start(role: OperatorRole, prepare: impl FnOnce(&FakeManagementApi)) -> Self {
        Self::start_with_templates(role, WorkloadTemplates::default(), prepare)
    }

    /// Starts an operator with these workload templates.
    pub(crate) fn start_with_templates(
        role: OperatorRole,
        templates: WorkloadTemplates,
        prepare: impl FnOnce(&FakeManagementApi),
    ) -> Self {
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let server = FakeManagementApi::new(clock.clone());
        prepare(&server);
        let settings = OperatorSettings {
            role,
            workers: 4,
            leases: None,
            vault_reader: None,
            managed_service: None,
            templates: Arc::new(templates),
            volume_refresh: VolumeRefresh::Polled,
            policy: RenewalPolicy::default(),
            reporting_instance: "test".to_owned(),
            service_account: Some("lanyard/lanyard-operator".parse().unwrap()),
        };
        let operator = Operator::new(server.api(), settings.clone(), &Readiness::default());
        let operator = tokio::spawn(operator.run(std::future::pending()));
        Self { server, clock, settings, operator }
    }

    /// The plan of each cluster.
    pub(crate) async fn plans(&self) -> Vec<ClusterPlan> {
        let operator =
            Operator::new(self.server.api(), self.settings.clone(), &Readiness::default());
        operator.plan().await
    }

    /// The plan of each cluster as text, and whether it is applicable.
    pub(crate) async fn plan_all(&self) -> Vec<(String, bool)> {
        let plans = self.plans().await.into_iter();
        plans.map(|plan| (plan.to_string(), plan.is_applicable)).collect()
    }

    /// Starts an operator with this number of clusters, and waits until all objects are applied.
    pub(crate) async fn start_converged(clusters: usize) -> Self {
        let fixture = Self::start(OperatorRole::All, |server| {
            (0..clusters)
                .for_each(|number| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number)));
        });
        let created = || (0..clusters).all(|number| is_fully_applied(&fixture.server, number));
        fixture.advance_until("all objects exist", 30 * SECOND, created).await;
        fixture.run_until_idle().await;
        fixture.server.clear_requests();
        fixture.advance(30 * SECOND).await;
        let written = fixture.server.describe_requests(|request| request.verb.is_write());
        assert!(written.is_empty(), "the clusters are in sync: {written:?}");
        fixture
    }

    /// Runs all tasks until they wait. Fails if a task keeps sending requests without a delay.
    pub(crate) async fn run_until_idle(&self) {
        let (_, requests_before) = self.server.activity();
        let mut before = None;
        while before != Some(self.server.activity()) {
            let at_once = self.server.activity().1.saturating_sub(requests_before);
            assert!(at_once <= MAX_REQUESTS_AT_ONCE, "{at_once} requests without a pause");
            before = Some(self.server.activity());
            for _ in 0..YIELDS_PER_REQUEST {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets this time pass.
    pub(crate) async fn advance(&self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        loop {
            self.run_until_idle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            self.clock.advance(self.clock.time_until_next_deadline().unwrap_or(left).min(left));
        }
    }

    /// Lets time pass until the condition holds; returns the time that passed.
    pub(crate) async fn advance_until(
        &self,
        what: &str,
        limit: Duration,
        is_so: impl Fn() -> bool,
    ) -> Duration {
        let began = self.clock.monotonic();
        loop {
            self.run_until_idle().await;
            let passed = self.clock.monotonic().saturating_sub(began);
            if is_so() {
                return passed;
            }
            assert!(passed < limit, "{what}: not within {} s", limit.as_secs());
            let left = limit.saturating_sub(passed);
            self.clock.advance(self.clock.time_until_next_deadline().unwrap_or(left).min(left));
        }
    }
}

impl Drop for OperatorFixture {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || !self.operator.is_finished(), "the operator ended");
        self.operator.abort();
    }
}

pub(crate) fn cluster_name(number: usize) -> String {
    format!("c{number:04}")
}

/// The namespace of the control plane of a cluster.
pub(crate) fn control_plane_namespace(number: usize) -> String {
    format!("{NAMESPACE}-{}", cluster_name(number))
}

/// The example under another name, which also changes the names of its secrets.
pub(crate) fn hosted_cluster(number: usize) -> Value {
    thread_local! {
        static JSON: String = serde_saphyr::from_str::<Value>(EXAMPLE).unwrap().to_string();
    }
    let text = JSON.with(|json| json.replace("harbour", &cluster_name(number)));
    serde_json::from_str(&text).unwrap()
}

/// The name of the vault secret with the credential of a component.
pub(crate) fn secret_name(number: usize, component: Component) -> String {
    format!("{}-{}", cluster_name(number), component.definition().secret_suffix)
}

/// Whether a cluster has all objects and a reported status.
pub(crate) fn is_fully_applied(server: &FakeManagementApi, number: usize) -> bool {
    let namespace = control_plane_namespace(number);
    server.object_count(SECRET_PROVIDER_CLASSES, &namespace) == 9
        && server.object_count("deployments", &namespace) >= 9
        && is_status_reported(server, number)
}

/// Whether the status of a cluster's identities is reported.
pub(crate) fn is_status_reported(server: &FakeManagementApi, number: usize) -> bool {
    let report = server.object(IDENTITIES, NAMESPACE, &cluster_name(number)).unwrap_or_default();
    report["status"]["identities"].as_array().is_some_and(|all| all.len() == 9)
}

/// A write that concerns a cluster, or an object in the namespace of its control plane.
pub(crate) fn is_write_for(number: usize) -> impl Fn(&ReceivedRequest) -> bool {
    move |request| request.verb.is_write() && concerns_cluster(request, number)
}

pub(crate) fn concerns_cluster(request: &ReceivedRequest, number: usize) -> bool {
    let path = &request.path;
    // The name of an event starts with that of its cluster.
    let named = path.name.split('-').next().filter(|_| path.namespace == NAMESPACE);
    path.namespace == control_plane_namespace(number)
        || path.name == control_plane_namespace(number)
        || named == Some(cluster_name(number).as_str())
}

/// A list of all objects of a kind, with which a watch starts. The list of a single namespace before its
/// creation does not count.
pub(crate) fn is_full_list(request: &ReceivedRequest) -> bool {
    let path = &request.path;
    let is_of_one = path.collection == "namespaces" && path.name_filter.is_some();
    request.verb == RequestVerb::List && path.namespace.is_empty() && !is_of_one
}

pub(crate) fn has_verb(verb: RequestVerb) -> impl Fn(&ReceivedRequest) -> bool {
    move |request| request.verb == verb
}

/// The vault in a SecretProviderClass of a cluster.
pub(crate) fn class_vault(server: &FakeManagementApi, number: usize, class: &str) -> Value {
    let class = server
        .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(number), class)
        .unwrap_or_default();
    class["spec"]["parameters"]["keyvaultName"].clone()
}

/// Changes the vault in a SecretProviderClass as another client.
pub(crate) fn change_vault_externally(
    server: &FakeManagementApi,
    number: usize,
    class: &str,
    vault: &str,
) {
    server.change_externally(
        (SECRET_PROVIDER_CLASSES, &control_plane_namespace(number), class),
        |class| {
            class["spec"]["parameters"]["keyvaultName"] = Value::from(vault);
        },
    );
}

/// More requests than the creation of a thousand clusters needs.
const MAX_REQUESTS_AT_ONCE: usize = 200_000;
/// More yields than a request needs through all tasks.
const YIELDS_PER_REQUEST: usize = 60;
