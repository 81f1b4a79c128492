//! A fleet in the local Azure.

use std::collections::BTreeSet;
use std::time::Duration;

use lanyard_azure::{ArmClient, ArmRequest, OperationStart, PollPolicy};
use lanyard_changes::{
    AzureAccess, ContainerAccess, JournalAccess, JournalHolder, JournalLocation, JournalTarget,
    NoProgress, OwnershipTags, RecordedStacks, RunOptions, RunSettings, StackError,
};
use lanyard_clock::SharedClock;
use lanyard_fleet::{
    FLEET, Fleet, FleetCluster, FleetRules, FleetTarget, can_contain, journal_cluster,
};
use lanyard_infra::AzureSubscription;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::request_cutter::{CutPosition, RequestCutter};
use crate::virtual_time_azure::VirtualTimeAzure;

const SECRETS: [&str; 1] = ["db-password"];

/// A fleet with the application `web`, its journals and the local Azure.
pub(crate) struct FleetFixture {
    pub(crate) azure: VirtualTimeAzure,
    observer: ArmClient,
    arm: ArmClient,
    cutter: RequestCutter,
    directory: TempDir,
    fleet: Fleet,
    caller: Vec<String>,
    clock: SharedClock,
}

impl FleetFixture {
    /// Creates AKS clusters without issuers, and a vault.
    pub(crate) async fn start(clusters: &[&str]) -> Self {
        let azure = VirtualTimeAzure::start().await;
        let cutter = RequestCutter::default();
        let directory = TempDir::new().unwrap();
        let group =
            format!("/subscriptions/{}/resourceGroups/aks", azure.cluster.azure.subscription);
        let vault = format!("{group}/providers/Microsoft.KeyVault/vaults/kv-shop-fleet");
        let entry = |name: &&str| {
            format!(
                "  - {{ name: {name}, id: {group}/providers/Microsoft.ContainerService/managedClusters/{name} }}\n"
            )
        };
        let clusters: String = clusters.iter().map(entry).collect();
        let file = directory.path().join("fleet.yaml");
        let text = format!(
            "apiVersion: lanyard.dev/v1alpha1\nkind: Fleet\nmetadata: {{ name: shop }}\n\
             defaults: {{ identityResourceGroup: shop-identities, oidcIssuer: enable }}\n\
             clusters:\n{clusters}\
             applications:\n  - name: web\n    namespace: shop\n    keyVault: {{ id: {vault}, secrets: [{}] }}\n",
            SECRETS.join(", ")
        );
        std::fs::write(&file, text).unwrap();
        let fixture = Self {
            observer: azure.owner_client(|inner| RequestCutter::default().wrap(inner)),
            arm: azure.owner_client(|inner| cutter.wrap(inner)),
            cutter,
            fleet: Fleet::read(&file, |_| None).unwrap(),
            caller: Box::pin(azure.owner()).await.creator_names,
            clock: azure.shared_clock(),
            directory,
            azure,
        };
        fixture.put(&group, "2021-04-01", json!({ "location": "westeurope" })).await;
        let tenant = fixture.azure.test_credentials().tenant;
        let properties = json!({
            "tenantId": tenant.as_str(), "sku": { "family": "A", "name": "standard" },
            "enableRbacAuthorization": true, "accessPolicies": [],
        });
        let body = json!({ "location": "westeurope", "properties": properties });
        fixture.put(&vault, "2023-07-01", body).await;
        for cluster in &fixture.fleet.clusters {
            fixture.create_cluster(cluster).await;
        }
        fixture
    }

    async fn create_cluster(&self, cluster: &FleetCluster) {
        let pool = json!({
            "name": "system", "mode": "System", "count": 1, "vmSize": "Standard_D4s_v4",
        });
        let body = json!({
            "location": "westeurope",
            "identity": { "type": "SystemAssigned" },
            "properties": { "dnsPrefix": "shop", "agentPoolProfiles": [pool] },
        });
        self.put(cluster.id.as_str(), "2025-10-01", body).await;
    }

    /// Deletes the AKS clusters, and creates others with the same names.
    pub(crate) async fn create_clusters_again(&self) {
        for cluster in &self.fleet.clusters {
            self.send(ArmRequest::delete(cluster.id.as_str(), "2025-10-01")).await;
            self.create_cluster(cluster).await;
        }
    }

    async fn put(&self, id: &str, version: &'static str, body: Value) {
        self.send(ArmRequest::put(id, version, body)).await;
    }

    async fn send(&self, request: ArmRequest) {
        self.run(async {
            if let OperationStart::Pending(operation) = self.observer.start(&request).await.unwrap()
            {
                let (interval, timeout) = (Duration::from_secs(1), Duration::from_mins(10));
                let policy = PollPolicy { interval, timeout };
                self.observer.wait(operation, &self.clock, policy).await.unwrap();
            }
        })
        .await;
    }

    fn journal(&self, cluster: &FleetCluster) -> JournalTarget {
        let access = JournalAccess {
            container: ContainerAccess {
                credential: self.azure.owner_credential(),
                client_options: self.azure.transport().client_options(),
            },
            holder: JournalHolder::new("test"),
            clock: SharedClock::clone(&self.clock),
            stack_rule: can_contain,
            lock_timeout: None,
        };
        JournalTarget {
            location: JournalLocation::Directory(self.directory.path().join(cluster.name.as_str())),
            cluster: journal_cluster(&self.fleet, cluster),
            access,
            on_event: |_| (),
        }
    }

