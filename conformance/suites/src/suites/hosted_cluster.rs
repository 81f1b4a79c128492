//! The suite `hosted-cluster`: the flow of `docs/tutorial/kubernetes-cluster.md` on a real node, with the three
//! charts, a HostedCluster that `kubectl` applies, and a canary for each of its nine components. The local
//! Azure runs in a pod.
//!
//! The trials are the lifecycle of one hosted cluster, in order. They run the commands of that page, so page
//! and test cannot differ. Then the lifecycle of a second one follows, whose Azure resources lanyard's commands
//! create.

mod canary_metrics;
mod charts;
mod cluster_lifecycle;
mod created_environment;

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

/// The HostedCluster of the example and the namespace of its control plane.
const NAMESPACE: &str = "clusters";
const CLUSTER_NAME: &str = "harbour";
const CONTROL_PLANE_NAMESPACE: &str = "clusters-harbour";

const RELEASE_NAMESPACE: &str = "lanyard";

/// How long pods may take to run with local images.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// How long a change may take to reach the canaries and the operator's status: the plugin's interval, the
/// kubelet's sync period of ten to fifteen seconds, a canary's interval, and some time on a busy machine.
const PROPAGATION_TIMEOUT: Duration = Duration::from_mins(2);

/// The inputs of the fixture.
#[derive(Debug)]
pub(crate) struct HostedClusterSuiteInputs {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) images: HostedClusterImages,
    /// The program `helm`.
    pub(crate) helm_program: PathBuf,
    /// The program `lanyard`, as a user runs it.
    pub(crate) lanyard_program: PathBuf,
    /// The directory in which the commands of the page run.
    pub(crate) repository: PathBuf,
}

/// Image names on the node.
#[derive(Debug)]
pub(crate) struct HostedClusterImages {
    pub(crate) node: String,
    pub(crate) operator: String,
    pub(crate) azure: String,
}

/// The fixture of the suite `hosted-cluster`.
#[derive(Debug)]
pub(crate) struct HostedClusterSuiteFixture {
    inputs: HostedClusterSuiteInputs,
    ports: HostedClusterPorts,
    /// The control API of the local Azure's pod, over loopback.
    azure_control: ControlApi,
    tutorial: Tutorial,
    tutorial_environment: TutorialEnvironment,
    /// The output of the last command of the installation, or that the installation failed.
    installed: OnceCell<Result<String, InstallFailed>>,
}

/// The installation failed, which every trial depends on.
#[derive(Debug, Clone, Copy)]
struct InstallFailed;

type HostedClusterTrialFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type HostedClusterTrial = for<'a> fn(&'a HostedClusterSuiteFixture) -> HostedClusterTrialFuture<'a>;

const TRIALS: &[(&str, HostedClusterTrial)] = &[
    ("tutorial_installation_shows_nine_granted_identities", |fixture| {
        Box::pin(cluster_lifecycle::check_installation(fixture))
    }),
    ("nine_canaries_authenticate_for_a_hosted_cluster", |fixture| {
        Box::pin(cluster_lifecycle::check_canaries(fixture))
    }),
    ("hosted_cluster_identities_reports_every_identity", |fixture| {
        Box::pin(cluster_lifecycle::check_identity_status(fixture))
    }),
    ("kubectl_lanyard_shows_every_identity", |fixture| {
        Box::pin(async { cluster_lifecycle::check_kubectl_plugin(fixture) })
    }),
    ("certificate_rotation_never_leaves_a_canary_unauthenticated", |fixture| {
        Box::pin(cluster_lifecycle::rotate_all_certificates(fixture))
    }),
    ("removed_role_is_reported_for_one_identity_only", |fixture| {
        Box::pin(cluster_lifecycle::remove_component_role(fixture))
    }),
    ("deleted_hosted_cluster_leaves_no_objects", |fixture| {
        Box::pin(cluster_lifecycle::delete_hosted_cluster(fixture))
    }),
    ("nine_created_identities_are_proven_on_the_node", |fixture| {
        Box::pin(created_environment::prove_created_identities(fixture))
    }),
    ("rotated_created_identity_is_proven_with_its_new_version", |fixture| {
        Box::pin(created_environment::rotate_created_identity(fixture))
    }),
    ("deleted_hosted_cluster_with_created_identities_leaves_no_objects", |fixture| {
        Box::pin(cluster_lifecycle::delete_hosted_cluster(fixture))
    }),
    ("uninstalled_charts_leave_only_the_crds", |fixture| {
        Box::pin(charts::uninstall_charts(fixture))
    }),
];

pub(crate) fn trials(fixture: HostedClusterSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    TRIALS
        .iter()
        .map(|(name, run)| {
            let (fixture, run) = (Arc::clone(&fixture), *run);
            Trial::test(format!("hosted_cluster::{name}"), move || {
                fixture.inputs.suite_cluster.runtime.block_on(async {
                    fixture.install().await?;
                    run(&fixture).await
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
        let page = parts.repository.join("docs/tutorial/kubernetes-cluster.md");
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

    /// Runs the commands of the installation section once. The trial that runs them reports their error;
    /// later trials refer to it.
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

    /// Runs the commands of a section and returns the output of the last one.
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

    /// The last log lines of a chart's pods, for failure messages.
    fn chart_logs(&self, chart: &str) -> String {
        let selector = format!("--selector=app.kubernetes.io/name={chart}");
        let arguments =
            ["logs", "--namespace", RELEASE_NAMESPACE, &selector, "--all-containers", "--tail=20"];
        self.kubectl().run(&arguments).unwrap_or_else(|error| error.to_string())
    }

    /// A failure with the logs of the releases and the state of the cluster. The problem comes last, because
    /// readers of long output start there.
    fn failure_with_logs(&self, problem: impl std::fmt::Display) -> Failed {
        let charts = ["lanyard-azure", "lanyard-node", "lanyard-operator"];
        let logs = charts.map(|chart| format!("{chart}:\n{}", self.chart_logs(chart)));
        let state = ["get", "pods,hostedclusteridentities", "--all-namespaces", "--output=wide"];
        let state = self.kubectl().run(&state).unwrap_or_else(|error| error.to_string());
        format!("{}\n{state}\n{problem}", logs.join("\n")).into()
    }
}
