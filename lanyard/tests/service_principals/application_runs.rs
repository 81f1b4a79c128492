//! Runs of the engine that create and delete the application of a component, and may end at any of their requests.

use std::sync::Arc;
use std::time::Duration;

use lanyard_azure::{GraphApplication, GraphApplicationBody, GraphClient};
use lanyard_changes::{
    AzureAccess, AzureEffect, AzureGraph, AzureResource, DestroyPlan, EntraApplication, Journal,
    NoProgress, Ownership, OwnershipTags, ResourceKey, RollBackPlan, RunContext, RunOptions,
    RunReport, apply, destroy, open_directory, read_live, roll_back, wait_for_interrupted_writes,
};
use lanyard_clock::SharedClock;
use lanyard_infra::{plan_changes, stacks};
use tempfile::TempDir;

use crate::engine_client::{CutPosition, EngineClient};
use crate::environment::Environment;
use crate::late_purge::in_virtual_time;

/// A run of lanyard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Apply,
    Destroy,
    RollBack,
}

/// The application of one component, with a journal of its own.
struct ApplicationRuns<'a> {
    environment: &'a Environment,
    client: Arc<EngineClient>,
    access: AzureAccess,
    tags: OwnershipTags,
    directory: TempDir,
}

fn key() -> ResourceKey {
    ResourceKey::new("application/controlPlaneOperator")
}

impl<'a> ApplicationRuns<'a> {
    fn new(environment: &'a Environment) -> Self {
        let client = EngineClient::new(Arc::clone(&environment.engine));
        let access = environment.access(Arc::<EngineClient>::clone(&client));
        let tags = OwnershipTags::new("dev", "identities");
        Self { environment, client, access, tags, directory: TempDir::new().unwrap() }
    }

    /// The client of Microsoft Graph that observes, and acts as another client.
    fn other(&self) -> GraphClient {
        self.environment.access(EngineClient::new(Arc::clone(&self.environment.engine))).graph
    }

    fn name(&self) -> &str {
        self.environment.names.name.as_str()
    }

    async fn application(&self) -> Option<GraphApplication> {
        let find = async { self.other().application_by_unique_name(self.name()).await.unwrap() };
        in_virtual_time(self.environment.clock(), find).await
    }

    async fn create_as_another_client(&self) -> GraphApplication {
        let body = GraphApplicationBody::new("another team");
        let create = async {
            let created = self.other().upsert_application(self.name(), &body).await.unwrap();
            self.other().upsert_service_principal(created.app_id).await.unwrap();
            created
        };
        in_virtual_time(self.environment.clock(), create).await
    }

    async fn journal(&self) -> Journal {
        let path = self.directory.path().to_owned();
        open_directory(path, &self.environment.cluster, stacks::can_contain).await.unwrap()
    }

    async fn ownership(&self) -> Option<Ownership> {
        let journal = self.journal().await;
        journal.state().get(&key()).map(|record| record.ownership)
    }

    /// The report of a run; `None` if it was cut, or had nothing to do.
    async fn run(&self, run: Run, cut: Option<(usize, CutPosition)>) -> Option<RunReport> {
        self.client.begin_run(cut, None);
        let journal = self.journal().await;
        let clock: SharedClock = Arc::new(self.environment.clock());
        let options = RunOptions { retry_timeout: Duration::from_mins(2), ..RunOptions::default() };
        let context = RunContext {
            access: &self.access,
            journal: &journal,
            tags: &self.tags,
            caller: &[],
            clock: &clock,
            progress: &NoProgress,
            options,
        };
        let work = in_virtual_time(self.environment.clock(), self.work(run, context, &journal));
        tokio::select! {
            biased;
            () = self.client.reached() => None,
            report = work => report,
        }
    }