    fn settings(&self) -> RunSettings<'_> {
        RunSettings {
            caller: &self.caller,
            clock: &self.clock,
            progress: &NoProgress,
            options: RunOptions::default(),
        }
    }

    fn client(&self) -> AzureAccess {
        AzureAccess::new(self.arm.clone(), self.azure.owner_graph())
    }

    async fn apply_once(&self) {
        for cluster in &self.fleet.clusters {
            let journal = self.journal(cluster);
            let target = FleetTarget::resolve(&self.fleet, cluster, self.client(), journal).await;
            let target = target.unwrap();
            let check = |_: &_| target.findings.clone();
            let report =
                target.stack.apply(self.settings(), &check, |_| ()).await.unwrap().unwrap();
            assert!(report.succeeded(), "{:?}", report.outcomes);
        }
    }

    /// Applies the file without an interruption.
    pub(crate) async fn apply(&self) {
        self.cutter.disable();
        self.run(self.apply_once()).await;
    }

    /// Applies the file until the run reaches the request of the cut, and returns whether it did.
    pub(crate) async fn interrupted_apply(&self) -> bool {
        let cut = async {
            tokio::select! {
                () = self.apply_once() => false,
                () = self.cutter.reached() => true,
            }
        };
        self.run(cut).await
    }

    /// Removes what the journals record as lanyard's. The journal of the first cluster records the resource group.
    pub(crate) async fn remove(&self) {
        self.cutter.disable();
        for cluster in self.fleet.clusters.iter().rev() {
            let (id, access) = (cluster.identities.subscription.clone(), self.client());
            let stacks = RecordedStacks {
                rules: FleetRules { subscription: AzureSubscription { id, access } },
                journal: self.journal(cluster),
                tags: OwnershipTags::new(cluster.name.as_str(), self.fleet.name.as_str()),
                stacks: vec![FLEET],
            };
            let plan = async |recorded| stacks.plan(&recorded).await;
            let removal = self.run(stacks.remove::<StackError>(self.settings(), plan)).await;
            assert!(removal.unwrap().succeeded());
        }
    }

    /// Which workloads may read what: for each federated credential of an identity, and for each of its roles.
    pub(crate) async fn access(&self) -> BTreeSet<String> {
        let mut access = BTreeSet::new();
        for cluster in &self.fleet.clusters {
            let body = self.read(cluster.id.as_str(), "2025-10-01").await;
            let issuer = &body["properties"]["oidcIssuerProfile"]["issuerURL"];
            let identity = format!(
                "/subscriptions/{}/resourceGroups/shop-identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities/shop-web-{}",
                cluster.identities.subscription, cluster.name
            );
            let principal = self.read(&identity, "2024-11-30").await;
            let principal = &principal["properties"]["principalId"];
            let list = format!("{identity}/federatedIdentityCredentials");
            let credentials = self.run(self.observer.list(&list, "2024-11-30", &[])).await.unwrap();
            assert_eq!(credentials.len(), 1, "{credentials:?}");
            let credential = &credentials[0];
            assert_eq!(credential["properties"]["issuer"], *issuer);
            let (_, vault) = self.fleet.applications[0]
                .secrets_on(cluster)
                .map(|it| (&it.names, it.vault.as_str()))
                .unwrap();
            for secret in SECRETS {
                let scope = format!("{vault}/secrets/{secret}");
                let list = format!("{scope}/providers/Microsoft.Authorization/roleAssignments");
                let roles = self.run(self.observer.list(&list, "2022-04-01", &[])).await.unwrap();
                let is_own = |it: &&Value| it["properties"]["principalId"] == *principal;
                assert_eq!(roles.iter().filter(is_own).count(), 1, "{secret}");
                access.insert(format!(
                    "{} {} {secret}",
                    cluster.name, credential["properties"]["subject"]
                ));
            }
        }
        access
    }

    async fn read(&self, id: &str, version: &'static str) -> Value {
        self.run(self.observer.fetch_optional(id, version)).await.unwrap().unwrap().body
    }

    /// The ids of all resources and groups of the subscription, without those that AKS creates for a cluster.
    pub(crate) async fn resource_ids(&self) -> BTreeSet<String> {
        let subscription = &self.azure.cluster.azure.subscription;
        let mut ids = BTreeSet::new();
        for kind in ["resources", "resourcegroups"] {
            let path = format!("/subscriptions/{subscription}/{kind}");
            let listed = self.run(self.observer.list(&path, "2021-04-01", &[])).await.unwrap();
            ids.extend(listed.iter().map(|it| it["id"].as_str().unwrap().to_ascii_lowercase()));
        }
        ids
    }

    /// The number of requests since the last cut, or since the start.
    pub(crate) fn request_count(&self) -> usize {
        self.cutter.request_count()
    }

    /// The number of writes since the last cut, or since the start.
    pub(crate) fn write_count(&self) -> usize {
        self.cutter.write_count()
    }

    /// Ends the next run at the request with this number, counted from 0.
    pub(crate) fn cut_at(&self, number: usize, position: CutPosition) {
        self.cutter.cut_at(number, position);
    }

    /// Advances the time until the work is done.
    async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let advance = async {
            loop {
                self.azure.advance(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            result = work => result,
            () = advance => unreachable!("the time advances forever"),
        }
    }
}
