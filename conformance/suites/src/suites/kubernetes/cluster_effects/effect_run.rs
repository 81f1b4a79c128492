//! The engine with both effects in one graph. The scheme of an id selects the access, as in a combination with Azure.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_changes::{
    DesiredResource, DestroyPlan, Effect, EffectAccess, EffectError, EffectUsage, EffectWriteError,
    HelmAccess, HelmRelease, HelmSettings, Journal, JournalCluster, KubernetesAccess,
    KubernetesObject, LiveResource, LiveState, NoProgress, OwnershipTags, Plan, PropertyDifference,
    RecordedResource, ResourceGraph, ResourceId, ResourceKey, ResourceOutcome, RollBackPlan,
    RunContext, RunOptions, RunReport, StackName, UnknownValueError, WriteProgress, apply, destroy,
    open_directory, read_live, roll_back,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_cluster::ControlPlane;
use lanyard_kubernetes::{KubectlAccess, KubernetesApi, ObjectClient, UserAgent};
use lanyard_vocabulary::format_error_chain;
use libtest_mimic::Failed;
use serde_json::Value;
use tempfile::TempDir;

use super::super::trial_fixture::KubernetesTrialFixture;

/// The name of the cluster in ids.
pub(super) const CLUSTER: &str = "weu";

const STACK: StackName = StackName::new("fleet");

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClusterEffect {
    Object(KubernetesObject),
    Release(HelmRelease),
}

#[derive(Debug)]
pub(super) struct ClusterAccess {
    kubernetes: KubernetesAccess,
    helm: HelmAccess,
}

/// The engine for one namespace, with the journal of what lanyard wrote to it.
pub(super) struct EffectRun {
    access: ClusterAccess,
    directory: TempDir,
    namespace: String,
    tags: OwnershipTags,
    clock: SharedClock,
    settings: HelmSettings,
}

pub(super) struct EffectReport(RunReport);

pub(super) fn resource_key(name: &str) -> ResourceKey {
    ResourceKey::new(name)
}

impl EffectRun {
    pub(super) async fn new(fixture: &KubernetesTrialFixture) -> Result<Self, Failed> {
        let directory = TempDir::new()?;
        let kubeconfig = fixture.plane.kubeconfig_path(ControlPlane::ADMINISTRATOR);
        let clock = SystemClock::shared();
        let user = KubectlAccess { files: vec![kubeconfig.clone()], context: None };
        let agent = UserAgent::from_static("lanyard-conformance");
        let (api, _) = KubernetesApi::connect_as_kubectl(&user, agent, Arc::clone(&clock)).await?;
        let client = ObjectClient::new(api);
        let kubernetes = KubernetesAccess { cluster: CLUSTER.to_owned(), client };
        let settings = HelmSettings {
            cluster: CLUSTER.to_owned(),
            binary: fixture.helm.clone(),
            kubeconfig,
            context: None,
            home: directory.path().to_owned(),
            environment: Vec::new(),
            lease: Duration::from_mins(10),
        };
        let helm = HelmAccess::open(settings.clone(), Arc::clone(&clock)).await?;
        let (access, namespace) = (ClusterAccess { kubernetes, helm }, fixture.namespace.clone());
        let tags = OwnershipTags::new("shop", "shop-weu");
        Ok(Self { access, directory, namespace, tags, clock, settings })
    }

    /// The same engine for another application.
    pub(super) fn named(self, name: &str) -> Self {
        Self { tags: OwnershipTags::new(name, name), ..self }
    }

    /// The same engine after the lease of all earlier commands.
    pub(super) async fn without_lease(mut self) -> Result<Self, Failed> {
        self.settings.lease = Duration::ZERO;
        self.access.helm = HelmAccess::open(self.settings.clone(), Arc::clone(&self.clock)).await?;
        Ok(self)
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) async fn apply(
        &self,
        effects: &[(String, ClusterEffect)],
    ) -> Result<EffectReport, Failed> {
        let (journal, graph) = (self.journal().await?, self.graph(effects)?);
        let (plan, live) = self.plan(&journal, &graph).await?;
        Ok(EffectReport(apply(self.context(&journal), &graph, &plan, live).await?))
    }

    pub(super) async fn assert_no_changes(
        &self,
        effects: &[(String, ClusterEffect)],
    ) -> Result<(), Failed> {
        let (journal, graph) = (self.journal().await?, self.graph(effects)?);
        let (plan, _) = self.plan(&journal, &graph).await?;
        let writes: Vec<_> = plan.writes().collect();
        assert!(writes.is_empty() && plan.problems().next().is_none(), "{plan:?}");
        Ok(())
    }

    pub(super) async fn destroy(&self) -> Result<EffectReport, Failed> {
        let journal = self.journal().await?;
        let plan = DestroyPlan::new::<ClusterAccess>(&journal.state(), &[STACK]);
        Ok(EffectReport(destroy(self.context(&journal), &plan, &[STACK]).await?))
    }

    pub(super) async fn roll_back(&self) -> Result<EffectReport, Failed> {
        let journal = self.journal().await?;
        let plan = RollBackPlan::new::<ClusterAccess>(&journal.state(), &[STACK])?;
        Ok(EffectReport(roll_back(self.context(&journal), &plan).await?))
    }

    /// Writes an effect as if its resource did not exist.
    pub(super) async fn write_unread(
        &self,
        (id, effect): &(String, ClusterEffect),
    ) -> Result<WriteProgress, EffectWriteError> {
        effect.write(&self.access, &self.id(id), None, &LiveState::default(), &self.tags).await
    }

