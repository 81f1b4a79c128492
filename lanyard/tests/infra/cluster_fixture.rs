//! The infrastructure of one cluster in the local Azure.

use std::collections::BTreeSet;

use lanyard_azure::{ArmClient, ArmRequest};
use lanyard_clock::SharedClock;
use lanyard_infra::{
    ClusterIdentifiers, DesiredResource, DestroyPlan, Journal, JournalCluster, LiveState,
    NoProgress, OwnershipTags, Plan, ResourceGraph, ResourceKey, ResourceStack, RunContext,
    RunOptions, RunReport, apply, destroy, infra_resources, open_directory,
    wait_for_interrupted_writes,
};
use lanyard_vocabulary::SubscriptionId;
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster_resources::{cluster_identifiers, cluster_resources, infra_parameters};
use crate::request_cutter::{CutPosition, RequestCutter};
use crate::virtual_time_azure::VirtualTimeAzure;

/// The infrastructure of a cluster, its journal and the local Azure.
pub(crate) struct ClusterFixture {
    pub(crate) azure: VirtualTimeAzure,
    observer: ArmClient,
    arm: ArmClient,
    cutter: RequestCutter,
    directory: TempDir,
    graph: ResourceGraph,
    identifiers: ClusterIdentifiers,
    tags: OwnershipTags,
    clock: SharedClock,
}

impl ClusterFixture {
    /// A cluster without identities.
    pub(crate) async fn start() -> Self {
        let infra =
            |subscription: &SubscriptionId| infra_resources(&infra_parameters(subscription));
        Self::start_with(infra).await
    }

    /// A self-managed cluster with identities and roles.
    pub(crate) async fn start_with_roles() -> Self {
        Self::start_with(cluster_resources).await
    }

    async fn start_with(resources: impl FnOnce(&SubscriptionId) -> Vec<DesiredResource>) -> Self {
        let azure = VirtualTimeAzure::start().await;
        let identifiers = cluster_identifiers();
        let cutter = RequestCutter::default();
        Self {
            observer: azure.owner_client(|inner| RequestCutter::default().wrap(inner)),
            arm: azure.owner_client(|inner| cutter.wrap(inner)),
            cutter,
            directory: TempDir::new().unwrap(),
            graph: ResourceGraph::new(resources(&azure.cluster.azure.subscription)).unwrap(),
            tags: OwnershipTags::new(identifiers.name(), identifiers.infra_id()),
            clock: azure.shared_clock(),
            identifiers,
            azure,
        }
    }

    fn journal(&self) -> Journal {
        let cluster = JournalCluster {
            name: self.identifiers.name().clone(),
            infra_id: self.identifiers.infra_id().clone(),
            subscription: self.azure.cluster.azure.subscription.to_string(),
        };
        open_directory(self.directory.path().to_owned(), &cluster).unwrap()
    }

    fn context<'a>(&'a self, journal: &'a Journal) -> RunContext<'a> {
        let (arm, clock) = (&self.arm, &self.clock);
        RunContext { arm, journal, clock, progress: &NoProgress, options: RunOptions::default() }
    }

    /// Advances the time until the work is done.
    async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let advance = async {
            loop {
                self.azure.advance(std::time::Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            result = work => result,
            () = advance => unreachable!("the time advances forever"),
        }
    }

    async fn plan_with(&self, journal: &Journal) -> (Plan, LiveState) {
        let live = LiveState::read(&self.arm, &self.graph).await.unwrap();
        (Plan::new(&self.graph, &live, &journal.state(), &self.tags), live)
    }

    pub(crate) async fn plan(&self) -> Plan {
        let journal = self.journal();
        self.run(self.plan_with(&journal)).await.0
    }

    async fn apply_once(&self) -> RunReport {
        let journal = self.journal();
        let context = self.context(&journal);
        wait_for_interrupted_writes(context).await.unwrap();
        let (plan, live) = self.plan_with(&journal).await;
        apply(context, &self.graph, &plan, live, &self.tags).await
    }

    async fn destroy_once(&self) -> RunReport {
        let journal = self.journal();
        let plan = DestroyPlan::new(&journal.state(), &[ResourceStack::Infra, ResourceStack::Iam]);
        destroy(self.context(&journal), &plan).await
    }

    /// Applies the plan without an interruption.
    pub(crate) async fn apply(&self) -> RunReport {
        self.cutter.disable();
        self.run(self.apply_once()).await
    }

    /// Removes the cluster without an interruption.
    pub(crate) async fn destroy(&self) -> RunReport {
        self.cutter.disable();
        self.run(self.destroy_once()).await
    }

    /// Sets the request at which the next run ends.
    pub(crate) fn cut_at(&self, number: usize, position: CutPosition) {
        self.cutter.cut_at(number, position);
    }

    /// Applies the plan until the run reaches the request of the cut, and returns whether it did.
    pub(crate) async fn interrupted_apply(&self) -> bool {
        self.interrupt(self.apply_once()).await
    }

    /// Removes the cluster until the run reaches the request of the cut, and returns whether it did.
    pub(crate) async fn interrupted_destroy(&self) -> bool {
        self.interrupt(self.destroy_once()).await
    }

    async fn interrupt(&self, work: impl Future<Output = RunReport>) -> bool {
        self.run(async {
            tokio::select! {
                biased;
                () = self.cutter.reached() => true,
                _ = work => false,
            }
        })
        .await
    }

    /// The number of requests of the last runs.
    pub(crate) fn request_count(&self) -> usize {
        self.cutter.request_count()
    }

    /// The number of writes of the last runs.
    pub(crate) fn write_count(&self) -> usize {
        self.cutter.write_count()
    }

    /// The number of resources in the journal.
    pub(crate) fn recorded_count(&self) -> usize {
        self.journal().state().resources().count()
    }

    /// The ids of all groups and resources of the subscription.
    pub(crate) async fn resource_ids(&self) -> BTreeSet<String> {
        let subscription = format!("/subscriptions/{}", self.azure.cluster.azure.subscription);
        let mut ids = BTreeSet::new();
        for collection in ["resources", "resourcegroups"] {
            let path = format!("{subscription}/{collection}");
            let listed = self.run(self.observer.list(&path, "2021-04-01", &[])).await.unwrap();
            ids.extend(listed.iter().map(|it| it["id"].as_str().unwrap().to_ascii_lowercase()));
        }
        ids
    }

    /// The live resource with this key.
    pub(crate) async fn live(&self, key: &str) -> Value {
        let id = &self.graph.get(&ResourceKey::new(key)).unwrap().id;
        self.run(self.observer.fetch(id.as_str(), "2023-11-01")).await.unwrap().body
    }

    /// Changes a live resource as another client would.
    pub(crate) async fn change_live(&self, key: &str, change: impl FnOnce(&mut Value)) {
        let id = &self.graph.get(&ResourceKey::new(key)).unwrap().id;
        let mut body = self.live(key).await;
        change(&mut body);
        let request = ArmRequest::put(id.as_str(), "2023-11-01", body);
        self.run(self.observer.send(&request)).await.unwrap();
        // The change is a long-running operation.
        self.azure.advance(std::time::Duration::from_mins(1)).await;
    }
}
