//! The whole flow on a real node, as `docs/tutorial-kubernetes.md` shows it: the three charts, a
//! HostedCluster that `kubectl` applies, and a canary in the place of each of its nine components, over
//! the pod of the local Azure.
//!
//! The trials are the life of one hosted cluster, in this order. They run the commands of that page: page
//! and test cannot differ.

mod canary_metrics;
mod charts;
mod cluster_lifecycle;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use tokio::sync::OnceCell;

use self::charts::HostedClusterPorts;
use super::failed_with_causes;
use crate::kubectl::Kubectl;
use crate::local_azure::ControlApi;
use crate::suite_cluster::SuiteCluster;
use crate::tutorial::{Tutorial, TutorialEnvironment};

/// The HostedCluster of the example, and where its control plane is.
const NAMESPACE: &str = "clusters";
const CLUSTER_NAME: &str = "harbour";
const CONTROL_PLANE_NAMESPACE: &str = "clusters-harbour";

/// The namespace of the releases.
const RELEASE_NAMESPACE: &str = "lanyard";

/// How long pods may take to run, images being there.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// How long something may take until canaries show it and the operator says it: the plugin's
/// interval, the kubelet's period of ten to fifteen seconds, a canary's interval, and time to act on a
/// busy machine.
const PROPAGATION_TIMEOUT: Duration = Duration::from_mins(2);

/// What the trials are made of.
#[derive(Debug)]
pub(crate) struct HostedClusterSuiteInputs {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) images: HostedClusterImages,
    /// The program `helm`.
    pub(crate) helm_program: PathBuf,
    /// The program `lanyard`, for what people type.
    pub(crate) lanyard_program: PathBuf,
    /// The directory in which the commands of the page run.
    pub(crate) repository: PathBuf,
}

/// The names under which the node has our images.
#[derive(Debug)]
pub(crate) struct HostedClusterImages {
    pub(crate) node: String,
    pub(crate) operator: String,
    pub(crate) azure: String,
}

/// Everything that the trials need.
#[derive(Debug)]
pub(crate) struct HostedClusterSuiteFixture {
    inputs: HostedClusterSuiteInputs,
    ports: HostedClusterPorts,
    /// The control API of the pod of the local Azure, over loopback.
    azure_control: ControlApi,
    tutorial: Tutorial,
    tutorial_environment: TutorialEnvironment,
    /// What the last command of the first section printed, or that the section failed.
    installed: OnceCell<Result<String, InstallFailed>>,
}

/// The first section of the page failed, which every later trial depends on.
#[derive(Debug, Clone, Copy)]
struct InstallFailed;

type HostedClusterTrialFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type HostedClusterTrial = for<'a> fn(&'a HostedClusterSuiteFixture) -> HostedClusterTrialFuture<'a>;

const TRIALS: &[(&str, HostedClusterTrial)] = &[
    ("tutorial_installation_shows_nine_granted_identities", |stage| {
        Box::pin(cluster_lifecycle::check_installation(stage))
    }),
    ("nine_canaries_authenticate_for_a_hosted_cluster", |stage| {
        Box::pin(cluster_lifecycle::check_canaries(stage))
    }),
    ("hosted_cluster_identities_reports_every_identity", |stage| {
        Box::pin(cluster_lifecycle::check_identity_status(stage))
    }),
    ("kubectl_lanyard_shows_every_identity", |stage| {
        Box::pin(async { cluster_lifecycle::check_kubectl_plugin(stage) })
    }),
    ("certificate_rotation_never_leaves_a_canary_unauthenticated", |stage| {
        Box::pin(cluster_lifecycle::rotate_all_certificates(stage))
    }),
    ("removed_role_is_reported_for_one_identity_only", |stage| {
        Box::pin(cluster_lifecycle::remove_component_role(stage))
    }),
    ("deleted_hosted_cluster_leaves_no_objects", |stage| {
        Box::pin(cluster_lifecycle::delete_hosted_cluster(stage))
    }),
    ("uninstalled_charts_leave_only_the_crds", |stage| Box::pin(charts::uninstall_charts(stage))),
];

pub(crate) fn trials(stage: HostedClusterSuiteFixture) -> Vec<Trial> {
    let stage = Arc::new(stage);
    TRIALS
        .iter()
        .map(|(name, run)| {
            let (stage, run) = (Arc::clone(&stage), *run);
            Trial::test(format!("hosted_cluster::{name}"), move || {
                stage.inputs.suite_cluster.runtime.block_on(async {
                    stage.install().await?;
                    run(&stage).await
                })
            })
        })
        .collect()
}

impl HostedClusterSuiteFixture {
    /// Prepares the directory of programs and the values files. Nothing is installed yet.
    pub(crate) fn new(parts: HostedClusterSuiteInputs) -> Result<Self, Failed> {
        let ports = HostedClusterPorts::choose()?;
        let azure = ControlApi::new(&ports.control_api_url()).map_err(failed_with_causes)?;
        let page = parts.repository.join("docs").join("tutorial-kubernetes.md");
        let page = Tutorial::read(&page).map_err(failed_with_causes)?;
        let surroundings = charts::build_tutorial_environment(&parts, &ports)?;
        Ok(Self {
            inputs: parts,
            ports,
            azure_control: azure,
            tutorial: page,
            tutorial_environment: surroundings,
            installed: OnceCell::new(),
        })
    }

    /// Runs the commands of the first section of the page, once: what failed is in the message of the
    /// trial that ran them.
    async fn install(&self) -> Result<&str, Failed> {
        let mut failure = None;
        let installed = self.installed.get_or_init(async || {
            self.run_tutorial_section(charts::INSTALL_SECTION).map_err(|error| {
                failure = Some(error);
                InstallFailed
            })
        });
        match installed.await {
            Ok(printed) => Ok(printed),
            Err(InstallFailed) => Err(failure.unwrap_or_else(|| {
                format!(
                    "not run: the section `{}` failed, see the trial above",
                    charts::INSTALL_SECTION
                )
                .into()
            })),
        }
    }

    /// Runs the commands of a section of the page, and returns what the last one printed.
    fn run_tutorial_section(&self, heading: &str) -> Result<String, Failed> {
        let mut printed = String::new();
        for step in self.tutorial.section_steps(heading).map_err(failed_with_causes)? {
            printed = self
                .tutorial_environment
                .run_step(&step)
                .map_err(|error| self.failure_with_logs(error))?;
        }
        Ok(printed)
    }

    fn kubectl(&self) -> &Kubectl {
        &self.inputs.suite_cluster.kubectl
    }

    /// The end of what the pods of a chart logged, for the message of a failure.
    fn chart_logs(&self, chart: &str) -> String {
        let selector = format!("--selector=app.kubernetes.io/name={chart}");
        let arguments =
            ["logs", "--namespace", RELEASE_NAMESPACE, &selector, "--all-containers", "--tail=20"];
        self.kubectl().run(&arguments).unwrap_or_else(|error| error.to_string())
    }

    /// A failure with the logs of the releases and the state of the cluster. The problem itself stands
    /// last, where a reader of a long output begins.
    fn failure_with_logs(&self, problem: impl std::fmt::Display) -> Failed {
        let charts = ["lanyard-azure", "lanyard-node", "lanyard-operator"];
        let logs = charts.map(|chart| format!("{chart}:\n{}", self.chart_logs(chart)));
        let state = ["get", "pods,hostedclusteridentities", "--all-namespaces", "--output=wide"];
        let state = self.kubectl().run(&state).unwrap_or_else(|error| error.to_string());
        format!("{}\n{state}\n{problem}", logs.join("\n")).into()
    }
}
