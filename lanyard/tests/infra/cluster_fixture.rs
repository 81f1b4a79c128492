//! The infrastructure of one cluster in the local Azure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::HttpClient;
use azure_storage_blob::{BlobClient, BlobClientOptions};
use lanyard_azure::{
    ArmBody as _, ArmClient, ArmRequest, AssignedPrincipalType, FederatedCredentialBody,
    GraphClient, OperationStart, PendingOperation, RoleAssignmentBody,
};
use lanyard_changes::{
    AzureAccess, AzureEffect, AzureGraph, AzureResource, ContainerAccess, DestroyPlan, Journal,
    JournalAccess, JournalCluster, JournalError, JournalHolder, JournalLocation, JournalTarget,
    LiveState, NoProgress, NothingToRollBack, OwnershipTags, Plan, RecordedState, ResourceKey,
    RollBackPlan, RunContext, RunOptions, RunReport, StackError, StackName, apply, assigns_roles,
    destroy, open_directory, read_live, recorded_principals, role_principals, roll_back,
    wait_for_interrupted_writes,
};
use lanyard_clock::SharedClock;
use lanyard_infra::{ClusterIdentifiers, infra_resources, plan_changes, stacks};
use lanyard_vocabulary::{RoleDefinitionId, SubscriptionId};
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster_resources::{cluster_identifiers, cluster_resources, infra_parameters};
use crate::request_cutter::{CutPosition, RequestCutter};
use crate::virtual_time_azure::VirtualTimeAzure;

const STACKS: [StackName; 2] = [stacks::INFRA, stacks::IAM];
const FOREIGN_API_VERSION: &str = "2023-11-01";
const STORAGE_BLOB_DATA_CONTRIBUTOR: &str = "ba92f5b4-2d11-453d-a403-e96b0029c9fe";

/// The infrastructure of a cluster, its journal and the local Azure.
pub(crate) struct ClusterFixture {
    pub(crate) azure: VirtualTimeAzure,
    observer: ArmClient,
    arm: ArmClient,
    graph_client: GraphClient,
    cutter: RequestCutter,
    directory: TempDir,
    /// The container of the journal, and how to sign in to it; otherwise the journal is in the directory.
    container: Option<(JournalLocation, JournalAccess)>,
    graph: AzureGraph,
    /// The resources at the start, also those that the graph does not have any more.
    resources: Vec<AzureResource>,
    identifiers: ClusterIdentifiers,
    tags: OwnershipTags,
    /// The names of the identity of the client.
    caller: Vec<String>,
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

    /// A self-managed cluster of which two components have identities and roles.
    pub(crate) async fn start_with_some_roles() -> Self {
        const KEPT: [&str; 4] = [
            "identity/imageRegistry",
            "identity/cloudProvider",
            "role/ciro",
            "role/cloud-provider",
        ];
        Self::start_with(|subscription| {
            let mut resources = cluster_resources(subscription);
            resources.retain(|resource| {
                let key = resource.key.as_str();
                let is_of_component = key.starts_with("identity/") || key.starts_with("role/");
                !is_of_component || KEPT.iter().any(|kept| key.starts_with(kept))
            });
            resources
        })
        .await
    }

    async fn start_with(resources: impl FnOnce(&SubscriptionId) -> Vec<AzureResource>) -> Self {
        let azure = VirtualTimeAzure::start().await;
        let identifiers = cluster_identifiers();
        let cutter = RequestCutter::default();
        let resources = resources(&azure.cluster.azure.subscription);
        Self {
            observer: azure.owner_client(|inner| RequestCutter::default().wrap(inner)),
            arm: azure.owner_client(|inner| cutter.wrap(inner)),
            graph_client: azure.owner_graph(),
            cutter,
            directory: TempDir::new().unwrap(),
            container: None,
            graph: AzureGraph::new(resources.clone()).unwrap(),
            resources,
            tags: identifiers.ownership_tags(),
            caller: Box::pin(azure.owner()).await.creator_names,
            clock: azure.shared_clock(),
            identifiers,
            azure,
        }
    }

