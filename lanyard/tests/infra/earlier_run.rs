//! A cluster in the state in which a run of an earlier release left it.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::PendingOperation;
use serde_json::{Value, json};

use crate::cluster_fixture::{ClusterFixture, assignment_body};
use crate::earlier_journal::{EarlierJournal, LastWrite};

const BALANCER: &str = "load-balancer";
/// A role assignment whose principal another client changes.
const REPLACED: &str = "role/ciro/group";
const DELETED_ROLE: &str = "role/cloud-provider/vnet-group";

/// What Azure did with the writes whose result the journal does not record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownWrites {
    /// Azure did not receive them.
    Lost,
    /// Azure did them, and still works on those that it accepted.
    Done,
    /// Azure did them, and has forgotten the operations of those that it accepted.
    Forgotten,
}

/// A cluster whose journal an earlier release wrote.
pub(crate) struct EarlierRun {
    pub(crate) cluster: ClusterFixture,
    /// The ids without the cluster, and those with all its resources.
    pub(crate) before: BTreeSet<String>,
    pub(crate) complete: BTreeSet<String>,
    /// Resources of another team.
    foreign: Vec<Value>,
}

impl EarlierRun {
    pub(crate) async fn start() -> Self {
        const GROUP: &str = "/resourceGroups/other-team";
        let cluster = Box::pin(ClusterFixture::start_with_some_roles()).await;
        let body = json!({ "location": "eastus", "tags": { "lanyard-cluster": "other" } });
        let nsg = format!("{GROUP}/providers/Microsoft.Network/networkSecurityGroups/other");
        let foreign = vec![
            cluster.create_foreign(GROUP, body.clone()).await,
            cluster.create_foreign(&nsg, body).await,
        ];
        let before = cluster.resource_ids().await;
        let report = cluster.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        let complete = cluster.resource_ids().await;
        let run = Self { cluster, before, complete, foreign };
        run.destroy("new").await;
        run
    }

    /// Brings the local Azure to the state that belongs to the journal of a creation or a removal, and installs the
    /// journal.
    pub(crate) async fn restore(&mut self, journal: &EarlierJournal, unknown: UnknownWrites) {
        let writes = journal.last_writes();
        let exists = |key: &str| match writes.get(key) {
            None | Some(LastWrite::Removed) => false,
            Some(LastWrite::CreationSent) => unknown != UnknownWrites::Lost,
            Some(_) => true,
        };
        let values = self.create(exists).await;
        self.slow_down(unknown).await;
        let mut operations = BTreeMap::new();
        for (key, write) in &writes {
            let body = match write {
                LastWrite::Accepted => Some(self.cluster.live(key).await),
                LastWrite::DeletionSent if unknown != UnknownWrites::Lost => None,
                _ => continue,
            };
            if let Some(operation) = self.cluster.start_write(key, body).await {
                operations.insert(key.clone(), operation);
            }
        }
        self.install(journal, &values, operations, unknown).await;
    }

    /// Brings the local Azure to the state of the interrupted repair, in which the network is repaired and the load
    /// balancer is being repaired. Returns the bodies before the run.
    pub(crate) async fn restore_repair(
        &mut self,
        journal: &EarlierJournal,
        unknown: UnknownWrites,
    ) -> BTreeMap<String, Value> {
        const PORTS: &str = "/properties/outboundRules/0/properties/allocatedOutboundPorts";
        const PREFIXES: &str = "/properties/addressSpace/addressPrefixes";
        let values = self.create(|_| true).await;
        let cluster = &self.cluster;
        let (vnet, balancer) = (cluster.live("vnet").await, cluster.live(BALANCER).await);
        for (key, pointer, drift) in
            [("vnet", PREFIXES, json!(["10.0.0.0/8"])), (BALANCER, PORTS, json!(512))]
        {
            cluster.change_live(key, |body| *body.pointer_mut(pointer).unwrap() = drift).await;
        }
        let earlier = cluster.bodies().await;
        assert_eq!(cluster.start_write("vnet", Some(vnet)).await, None);
        self.slow_down(unknown).await;
        let operations = self.write_load_balancer(Some(balancer)).await;
        self.install(journal, &values, operations, unknown).await;
        earlier
    }

    /// Brings the local Azure to the state of the interrupted run that replaced a role assignment whose principal
    /// another client had changed, and deleted a role assignment and the load balancer. Returns the bodies before the
    /// run.
    pub(crate) async fn restore_replacement(
        &mut self,
        journal: &EarlierJournal,
        unknown: UnknownWrites,
    ) -> BTreeMap<String, Value> {
        let values = self.create(|_| true).await;
        let cluster = &self.cluster;
        let desired = cluster.live(REPLACED).await["properties"].take();
        cluster.change_principal(REPLACED, "role/cloud-provider/group").await;
        let earlier = cluster.bodies().await;
        for key in [REPLACED, DELETED_ROLE] {
            assert_eq!(cluster.start_write(key, None).await, None);
        }
        if unknown != UnknownWrites::Lost {
            cluster.start_write(REPLACED, Some(assignment_body(desired))).await;
        }
        self.slow_down(unknown).await;
        let operations = self.write_load_balancer(None).await;
        self.install(journal, &values, operations, unknown).await;
        self.cluster.set_graph_keys(|key| ![DELETED_ROLE, BALANCER].contains(&key));
        earlier
    }