    async fn work(
        &self,
        run: Run,
        context: RunContext<'_, AzureAccess>,
        journal: &Journal,
    ) -> Option<RunReport> {
        wait_for_interrupted_writes(context).await.unwrap();
        let stacks = [stacks::IDENTITIES];
        match run {
            Run::Apply => {
                let graph = AzureGraph::new(vec![AzureResource {
                    key: key(),
                    stack: stacks::IDENTITIES,
                    id: EntraApplication::id(self.name()),
                    effect: AzureEffect::EntraApplication(EntraApplication),
                    depends_on: Vec::new(),
                }]);
                let graph = graph.unwrap();
                let live = read_live(context.access, &graph).await.unwrap();
                let plan = plan_changes(&graph, &live, &journal.state(), &self.tags);
                Some(apply(context, &graph, &plan, live).await.unwrap())
            }
            Run::Destroy => {
                let plan = DestroyPlan::new::<AzureAccess>(&journal.state(), &stacks);
                Some(destroy(context, &plan, &stacks).await.unwrap())
            }
            Run::RollBack => {
                let plan = RollBackPlan::new::<AzureAccess>(&journal.state(), &stacks).ok()?;
                Some(roll_back(context, &plan).await.unwrap())
            }
        }
    }
}

/// Cuts the creation at each request, and continues it or rolls it back.
pub(crate) async fn assert_cut_creation_is_continued_or_undone(environment: &Environment) {
    let initial = environment.state();
    let mut cuts = 0;
    for position in [CutPosition::BeforeRequest, CutPosition::AfterRequest] {
        for request in 0.. {
            let mut is_over = false;
            for end in [Run::Apply, Run::RollBack] {
                environment.set_state(&initial);
                let runs = ApplicationRuns::new(environment);
                let cut = runs.run(Run::Apply, Some((request, position))).await;
                is_over |= cut.is_some();
                if is_over {
                    break;
                }
                let ended = runs.run(end, None).await;
                let context = format!("{end:?} after {request} {position:?}");
                assert!(ended.is_none_or(|it| it.succeeded()), "{context}");
                let created = runs.application().await;
                assert_eq!(created.is_some(), end == Run::Apply, "{context}");
                let Some(created) = created else { continue };
                assert_eq!(runs.ownership().await, Some(Ownership::Created), "{context}");
                let other = runs.other();
                let find = other.service_principal_object_id(created.app_id);
                let principal = in_virtual_time(environment.clock(), find).await;
                assert!(principal.unwrap().is_some(), "{context}");
                assert!(runs.run(Run::Destroy, None).await.unwrap().succeeded(), "{context}");
                assert_eq!(runs.application().await, None, "{context}");
            }
            if is_over {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts >= 6, "{cuts}");
}

/// Uses an application of another client with the unique name.
pub(crate) async fn assert_application_of_another_client_stays(environment: &Environment) {
    let runs = ApplicationRuns::new(environment);
    let created = runs.create_as_another_client().await;
    for run in [Run::Apply, Run::RollBack, Run::Destroy] {
        let ended = runs.run(run, None).await;
        assert!(ended.is_none_or(|it| it.succeeded()), "{run:?}");
        assert_eq!(runs.application().await.as_ref(), Some(&created), "{run:?}");
        if run == Run::Apply {
            assert_eq!(runs.ownership().await, Some(Ownership::Existing));
        }
    }
}

/// Another client creates an application in the place of one of lanyard.
pub(crate) async fn assert_replacement_of_another_client_stays(environment: &Environment) {
    let runs = ApplicationRuns::new(environment);
    assert!(runs.run(Run::Apply, None).await.unwrap().succeeded());
    let ours = runs.application().await.unwrap().id;
    let delete = async {
        runs.other().delete_application(ours).await.unwrap();
        runs.other().purge_deleted_object(ours).await.unwrap();
    };
    in_virtual_time(environment.clock(), delete).await;
    let created = runs.create_as_another_client().await;
    assert!(runs.run(Run::Destroy, None).await.unwrap().succeeded());
    assert_eq!(runs.application().await, Some(created));
}