    async fn journal(&self) -> Result<Journal, Failed> {
        let name = "shop".to_owned();
        let cluster = JournalCluster { infra_id: name.clone(), name, subscription: "s".to_owned() };
        let accepts = |stack: &StackName, _id: &ResourceId, _subscription: &str| *stack == STACK;
        Ok(open_directory(self.directory().join("journal"), &cluster, accepts).await?)
    }

    /// Nothing is repeated, so that errors are reported immediately.
    fn context<'a>(&'a self, journal: &'a Journal) -> RunContext<'a, ClusterAccess> {
        RunContext {
            access: &self.access,
            journal,
            tags: &self.tags,
            caller: &[],
            clock: &self.clock,
            progress: &NoProgress,
            options: RunOptions { retry_timeout: Duration::ZERO, ..RunOptions::default() },
        }
    }

    /// Each resource depends on the one before it.
    fn graph(
        &self,
        effects: &[(String, ClusterEffect)],
    ) -> Result<ResourceGraph<ClusterEffect>, Failed> {
        let mut resources: Vec<DesiredResource<_>> = Vec::new();
        for (id, effect) in effects {
            let (id, effect) = (self.id(id), effect.clone());
            let depends_on =
                resources.last().map(|before| before.key.clone()).into_iter().collect();
            let key = resource_key(id.name());
            resources.push(DesiredResource { key, stack: STACK, id, effect, depends_on });
        }
        Ok(ResourceGraph::new(resources)?)
    }

    fn id(&self, id: &str) -> ResourceId {
        ResourceId::from(id.replace("NAMESPACE", &self.namespace))
    }

    async fn plan(
        &self,
        journal: &Journal,
        graph: &ResourceGraph<ClusterEffect>,
    ) -> Result<(Plan, LiveState), Failed> {
        let live = read_live(&self.access, graph).await.map_err(|errors| format!("{errors:?}"))?;
        Ok((Plan::new(graph, &live, &journal.state(), &self.tags, |_| false), live))
    }
}

impl EffectReport {
    /// The errors of a run that failed, with their causes.
    pub(super) fn success(&self) -> Result<(), String> {
        let errors = self.0.outcomes.values().filter_map(|outcome| match outcome {
            ResourceOutcome::Failed(error) => Some(format_error_chain(error)),
            _ => None,
        });
        let errors: Vec<_> = errors.collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

macro_rules! by_scheme {
    ($id:expr, $access:ident => $value:expr) => {
        if $id.group() == "helm" {
            type $access = HelmAccess;
            $value
        } else {
            type $access = KubernetesAccess;
            $value
        }
    };
}

impl EffectAccess for ClusterAccess {
    fn removes(container: &ResourceId, content: &ResourceId) -> bool {
        by_scheme!(container, Access => Access::removes(container, content))
    }

    fn is_container(id: &ResourceId) -> bool {
        by_scheme!(id, Access => Access::is_container(id))
    }

    fn is_changing(body: &Value) -> bool {
        KubernetesAccess::is_changing(body) || HelmAccess::is_changing(body)
    }

    fn live_resource(id: &ResourceId, body: Value) -> LiveResource {
        by_scheme!(id, Access => Access::live_resource(id, body))
    }

    fn is_restored(id: &ResourceId, body: &Value, live: &Value) -> bool {
        by_scheme!(id, Access => Access::is_restored(id, body, live))
    }

    async fn read(&self, id: &ResourceId) -> Result<Option<LiveResource>, EffectError> {
        match id.group() {
            "helm" => self.helm.read(id).await,
            _ => self.kubernetes.read(id).await,
        }
    }

    async fn read_foreign_content(
        &self,
        id: &ResourceId,
        planned: &[&RecordedResource],
        tags: &OwnershipTags,
    ) -> Result<Vec<String>, EffectError> {
        match id.group() {
            "helm" => self.helm.read_foreign_content(id, planned, tags).await,
            _ => self.kubernetes.read_foreign_content(id, planned, tags).await,
        }
    }

    async fn delete(
        &self,
        id: &ResourceId,
        live: &LiveResource,
    ) -> Result<WriteProgress, EffectError> {
        match id.group() {
            "helm" => self.helm.delete(id, live).await,
            _ => self.kubernetes.delete(id, live).await,
        }
    }

    async fn restore(
        &self,
        id: &ResourceId,
        body: &Value,
        live: Option<&LiveResource>,
    ) -> Result<WriteProgress, EffectError> {
        match id.group() {
            "helm" => self.helm.restore(id, body, live).await,
            _ => self.kubernetes.restore(id, body, live).await,
        }
    }
}

impl Effect for ClusterEffect {
    type Access = ClusterAccess;

    fn usage(&self) -> EffectUsage {
        EffectUsage::Own
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        match self {
            Self::Object(object) => object.diff(found, live),
            Self::Release(release) => release.diff(found, live),
        }
    }

    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        match self {
            Self::Object(object) => object.updated_properties(live),
            Self::Release(release) => release.updated_properties(live),
        }
    }

    async fn write(
        &self,
        access: &ClusterAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        match self {
            Self::Object(object) => {
                object.write(&access.kubernetes, id, existing, live, tags).await
            }
            Self::Release(release) => release.write(&access.helm, id, existing, live, tags).await,
        }
    }
}