    /// Creates resources of the cluster with today's program and an empty journal. Returns the journal.
    async fn create(&mut self, exists: impl Fn(&str) -> bool) -> String {
        self.cluster.replace_journal("").await;
        self.cluster.set_graph_keys(exists);
        let report = self.cluster.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        self.cluster.journal_text().await
    }

    async fn write_load_balancer(&self, body: Option<Value>) -> BTreeMap<String, PendingOperation> {
        let operation = self.cluster.start_write(BALANCER, body).await;
        operation.map(|it| (BALANCER.to_owned(), it)).into_iter().collect()
    }

    /// Lets writes of network resources from now on be long-running operations.
    async fn slow_down(&self, unknown: UnknownWrites) {
        if unknown != UnknownWrites::Forgotten {
            self.set_long_running(&json!([{ "resourceType": "Microsoft.Network", "polls": 3 }]))
                .await;
        }
    }

    /// Installs the journal with the values of this local Azure, which still works on the operations.
    async fn install(
        &mut self,
        journal: &EarlierJournal,
        values: &str,
        operations: BTreeMap<String, PendingOperation>,
        unknown: UnknownWrites,
    ) {
        let writes = journal.last_writes();
        let is_pending =
            |it: &&LastWrite| **it == LastWrite::Accepted && unknown != UnknownWrites::Forgotten;
        assert_eq!(operations.len(), writes.values().filter(is_pending).count());
        self.set_long_running(&json!([])).await;
        for key in operations.keys() {
            let state = self.cluster.live(key).await["properties"]["provisioningState"].take();
            assert_ne!(state, "Succeeded", "{key}");
        }
        self.cluster.replace_journal(&journal.with_values_of(values, &operations)).await;
        self.cluster.set_graph_keys(|_| true);
    }

    async fn set_long_running(&self, rules: &Value) {
        let settings = json!({ "resourceManager": { "longRunning": rules } });
        self.cluster.azure.change("PATCH", "settings", &settings.to_string()).await;
    }

    /// The ids without the resources that the configuration does not have any more.
    pub(crate) fn ids_without_removed(&self) -> BTreeSet<String> {
        let removed = [DELETED_ROLE, BALANCER].map(|key| self.cluster.id(key).to_ascii_lowercase());
        self.complete.iter().filter(|id| !removed.contains(id)).cloned().collect()
    }

    /// Continues the run. Every desired resource exists afterwards, and a second run changes nothing.
    pub(crate) async fn continue_run(&self, desired: &BTreeSet<String>, context: &str) {
        let report = self.cluster.apply().await;
        assert!(report.succeeded(), "{context}: {:?}", report.outcomes);
        assert_eq!(self.cluster.resource_ids().await, *desired, "{context}");
        let plan = self.cluster.plan().await;
        assert_eq!(plan.writes().count(), 0, "{context}: {plan:?}");
        let writes = self.cluster.write_count();
        assert!(self.cluster.apply().await.succeeded(), "{context}");
        assert_eq!(self.cluster.write_count(), writes, "{context}");
        self.assert_foreign_unchanged().await;
    }

    /// Rolls the run back. Only these ids exist afterwards.
    pub(crate) async fn roll_back(&self, expected: &BTreeSet<String>, context: &str) {
        let report = self.cluster.roll_back().await.unwrap();
        assert!(report.succeeded(), "{context}: {:?}", report.outcomes);
        assert_eq!(self.cluster.resource_ids().await, *expected, "{context}");
        assert!(self.cluster.roll_back().await.is_err(), "{context}");
        self.assert_foreign_unchanged().await;
    }

    /// Rolls the run back. All resources have their bodies from before the run, but Azure gives `recreated` a new id.
    pub(crate) async fn roll_back_to(
        &self,
        mut earlier: BTreeMap<String, Value>,
        recreated: Option<&str>,
        context: &str,
    ) {
        self.roll_back(&self.complete, context).await;
        let mut bodies = self.cluster.bodies().await;
        if let Some(id) = recreated.map(|key| self.cluster.id(key)) {
            for body in [&mut earlier, &mut bodies] {
                body.get_mut(id).unwrap()["properties"]["resourceGuid"].take();
            }
        }
        let changed: Vec<_> = bodies.iter().filter(|(id, body)| earlier[*id] != **body).collect();
        assert!(changed.is_empty(), "{context}: {changed:?}");
    }

    /// Removes the cluster. Nothing of it is left.
    pub(crate) async fn destroy(&self, context: &str) {
        let report = self.cluster.destroy().await;
        assert!(report.succeeded(), "{context}: {:?}", report.outcomes);
        assert_eq!(self.cluster.resource_ids().await, self.before, "{context}");
        self.assert_no_own_resource_recorded().await;
        self.assert_foreign_unchanged().await;
    }

    /// The journal can still record resources as those of another client, for example a federated credential of which
    /// Azure reports no creator.
    async fn assert_no_own_resource_recorded(&self) {
        let recorded = self.cluster.recorded().await;
        let own: Vec<_> = recorded.resources().filter(|(_, it)| it.ownership.is_ours()).collect();
        assert!(own.is_empty(), "{own:?}");
    }

    async fn assert_foreign_unchanged(&self) {
        for body in &self.foreign {
            assert_eq!(self.cluster.foreign(body["id"].as_str().unwrap()).await, *body);
        }
    }

    pub(crate) async fn shutdown(self) {
        self.cluster.azure.shutdown().await;
    }
}
