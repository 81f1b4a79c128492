//! csi-sanity, the CSI community's own judge, on our driver.
//!
//! It runs while the suite is prepared; each of its specs that ran becomes a trial. How many must
//! have run is a trial too, because a spec that is left out fails nobody.

mod report;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use thiserror::Error;

use self::report::Spec;
use crate::kubectl::KubectlError;
use crate::peers::{Nook, PeerError, Rotation};
use crate::program::Environment;
use crate::site::Site;

/// The suite could not be run.
#[derive(Debug, Error)]
pub(crate) enum SanityError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Kubectl(#[from] KubectlError),
    #[error("csi-sanity could not be started")]
    Start(#[source] std::io::Error),
    #[error("csi-sanity left no report; it said:\n{0}")]
    NoReport(String),
    #[error("the report of csi-sanity cannot be read")]
    Report(#[source] serde_json::Error),
    #[error("could not write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// What the suite runs on.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) site: Arc<Site>,
    pub(crate) csi_sanity: PathBuf,
    pub(crate) mock_provider: PathBuf,
    /// Our program, built with the feature `sanity`.
    pub(crate) lanyard: PathBuf,
}

/// One run of csi-sanity.
#[derive(Debug, Clone, Copy)]
struct Run {
    name: &'static str,
    /// Specs that make no sense here.
    skip: &'static str,
    /// How many specs must have run.
    count: usize,
    /// Whether our program has a controller that makes nothing, and lets volumes be writable: the
    /// specs of whole lives want both.
    with_controller: bool,
}

/// A driver with nothing but a node service. The specs that are skipped call a controller.
const NODE_ONLY: Run = Run {
    name: "node_only",
    skip: "Controller Server|GroupController|SnapshotMetadata|should remove target path",
    count: 10,
    with_controller: false,
};

/// With the controller: everything that it does not say it cannot do.
const LIFE_CYCLE: Run = Run {
    name: "life_cycle",
    skip: "GroupController|SnapshotMetadata",
    count: 28,
    with_controller: true,
};

/// Switches the controller on, in programs that are built with it.
const CONTROLLER: &str = "LANYARD_TEST_CONTROLLER";

const NAMESPACE: &str = "sanity";
const PROVIDER: &str = "e2e-provider";
const CLASS: &str = "sanity";
/// The id of the pod.
const POD: &str = "00000000-0000-4000-8000-000000000000";

pub(crate) fn trials(stage: &Stage) -> Result<Vec<Trial>, SanityError> {
    let mut trials = Vec::new();
    for run in [NODE_ONLY, LIFE_CYCLE] {
        let specs = stage.site.runtime.block_on(stage.judge(run))?;
        trials.extend(as_trials(run, specs));
    }
    Ok(trials)
}

fn as_trials(run: Run, specs: Vec<Spec>) -> Vec<Trial> {
    let (ran, wanted) = (specs.len(), run.count);
    let mut trials: Vec<Trial> = specs
        .into_iter()
        .map(|spec| {
            let name = format!("csi::{}: {}", run.name, spec.name);
            Trial::test(name, move || spec.failure.map_or(Ok(()), |failure| Err(failure.into())))
        })
        .collect();
    trials.push(Trial::test(format!("csi::{}: {wanted} specs have run", run.name), move || {
        if ran == wanted { Ok(()) } else { Err(format!("{ran} have").into()) }
    }));
    trials
}

impl Stage {
    /// The namespace of the suite, with the CRDs of the chart and a class.
    pub(crate) fn prepare(&self, crds: &str) -> Result<(), KubectlError> {
        let kubectl = &self.site.kubectl;
        kubectl.found(NAMESPACE, crds)?;
        kubectl.apply(&class())
    }

    /// Runs csi-sanity on our program over a provider that always answers the same.
    async fn judge(&self, run: Run) -> Result<Vec<Spec>, SanityError> {
        let directory = self.site.directory();
        let nook = Nook::new(directory, run.name, self.site.kubectl.kubeconfig())?;
        let mut provider = nook.mock_provider(&self.mock_provider, PROVIDER).await?;
        provider.answer(&answer()).await?;
        let mut environment = Environment::new();
        if run.with_controller {
            environment.insert(CONTROLLER, "1".into());
        }
        let driver = nook.lanyard(&self.lanyard, Rotation::Off, &environment).await?;
        let parameters = directory.join(format!("{}.parameters.yaml", run.name));
        write(&parameters, &context().to_string())?;
        let report = directory.join(format!("{}.json", run.name));
        // As a kubelet makes it; csi-sanity makes and removes what is below.
        let pod = nook.kubelet().join("pods").join(POD);
        std::fs::create_dir_all(&pod)
            .map_err(|source| SanityError::Write { path: pod.clone(), source })?;
        let mut sanity = Command::new(&self.csi_sanity);
        sanity.arg("--csi.endpoint").arg(driver.plugin.socket());
        sanity.arg("--csi.mountdir").arg(pod.join("mount"));
        sanity.arg("--csi.stagingdir").arg(pod.join("staging"));
        sanity.arg("--csi.testvolumeparameters").arg(parameters);
        sanity.arg("--ginkgo.skip").arg(run.skip).arg("--ginkgo.json-report").arg(&report);
        // Its exit code says no more than its report.
        let said = sanity.output().map_err(SanityError::Start)?;
        let text = std::fs::read(&report).map_err(|_absent| {
            SanityError::NoReport(String::from_utf8_lossy(&said.stdout).into_owned())
        })?;
        driver.daemon.end().await;
        report::parse(&text).map_err(SanityError::Report)
    }
}

/// What the kubelet puts into the context of a volume; the controller passes it on.
fn context() -> Value {
    json!({
        "secretProviderClass": CLASS,
        "csi.storage.k8s.io/pod.name": "sanity",
        "csi.storage.k8s.io/pod.namespace": NAMESPACE,
        "csi.storage.k8s.io/pod.uid": POD,
        "csi.storage.k8s.io/serviceAccount.name": "default",
        "csi.storage.k8s.io/ephemeral": "true",
    })
}

fn class() -> Value {
    json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": { "name": CLASS, "namespace": NAMESPACE },
        "spec": { "provider": PROVIDER, "parameters": { "any": "thing" } },
    })
}

fn answer() -> Value {
    json!({
        "files": [{ "path": "secret", "mode": 0o644, "contents": "kept" }],
        "objects": { "secret/secret": "1" },
    })
}

fn write(path: &Path, text: &str) -> Result<(), SanityError> {
    std::fs::write(path, text)
        .map_err(|source| SanityError::Write { path: path.to_path_buf(), source })
}
