//! The whole flow on a real node, as `docs/tutorial-kubernetes.md` shows it: the three charts, a
//! HostedCluster that `kubectl` applies, and a canary in the place of each of its nine components, over
//! the pod of the local Azure.
//!
//! The trials are the life of one hosted cluster, in this order. They run the commands of that page: page
//! and test cannot differ.

mod canaries;
mod charts;
mod lives;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use tokio::sync::OnceCell;

use self::charts::Ports;
use super::chain;
use crate::kubectl::Kubectl;
use crate::local_azure::ControlApi;
use crate::site::Site;
use crate::tutorial::{Surroundings, Tutorial};

/// The HostedCluster of the example, and where its control plane is.
const NAMESPACE: &str = "clusters";
const NAME: &str = "harbour";
const CONTROL_PLANE: &str = "clusters-harbour";

/// The namespace of the releases.
const RELEASES: &str = "lanyard";

/// How long pods may take to run, images being there.
const START: Duration = Duration::from_mins(2);

/// How long something may take until canaries show it and the operator says it: the plugin's
/// interval, the kubelet's period of ten to fifteen seconds, a canary's interval, and time to act on a
/// busy machine.
const ARRIVAL: Duration = Duration::from_mins(2);

/// What the trials are made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) site: Arc<Site>,
    pub(crate) images: Images,
    /// The program `helm`.
    pub(crate) helm: PathBuf,
    /// The program `lanyard`, for what people type.
    pub(crate) lanyard: PathBuf,
    /// The directory in which the commands of the page run.
    pub(crate) repository: PathBuf,
}

/// The names under which the node has our images.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) node: String,
    pub(crate) operator: String,
    pub(crate) azure: String,
}

/// Everything that the trials need.
#[derive(Debug)]
pub(crate) struct Stage {
    parts: Parts,
    ports: Ports,
    /// The control API of the pod of the local Azure, over loopback.
    azure: ControlApi,
    page: Tutorial,
    surroundings: Surroundings,
    /// What the last command of the first section printed, or that the section failed.
    installed: OnceCell<Result<String, InstallFailed>>,
}

/// The first section of the page failed, which every later trial depends on.
#[derive(Debug, Clone, Copy)]
struct InstallFailed;

type Steps<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type Run = for<'a> fn(&'a Stage) -> Steps<'a>;

const TRIALS: &[(&str, Run)] = &[
    ("six_commands_of_the_tutorial_end_with_nine_proven_identities", |stage| {
        Box::pin(lives::tutorial(stage))
    }),
    ("a_hosted_cluster_becomes_nine_pods_that_prove_their_identities", |stage| {
        Box::pin(lives::creation(stage))
    }),
    ("one_object_says_how_every_identity_is", |stage| Box::pin(lives::report(stage))),
    ("kubectl_lanyard_shows_every_identity", |stage| Box::pin(async { lives::plugin(stage) })),
    ("all_nine_rotate_and_no_canary_is_ever_unauthenticated", |stage| {
        Box::pin(lives::rotation(stage))
    }),
    ("a_right_that_is_taken_away_is_named_and_the_other_eight_stay_good", |stage| {
        Box::pin(lives::broken(stage))
    }),
    ("a_deleted_hosted_cluster_leaves_nothing", |stage| Box::pin(lives::deletion(stage))),
    ("uninstalled_charts_leave_the_definitions_and_nothing_else", |stage| {
        Box::pin(charts::uninstall(stage))
    }),
];

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    TRIALS
        .iter()
        .map(|(name, run)| {
            let (stage, run) = (Arc::clone(&stage), *run);
            Trial::test(format!("hosted_cluster::{name}"), move || {
                stage.parts.site.runtime.block_on(async {
                    stage.install().await?;
                    run(&stage).await
                })
            })
        })
        .collect()
}

impl Stage {
    /// Prepares the directory of programs and the values files. Nothing is installed yet.
    pub(crate) fn new(parts: Parts) -> Result<Self, Failed> {
        let ports = Ports::choose()?;
        let azure = ControlApi::new(&ports.control_api()).map_err(chain)?;
        let page = parts.repository.join("docs").join("tutorial-kubernetes.md");
        let page = Tutorial::read(&page).map_err(chain)?;
        let surroundings = charts::surroundings(&parts, &ports)?;
        Ok(Self { parts, ports, azure, page, surroundings, installed: OnceCell::new() })
    }

    /// Runs the commands of the first section of the page, once: what failed is in the message of the
    /// trial that ran them.
    async fn install(&self) -> Result<&str, Failed> {
        let mut failure = None;
        let installed = self.installed.get_or_init(async || {
            self.follow(charts::INSTALL).map_err(|error| {
                failure = Some(error);
                InstallFailed
            })
        });
        match installed.await {
            Ok(printed) => Ok(printed),
            Err(InstallFailed) => Err(failure.unwrap_or_else(|| {
                format!("not run: the section `{}` failed, see the trial above", charts::INSTALL)
                    .into()
            })),
        }
    }

    /// Runs the commands of a section of the page, and returns what the last one printed.
    fn follow(&self, heading: &str) -> Result<String, Failed> {
        let mut printed = String::new();
        for step in self.page.section(heading).map_err(chain)? {
            printed = self.surroundings.run(&step).map_err(|error| self.told(error))?;
        }
        Ok(printed)
    }

    fn kubectl(&self) -> &Kubectl {
        &self.parts.site.kubectl
    }

    /// The end of what the pods of a chart logged, for the message of a failure.
    fn log_of(&self, chart: &str) -> String {
        let selector = format!("--selector=app.kubernetes.io/name={chart}");
        let arguments =
            ["logs", "--namespace", RELEASES, &selector, "--all-containers", "--tail=20"];
        self.kubectl().run(&arguments).unwrap_or_else(|error| error.to_string())
    }

    /// A failure with the logs of the releases and the state of the cluster. The problem itself stands
    /// last, where a reader of a long output begins.
    fn told(&self, problem: impl std::fmt::Display) -> Failed {
        let charts = ["lanyard-azure", "lanyard-node", "lanyard-operator"];
        let logs = charts.map(|chart| format!("{chart}:\n{}", self.log_of(chart)));
        let state = ["get", "pods,hostedclusteridentities", "--all-namespaces", "--output=wide"];
        let state = self.kubectl().run(&state).unwrap_or_else(|error| error.to_string());
        format!("{}\n{state}\n{problem}", logs.join("\n")).into()
    }
}
