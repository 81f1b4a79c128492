//! An operator that runs in virtual time, and the clusters that it looks after.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::forecast::RenewalPolicy;
use lanyard_desired::objects::VolumeRefresh;
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::{Operator, OperatorRole, OperatorSettings};
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

/// An operator, and the API that it works at.
pub(crate) struct OperatorFixture {
    pub(crate) server: FakeManagementApi,
    pub(crate) clock: ManualClock,
    settings: OperatorSettings,
    operator: JoinHandle<()>,
}

impl OperatorFixture {
    /// An operator at an API that `prepare` has prepared.
    pub(crate) fn start(role: OperatorRole, prepare: impl FnOnce(&FakeManagementApi)) -> Self {
        Self::start_with_templates(role, WorkloadTemplates::default(), prepare)
    }

    /// The same with templates of its own.
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
        };
        let operator = Operator::new(server.api(), settings.clone(), &Readiness::default());
        let operator = tokio::spawn(operator.run(std::future::pending()));
        Self { server, clock, settings, operator }
    }

    /// What another operator would do about each cluster, and whether it can.
    pub(crate) async fn plan_all(&self) -> Vec<(String, bool)> {
        let operator =
            Operator::new(self.server.api(), self.settings.clone(), &Readiness::default());
        let plans = operator.plan().await.into_iter();
        plans.map(|plan| (plan.to_string(), plan.is_applicable)).collect()
    }

    /// One with so many clusters that have everything.
    pub(crate) async fn start_converged(clusters: usize) -> Self {
        let stage = Self::start(OperatorRole::All, |server| {
            (0..clusters)
                .for_each(|number| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number)));
        });
        let made = || (0..clusters).all(|number| is_fully_applied(&stage.server, number));
        stage.advance_until("everything is made", 30 * SECOND, made).await;
        stage.run_until_idle().await;
        stage.server.clear_requests();
        stage.advance(30 * SECOND).await;
        let written = stage.server.describe_requests(|asked| asked.verb.is_write());
        assert!(written.is_empty(), "it is settled at once: {written:?}");
        stage
    }

    /// Lets every task run until it waits. Who asks without end, and never waits, fails here.
    pub(crate) async fn run_until_idle(&self) {
        let (_, asked) = self.server.activity();
        let mut before = None;
        while before != Some(self.server.activity()) {
            let at_once = self.server.activity().1.saturating_sub(asked);
            assert!(at_once <= MAX_REQUESTS_AT_ONCE, "{at_once} requests without a pause");
            before = Some(self.server.activity());
            for _ in 0..YIELDS_PER_REQUEST {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets so much time pass.
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

    /// Lets time pass until something is so, and says how much did.
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

/// The example under another name; its secrets have names of their own.
pub(crate) fn hosted_cluster(number: usize) -> Value {
    thread_local! {
        static JSON: String = serde_saphyr::from_str::<Value>(EXAMPLE).unwrap().to_string();
    }
    let text = JSON.with(|json| json.replace("harbour", &cluster_name(number)));
    serde_json::from_str(&text).unwrap()
}

/// The vault's secret with the credential of a component.
pub(crate) fn secret_name(number: usize, component: Component) -> String {
    format!("{}-{}", cluster_name(number), component.definition().secret_suffix)
}

/// Whether a cluster has everything and is told of.
pub(crate) fn is_fully_applied(server: &FakeManagementApi, number: usize) -> bool {
    let room = control_plane_namespace(number);
    server.object_count(SECRET_PROVIDER_CLASSES, &room) == 9
        && server.object_count("deployments", &room) >= 9
        && is_status_reported(server, number)
}

/// Whether it is told how the identities of a cluster are.
pub(crate) fn is_status_reported(server: &FakeManagementApi, number: usize) -> bool {
    let told = server.object(IDENTITIES, NAMESPACE, &cluster_name(number)).unwrap_or_default();
    told["status"]["identities"].as_array().is_some_and(|all| all.len() == 9)
}

/// A write about a cluster: about it, or in the namespace of its control plane.
pub(crate) fn is_write_for(number: usize) -> impl Fn(&ReceivedRequest) -> bool {
    move |asked| asked.verb.is_write() && concerns_cluster(asked, number)
}

pub(crate) fn concerns_cluster(asked: &ReceivedRequest, number: usize) -> bool {
    let path = &asked.path;
    // An event is named after its cluster.
    let named = path.name.split('-').next().filter(|_| path.namespace == NAMESPACE);
    path.namespace == control_plane_namespace(number)
        || path.name == control_plane_namespace(number)
        || named == Some(cluster_name(number).as_str())
}

/// A list of everything of a kind, as a watch begins with. One namespace's objects are listed before
/// something is made in it.
pub(crate) fn is_full_list(asked: &ReceivedRequest) -> bool {
    let path = &asked.path;
    let is_of_one = path.collection == "namespaces" && path.name_filter.is_some();
    asked.verb == RequestVerb::List && path.namespace.is_empty() && !is_of_one
}

pub(crate) fn has_verb(verb: RequestVerb) -> impl Fn(&ReceivedRequest) -> bool {
    move |asked| asked.verb == verb
}

/// The vault that a class of a cluster names.
pub(crate) fn class_vault(server: &FakeManagementApi, number: usize, class: &str) -> Value {
    let class = server
        .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(number), class)
        .unwrap_or_default();
    class["spec"]["parameters"]["keyvaultName"].clone()
}

/// Somebody else changes which vault a class of a cluster names.
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

/// More than a thousand clusters take that are made at one time.
const MAX_REQUESTS_AT_ONCE: usize = 200_000;
/// More than a request takes, through all the tasks on its way.
const YIELDS_PER_REQUEST: usize = 60;
