//! An operator that runs in virtual time, and the clusters that it looks after.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::forecast::Policy;
use lanyard_desired::objects::VolumeRefresh;
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::{Operator, OperatorSettings, Role};
use lanyard_telemetry::Readiness;
use lanyard_vocabulary::Component;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::path::Verb;
use crate::server::Server;
use crate::state::Asked;

pub(crate) const CLUSTERS: &str = "hostedclusters";
pub(crate) const IDENTITIES: &str = "hostedclusteridentities";
pub(crate) const CLASSES: &str = "secretproviderclasses";
pub(crate) const NAMESPACE: &str = "clusters";
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

const EXAMPLE: &str = include_str!("../../../../examples/hostedcluster.yaml");

/// An operator, and the API that it works at.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) clock: ManualClock,
    settings: OperatorSettings,
    operator: JoinHandle<()>,
}

impl Stage {
    /// An operator at an API that `prepare` has prepared.
    pub(crate) fn start(role: Role, prepare: impl FnOnce(&Server)) -> Self {
        Self::start_with(role, WorkloadTemplates::default(), prepare)
    }

    /// The same with templates of its own.
    pub(crate) fn start_with(
        role: Role,
        templates: WorkloadTemplates,
        prepare: impl FnOnce(&Server),
    ) -> Self {
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let server = Server::new(clock.clone());
        prepare(&server);
        let settings = OperatorSettings {
            role,
            workers: 4,
            leases: None,
            vault_reader: None,
            managed_service: None,
            templates: Arc::new(templates),
            refresh: VolumeRefresh::Polled,
            policy: Policy::default(),
            instance: "test".to_owned(),
        };
        let operator = Operator::new(server.api(), settings.clone(), &Readiness::default());
        let operator = tokio::spawn(operator.run(std::future::pending()));
        Self { server, clock, settings, operator }
    }

    /// What another operator would do about each cluster, and whether it can.
    pub(crate) async fn plans(&self) -> Vec<(String, bool)> {
        let operator =
            Operator::new(self.server.api(), self.settings.clone(), &Readiness::default());
        let plans = operator.plan().await.into_iter();
        plans.map(|plan| (plan.to_string(), plan.is_good)).collect()
    }

    /// One with so many clusters that have everything.
    pub(crate) async fn settled(clusters: usize) -> Self {
        let stage = Self::start(Role::All, |server| {
            (0..clusters).for_each(|number| server.put(CLUSTERS, cluster(number)));
        });
        let made = || (0..clusters).all(|number| is_made(&stage.server, number));
        stage.until("everything is made", 30 * SECOND, made).await;
        stage.settle().await;
        stage.server.forget();
        stage.pass(30 * SECOND).await;
        let written = stage.server.told(|asked| asked.verb.is_write());
        assert!(written.is_empty(), "it is settled at once: {written:?}");
        stage
    }

    /// Lets every task run until it waits. Who asks without end, and never waits, fails here.
    pub(crate) async fn settle(&self) {
        let (_, asked) = self.server.bustle();
        let mut before = None;
        while before != Some(self.server.bustle()) {
            let at_once = self.server.bustle().1.saturating_sub(asked);
            assert!(at_once <= MOST_AT_ONCE, "{at_once} requests without a pause");
            before = Some(self.server.bustle());
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets so much time pass.
    pub(crate) async fn pass(&self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        loop {
            self.settle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            self.clock.advance(self.clock.next_due().unwrap_or(left).min(left));
        }
    }

    /// Lets time pass until something is so, and says how much did.
    pub(crate) async fn until(
        &self,
        what: &str,
        limit: Duration,
        is_so: impl Fn() -> bool,
    ) -> Duration {
        let began = self.clock.monotonic();
        loop {
            self.settle().await;
            let passed = self.clock.monotonic().saturating_sub(began);
            if is_so() {
                return passed;
            }
            assert!(passed < limit, "{what}: not within {} s", limit.as_secs());
            let left = limit.saturating_sub(passed);
            self.clock.advance(self.clock.next_due().unwrap_or(left).min(left));
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || !self.operator.is_finished(), "the operator ended");
        self.operator.abort();
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("c{number:04}")
}

/// The namespace of the control plane of a cluster.
pub(crate) fn room(number: usize) -> String {
    format!("{NAMESPACE}-{}", name(number))
}

/// The example under another name; its secrets have names of their own.
pub(crate) fn cluster(number: usize) -> Value {
    thread_local! {
        static JSON: String = serde_saphyr::from_str::<Value>(EXAMPLE).unwrap().to_string();
    }
    let text = JSON.with(|json| json.replace("harbour", &name(number)));
    serde_json::from_str(&text).unwrap()
}

/// The vault's secret with the credential of a component.
pub(crate) fn secret(number: usize, component: Component) -> String {
    format!("{}-{}", name(number), component.facts().secret_suffix)
}

/// Whether a cluster has everything and is told of.
pub(crate) fn is_made(server: &Server, number: usize) -> bool {
    let room = room(number);
    server.count_of(CLASSES, &room) == 9
        && server.count_of("deployments", &room) >= 9
        && is_told(server, number)
}

/// Whether it is told how the identities of a cluster are.
pub(crate) fn is_told(server: &Server, number: usize) -> bool {
    let told = server.object(IDENTITIES, NAMESPACE, &name(number)).unwrap_or_default();
    told["status"]["identities"].as_array().is_some_and(|all| all.len() == 9)
}

/// A write about a cluster: about it, or in the namespace of its control plane.
pub(crate) fn is_write_about(number: usize) -> impl Fn(&Asked) -> bool {
    move |asked| asked.verb.is_write() && is_about(asked, number)
}

pub(crate) fn is_about(asked: &Asked, number: usize) -> bool {
    let path = &asked.path;
    // An event is named after its cluster.
    let named = path.name.split('-').next().filter(|_| path.namespace == NAMESPACE);
    path.namespace == room(number)
        || path.name == room(number)
        || named == Some(name(number).as_str())
}

/// A list of everything of a kind, as a watch begins with. One namespace's objects are listed before
/// something is made in it.
pub(crate) fn is_list_of_all(asked: &Asked) -> bool {
    let path = &asked.path;
    let is_of_one = path.collection == "namespaces" && path.only.is_some();
    asked.verb == Verb::List && path.namespace.is_empty() && !is_of_one
}

pub(crate) fn is(verb: Verb) -> impl Fn(&Asked) -> bool {
    move |asked| asked.verb == verb
}

/// The vault that a class of a cluster names.
pub(crate) fn vault(server: &Server, number: usize, class: &str) -> Value {
    let class = server.object(CLASSES, &room(number), class).unwrap_or_default();
    class["spec"]["parameters"]["keyvaultName"].clone()
}

/// Somebody else changes which vault a class of a cluster names.
pub(crate) fn meddle(server: &Server, number: usize, class: &str, vault: &str) {
    server.change((CLASSES, &room(number), class), |class| {
        class["spec"]["parameters"]["keyvaultName"] = Value::from(vault);
    });
}

/// More than a thousand clusters take that are made at one time.
const MOST_AT_ONCE: usize = 200_000;
/// More than a request takes, through all the tasks on its way.
const YIELDS: usize = 60;
