//! The whole flow on a real node: both charts, a HostedCluster that `kubectl` applies, and a canary in
//! the place of each of its nine components, over the local Azure.
//!
//! The trials are the life of one hosted cluster, in this order.

mod canaries;
mod charts;
mod lives;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use serde_json::json;
use tokio::sync::OnceCell;

use self::charts::Ports;
use super::chain;
use crate::ground::Local;
use crate::helm::Helm;
use crate::kubectl::{Kubectl, KubectlError};
use crate::site::Site;

/// The HostedCluster of the example, and where its control plane is.
const NAMESPACE: &str = "clusters";
const NAME: &str = "harbour";
const CONTROL_PLANE: &str = "clusters-harbour";

/// How long pods may take to run, images being there.
const START: Duration = Duration::from_mins(2);

/// How often the plugin looks at vaults.
const INTERVAL: &str = "10s";

/// How long something may take until canaries show it and the operator says it: the plugin's
/// interval, the kubelet's period of ten to fifteen seconds, a canary's interval, and time to act on a
/// busy machine.
const ARRIVAL: Duration = Duration::from_mins(2);

/// What the trials are made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) site: Arc<Site>,
    pub(crate) azure: Local,
    /// The chart of the node plugin.
    pub(crate) node: Helm,
    /// The chart of the operator.
    pub(crate) operator: Helm,
    /// The name under which the node has our image.
    pub(crate) image: String,
    /// The program, for what people type.
    pub(crate) lanyard: PathBuf,
    /// The HostedCluster.
    pub(crate) hosted_cluster: PathBuf,
}

/// Everything that the trials need.
#[derive(Debug)]
pub(crate) struct Stage {
    parts: Parts,
    ports: Ports,
    installed: OnceCell<()>,
}

type Steps<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type Run = for<'a> fn(&'a Stage) -> Steps<'a>;

const TRIALS: &[(&str, Run)] = &[
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
    ("a_deleted_hosted_cluster_leaves_nothing", |stage| Box::pin(async { lives::deletion(stage) })),
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
                    stage.installed.get_or_try_init(async || charts::install(&stage)).await?;
                    run(&stage).await
                })
            })
        })
        .collect()
}

impl Stage {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, ports: Ports::choose(), installed: OnceCell::new() }
    }

    /// The namespace of the HostedCluster, and the authority that everything has to trust.
    pub(crate) fn prepare(&self) -> Result<(), KubectlError> {
        self.kubectl().apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        }))?;
        let authority = std::fs::read_to_string(self.parts.azure.authority()).unwrap_or_default();
        self.kubectl().apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": charts::AUTHORITIES, "namespace": Helm::NAMESPACE },
            "data": { "ca.crt": authority },
        }))
    }

    fn kubectl(&self) -> &Kubectl {
        &self.parts.site.kubectl
    }

    /// The end of what a deployment's pods logged, for the message of a failure.
    fn log_of(&self, namespace: &str, selector: &str) -> String {
        let selector = format!("--selector={selector}");
        let arguments =
            ["logs", "--namespace", namespace, &selector, "--all-containers", "--tail=20"];
        self.kubectl().run(&arguments).unwrap_or_else(|error| error.to_string())
    }

    /// A failure with what the operator logged.
    fn told(&self, problem: impl std::fmt::Display) -> Failed {
        let log = self.log_of(Helm::NAMESPACE, "app.kubernetes.io/name=lanyard-operator");
        format!("{problem}\n{log}").into()
    }
}