    /// Moves the journal, which must be new, to a blob container, for which the owner of the subscription gets a
    /// role.
    pub(crate) async fn use_container(&mut self) {
        const SETTINGS: &str = "2024-01-01";
        let subscription = &self.azure.cluster.azure.subscription;
        let path = format!("/subscriptions/{subscription}/resources");
        let listed = self.run(self.observer.list(&path, "2021-04-01", &[])).await.unwrap();
        let is_account = |it: &&Value| it["type"] == "Microsoft.Storage/storageAccounts";
        let account = listed.iter().find(is_account).unwrap()["id"].as_str().unwrap().to_owned();
        let container = format!("{account}/blobServices/default/containers/journals");
        let request = ArmRequest::put(&container, SETTINGS, serde_json::json!({}));
        self.run(self.observer.send(&request)).await.unwrap();
        let caller = self.run(self.azure.owner()).await;
        let role = STORAGE_BLOB_DATA_CONTRIBUTOR.parse().map(RoleDefinitionId).unwrap();
        let body = RoleAssignmentBody::new(subscription, role, caller.object_id)
            .with_principal_type(AssignedPrincipalType::ServicePrincipal);
        let path = format!(
            "{account}/providers/{}/{role_name}",
            RoleAssignmentBody::RESOURCE_TYPE,
            role_name = uuid::Uuid::from_u128(7)
        );
        let request = ArmRequest::put(&path, RoleAssignmentBody::API_VERSION, body.to_json());
        self.run(self.observer.send(&request)).await.unwrap();
        let host = account.rsplit('/').next().unwrap();
        let url = format!("https://{host}.blob.core.windows.net/journals/team");
        let access = self.container_access("first command", |inner| self.cutter.wrap(inner));
        self.container = Some((url.parse().unwrap(), access));
    }

    /// How a command signs in to the container. `wrap` wraps its HTTP client.
    pub(crate) fn container_access(
        &self,
        holder: &str,
        wrap: impl FnOnce(Arc<dyn HttpClient>) -> Arc<dyn HttpClient>,
    ) -> JournalAccess {
        JournalAccess {
            container: ContainerAccess {
                credential: self.azure.owner_credential(),
                client_options: self.azure.transport_with(wrap).client_options(),
            },
            holder: JournalHolder::new(holder),
            clock: SharedClock::clone(&self.clock),
            stack_rule: stacks::can_contain,
            lock_timeout: None,
        }
    }

    /// Uses other settings for the container from now on.
    pub(crate) fn set_container_access(&mut self, access: JournalAccess) {
        self.container.as_mut().unwrap().1 = access;
    }

    fn journal_cluster(&self) -> JournalCluster {
        self.identifiers.journal_cluster(&self.azure.cluster.azure.subscription)
    }

    async fn journal(&self) -> Journal {
        match &self.container {
            None => {
                let (path, cluster) = (self.directory.path().to_owned(), self.journal_cluster());
                open_directory(path, &cluster, stacks::can_contain).await
            }
            Some((_, access)) => self.open_container(access).await,
        }
        .unwrap()
    }

    /// Opens the journal in the container as another command would.
    pub(crate) async fn open_container(
        &self,
        access: &JournalAccess,
    ) -> Result<Journal, JournalError> {
        self.open_container_as(self.journal_cluster(), access).await
    }

    /// Opens the journal in the container as a command for another cluster would.
    pub(crate) async fn open_container_of(
        &self,
        name: &str,
        access: &JournalAccess,
    ) -> Result<Journal, JournalError> {
        let cluster = JournalCluster { name: name.to_owned(), ..self.journal_cluster() };
        self.open_container_as(cluster, access).await
    }

    async fn open_container_as(
        &self,
        cluster: JournalCluster,
        access: &JournalAccess,
    ) -> Result<Journal, JournalError> {
        let (location, _) = self.container.clone().unwrap();
        let access = access.clone();
        let target = JournalTarget { location, cluster, access, on_event: |_| () };
        target.open().await.map_err(|error| match error {
            StackError::Journal(error) => error,
            error => unreachable!("{error}"),
        })
    }

    /// The lines of the journal in the container.
    pub(crate) async fn journal_lines(&self) -> Vec<String> {
        let (location, access) = self.container.as_ref().unwrap();
        let url = format!("{location}/journal.jsonl").parse().unwrap();
        let ContainerAccess { credential, client_options } = access.container.clone();
        let options = BlobClientOptions { client_options, ..BlobClientOptions::default() };
        let blob = BlobClient::new(url, Some(credential), Some(options)).unwrap();
        let content = self.run(async {
            blob.download(None).await.unwrap().body.collect().await.unwrap().to_vec()
        });
        let text = String::from_utf8(content.await).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The content of the journal in the directory.
    pub(crate) async fn journal_text(&self) -> String {
        tokio::fs::read_to_string(self.directory.path().join("journal.jsonl")).await.unwrap()
    }

    /// Replaces the content of the journal in the directory.
    pub(crate) async fn replace_journal(&self, content: &str) {
        tokio::fs::write(self.directory.path().join("journal.jsonl"), content).await.unwrap();
    }

    /// Removes the last entry of the journal in the directory, which ends the last run.
    pub(crate) async fn reopen_last_run(&self) {
        let path = self.directory.path().join("journal.jsonl");
        let content = tokio::fs::read_to_string(&path).await.unwrap();
        let start = content.trim_end().rfind('\n').unwrap() + 1;
        assert!(content[start..].contains("runEnded"), "{content}");
        tokio::fs::write(&path, &content[..start]).await.unwrap();
    }

    /// Changes the bodies of earlier resources in the journal of the directory, as a user with write access could.
    pub(crate) async fn forge_earlier_bodies(&self, change: impl Fn(&mut Value)) {
        let path = self.directory.path().join("journal.jsonl");
        let content = tokio::fs::read_to_string(&path).await.unwrap();
        let forge = |line: &str| {
            let mut entry: Value = serde_json::from_str(line).unwrap();
            if let Some(before) = entry.get_mut("before") {
                change(before);
            }
            entry.to_string()
        };
        let lines: Vec<String> = content.lines().map(forge).collect();
        tokio::fs::write(&path, lines.join("\n") + "\n").await.unwrap();
    }

    /// What the journal records.
    pub(crate) async fn recorded(&self) -> RecordedState {
        let journal = self.run(self.journal()).await;
        let state = journal.state();
        self.run(journal.close()).await.unwrap();
        state
    }

    fn context<'a>(
        &'a self,
        access: &'a AzureAccess,
        journal: &'a Journal,
    ) -> RunContext<'a, AzureAccess> {
        let Self { clock, tags, caller, .. } = self;
        let (progress, options) = (&NoProgress, RunOptions::default());
        RunContext { access, journal, tags, caller, clock, progress, options }
    }

    /// Advances the time until the work is done.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
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

    fn access(&self) -> AzureAccess {
        AzureAccess::new(self.arm.clone(), self.graph_client.clone())
    }

    async fn plan_with(&self, recorded: &RecordedState) -> (Plan, LiveState) {
        let live = read_live(&self.access(), &self.graph).await.unwrap();
        (plan_changes(&self.graph, &live, recorded, &self.tags), live)
    }

    pub(crate) async fn plan(&self) -> Plan {
        let recorded = self.recorded().await;
        self.run(self.plan_with(&recorded)).await.0
    }

    async fn apply_once(&self) -> RunReport {
        let journal = self.journal().await;
        let access = self.access();
        let context = self.context(&access, &journal);
        wait_for_interrupted_writes(context).await.unwrap();
        let (plan, live) = self.plan_with(&journal.state()).await;
        let report = apply(context, &self.graph, &plan, live).await.unwrap();
        // A lease that is lost cannot be released.
        drop(journal.close().await);
        report
    }

    async fn destroy_once(&self) -> RunReport {
        let journal = self.journal().await;
        let plan = DestroyPlan::new::<AzureAccess>(&journal.state(), &STACKS);
        let access = self.access();
        let report = destroy(self.context(&access, &journal), &plan, &STACKS).await.unwrap();
        drop(journal.close().await);
        report
    }

    async fn roll_back_once(&self) -> Result<RunReport, NothingToRollBack> {
        let journal = self.journal().await;
        let plan = RollBackPlan::new::<AzureAccess>(&journal.state(), &STACKS)?;
        let mut access = self.access();
        access.known_principals = role_principals(&self.graph).into_iter().collect();
        if assigns_roles(&plan) {
            let recorded = recorded_principals(&self.arm, &journal.state(), &self.tags).await;
            access.known_principals.extend(recorded.unwrap());
        }
        let context = self.context(&access, &journal);
        wait_for_interrupted_writes(context).await.unwrap();
        let report = roll_back(context, &plan).await.unwrap();
        drop(journal.close().await);
        Ok(report)
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

    /// Undoes the interrupted run without an interruption.
    pub(crate) async fn roll_back(&self) -> Result<RunReport, NothingToRollBack> {
        self.cutter.disable();
        self.run(self.roll_back_once()).await
    }

    /// Undoes the interrupted run until the roll-back reaches the request of the cut, and returns whether it did.
    pub(crate) async fn interrupted_roll_back(&self) -> bool {
        self.interrupt(Box::pin(self.roll_back_once())).await
    }

    /// Sets the request at which the next run ends.
    pub(crate) fn cut_at(&self, number: usize, position: CutPosition) {
        self.cutter.cut_at(number, position);
    }

    /// Applies the plan until the run reaches the request of the cut, and returns whether it did.
    pub(crate) async fn interrupted_apply(&self) -> bool {
        self.interrupt(Box::pin(self.apply_once())).await
    }

    /// Removes the cluster until the run reaches the request of the cut, and returns whether it did.
    pub(crate) async fn interrupted_destroy(&self) -> bool {
        self.interrupt(Box::pin(self.destroy_once())).await
    }

    async fn interrupt<T>(&self, work: impl Future<Output = T>) -> bool {
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
    pub(crate) async fn recorded_count(&self) -> usize {
        self.recorded().await.resources().count()
    }

    /// The live resources of the graph by their id, without what changes with each write.
    pub(crate) async fn bodies(&self) -> BTreeMap<String, Value> {
        let mut bodies = BTreeMap::new();
        for resource in &self.resources {
            let read = self.observer.fetch_optional(resource.id.as_str(), api_version(resource));
            // A role assignment at a scope that does not exist, for example.
            if let Ok(Some(found)) = self.run(read).await {
                bodies.insert(resource.id.to_string(), without_versions(found.body));
            }
        }
        bodies
    }

    /// The ids of all groups, resources and role assignments of the subscription.
    pub(crate) async fn resource_ids(&self) -> BTreeSet<String> {
        let subscription = format!("/subscriptions/{}", self.azure.cluster.azure.subscription);
        let assignments = format!("providers/{}", RoleAssignmentBody::RESOURCE_TYPE);
        let mut ids = BTreeSet::new();
        for (collection, version) in [
            ("resources", "2021-04-01"),
            ("resourcegroups", "2021-04-01"),
            (&*assignments, RoleAssignmentBody::API_VERSION),
        ] {
            let path = format!("{subscription}/{collection}");
            let listed = self.run(self.observer.list(&path, version, &[])).await.unwrap();
            ids.extend(listed.iter().map(|it| it["id"].as_str().unwrap().to_ascii_lowercase()));
        }
        ids
    }

    fn resource(&self, key: &str) -> &AzureResource {
        self.resources.iter().find(|it| it.key.as_str() == key).unwrap()
    }

    /// The id of a resource at the start.
    pub(crate) fn id(&self, key: &str) -> &str {
        self.resource(key).id.as_str()
    }

    /// The live resource with this key.
    pub(crate) async fn live(&self, key: &str) -> Value {
        let resource = self.resource(key);
        let read = self.observer.fetch(resource.id.as_str(), api_version(resource));
        self.run(read).await.unwrap().body
    }

    /// Removes a resource from the configuration.
    pub(crate) fn remove_from_graph(&mut self, key: &str) {
        let resources = self.resources.iter().filter(|it| it.key.as_str() != key);
        self.graph = AzureGraph::new(resources.cloned().collect()).unwrap();
    }

    /// Limits the configuration to resources at the start that have one of these keys.
    pub(crate) fn set_graph_keys(&mut self, is_kept: impl Fn(&str) -> bool) {
        let resources = self.resources.iter().filter(|it| is_kept(it.key.as_str()));
        self.graph = AzureGraph::new(resources.cloned().collect()).unwrap();
    }

    /// Writes a resource of the cluster as another client would; without a body, deletes it. Returns the operation if
    /// Azure has not completed the write.
    pub(crate) async fn start_write(
        &self,
        key: &str,
        body: Option<Value>,
    ) -> Option<PendingOperation> {
        let resource = self.resource(key);
        let (id, version) = (resource.id.as_str(), api_version(resource));
        let request = match body {
            Some(body) => ArmRequest::put(id, version, body),
            None => ArmRequest::delete(id, version),
        };
        match self.run(self.observer.start(&request)).await.unwrap() {
            OperationStart::Completed(_) => None,
            OperationStart::Pending(operation) => Some(operation),
        }
    }

    /// Creates a resource outside the cluster, and returns its live body.
    pub(crate) async fn create_foreign(&self, path: &str, body: Value) -> Value {
        let path = format!("/subscriptions/{}{path}", self.azure.cluster.azure.subscription);
        let request = ArmRequest::put(&path, FOREIGN_API_VERSION, body);
        self.run(self.observer.send(&request)).await.unwrap();
        self.foreign(&path).await
    }

    /// The live body of a resource outside the cluster.
    pub(crate) async fn foreign(&self, id: &str) -> Value {
        self.run(self.observer.fetch(id, FOREIGN_API_VERSION)).await.unwrap().body
    }

    /// Replaces a role assignment by one of the same name with the principal of another one.
    pub(crate) async fn change_principal(&self, key: &str, other: &str) {
        let id = |key: &str| self.graph.get(&ResourceKey::new(key)).unwrap().id.to_string();
        let version = RoleAssignmentBody::API_VERSION;
        let principal = async |key: &str| {
            self.run(self.observer.fetch(&id(key), version)).await.unwrap().body["properties"]
                .clone()
        };
        let mut properties = principal(key).await;
        properties["principalId"] = principal(other).await["principalId"].take();
        let deletion = ArmRequest::delete(id(key), version);
        self.run(self.observer.send(&deletion)).await.unwrap();
        let request = ArmRequest::put(id(key), version, assignment_body(properties));
        self.run(self.observer.send(&request)).await.unwrap();
    }

    /// Changes a live resource as another client would.
    pub(crate) async fn change_live(&self, key: &str, change: impl FnOnce(&mut Value)) {
        let id = &self.resource(key).id;
        let mut body = self.live(key).await;
        change(&mut body);
        let request = ArmRequest::put(id.as_str(), "2023-11-01", body);
        self.run(self.observer.send(&request)).await.unwrap();
        // The change is a long-running operation.
        self.azure.advance(Duration::from_mins(1)).await;
    }
}

/// The body that creates a role assignment with the properties of a live one.
pub(crate) fn assignment_body(mut properties: Value) -> Value {
    properties
        .as_object_mut()
        .unwrap()
        .retain(|name, _| matches!(&**name, "roleDefinitionId" | "principalId" | "principalType"));
    serde_json::json!({ "properties": properties })
}

fn api_version(resource: &AzureResource) -> &'static str {
    match &resource.effect {
        AzureEffect::Arm(resource) => resource.api_version,
        AzureEffect::FederatedCredential(_) => FederatedCredentialBody::API_VERSION,
        AzureEffect::RoleAssignment(_) => RoleAssignmentBody::API_VERSION,
        AzureEffect::EntraApplication(_) => unreachable!("a cluster has no application"),
    }
}

fn without_versions(mut body: Value) -> Value {
    match &mut body {
        Value::Object(properties) => {
            let changing = ["etag", "systemData", "createdOn", "updatedOn"];
            properties.retain(|name, _| !changing.contains(&name.as_str()));
            for value in properties.values_mut() {
                *value = without_versions(value.take());
            }
        }
        Value::Array(elements) => {
            for value in elements {
                *value = without_versions(value.take());
            }
        }
        _ => {}
    }
    body
}
