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

use self::report::SanitySpec;
use crate::client_program::EnvironmentVariables;
use crate::driver_processes::{DriverFixtureDirectory, DriverProcessError, DriverRotation};
use crate::kubectl::KubectlError;
use crate::suite_cluster::SuiteCluster;

/// The suite could not be run.
#[derive(Debug, Error)]
pub(crate) enum SanityError {
    #[error(transparent)]
    Process(#[from] DriverProcessError),
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
pub(crate) struct CsiSuiteFixture {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) csi_sanity: PathBuf,
    pub(crate) mock_provider: PathBuf,
    /// Our program, built with the feature `sanity`.
    pub(crate) lanyard: PathBuf,
}

/// One run of csi-sanity.
#[derive(Debug, Clone, Copy)]
struct SanityRun {
    test_name: &'static str,
    /// Specs that make no sense here.
    skip_pattern: &'static str,
    /// How many specs must have run.
    minimum_specs: usize,
    /// Whether our program has a controller that makes nothing, and lets volumes be writable: the
    /// specs of whole lives want both.
    with_controller: bool,
}

/// A driver with nothing but a node service. The specs that are skipped call a controller.
const NODE_ONLY_RUN: SanityRun = SanityRun {
    test_name: "node_only",
    skip_pattern: "Controller Server|GroupController|SnapshotMetadata|should remove target path",
    minimum_specs: 10,
    with_controller: false,
};

/// With the controller: everything that it does not say it cannot do.
const LIFECYCLE_RUN: SanityRun = SanityRun {
    test_name: "life_cycle",
    skip_pattern: "GroupController|SnapshotMetadata",
    minimum_specs: 28,
    with_controller: true,
};

/// Switches the controller on, in programs that are built with it.
const CONTROLLER_VARIABLE: &str = "LANYARD_TEST_CONTROLLER";

const NAMESPACE: &str = "sanity";
const PROVIDER_NAME: &str = "e2e-provider";
const CLASS_NAME: &str = "sanity";
/// The id of the pod.
const POD_UID: &str = "00000000-0000-4000-8000-000000000000";

pub(crate) fn trials(stage: &CsiSuiteFixture) -> Result<Vec<Trial>, SanityError> {
    let mut trials = Vec::new();
    for run in [NODE_ONLY_RUN, LIFECYCLE_RUN] {
        let specs = stage.suite_cluster.runtime.block_on(stage.run_csi_sanity(run))?;
        trials.extend(spec_trials(run, specs));
    }
    Ok(trials)
}

fn spec_trials(run: SanityRun, specs: Vec<SanitySpec>) -> Vec<Trial> {
    let (ran, wanted) = (specs.len(), run.minimum_specs);
    let mut trials: Vec<Trial> = specs
        .into_iter()
        .map(|spec| {
            let name = format!("csi::{}: {}", run.test_name, spec.name);
            Trial::test(name, move || spec.failure.map_or(Ok(()), |failure| Err(failure.into())))
        })
        .collect();
    trials.push(Trial::test(
        format!("csi::{}: exactly {wanted} specs ran", run.test_name),
        move || {
            if ran == wanted { Ok(()) } else { Err(format!("{ran} have").into()) }
        },
    ));
    trials
}

impl CsiSuiteFixture {
    /// The namespace of the suite, with the CRDs of the chart and a class.
    pub(crate) fn prepare(&self, crds: &str) -> Result<(), KubectlError> {
        let kubectl = &self.suite_cluster.kubectl;
        kubectl.create_namespace_with_definitions(NAMESPACE, crds)?;
        kubectl.apply(&class_manifest())
    }

    /// Runs csi-sanity on our program over a provider that always answers the same.
    async fn run_csi_sanity(&self, run: SanityRun) -> Result<Vec<SanitySpec>, SanityError> {
        let directory = self.suite_cluster.directory();
        let nook = DriverFixtureDirectory::new(
            directory,
            run.test_name,
            self.suite_cluster.kubectl.kubeconfig(),
        )?;
        let mut provider = nook.start_mock_provider(&self.mock_provider, PROVIDER_NAME).await?;
        provider.set_response(&mock_response()).await?;
        let mut environment = EnvironmentVariables::new();
        if run.with_controller {
            environment.insert(CONTROLLER_VARIABLE, "1".into());
        }
        let driver =
            nook.start_lanyard_node(&self.lanyard, DriverRotation::Disabled, &environment).await?;
        let parameters = directory.join(format!("{}.parameters.yaml", run.test_name));
        write_file(&parameters, &volume_context().to_string())?;
        let report = directory.join(format!("{}.json", run.test_name));
        // As a kubelet makes it; csi-sanity makes and removes what is below.
        let pod = nook.kubelet_directory().join("pods").join(POD_UID);
        std::fs::create_dir_all(&pod)
            .map_err(|source| SanityError::Write { path: pod.clone(), source })?;
        let mut sanity = Command::new(&self.csi_sanity);
        sanity.arg("--csi.endpoint").arg(driver.client.socket());
        sanity.arg("--csi.mountdir").arg(pod.join("mount"));
        sanity.arg("--csi.stagingdir").arg(pod.join("staging"));
        sanity.arg("--csi.testvolumeparameters").arg(parameters);
        sanity.arg("--ginkgo.skip").arg(run.skip_pattern).arg("--ginkgo.json-report").arg(&report);
        // Its exit code says no more than its report.
        let said = sanity.output().map_err(SanityError::Start)?;
        let text = std::fs::read(&report).map_err(|_absent| {
            SanityError::NoReport(String::from_utf8_lossy(&said.stdout).into_owned())
        })?;
        driver.daemon.stop().await;
        report::parse_report(&text).map_err(SanityError::Report)
    }
}

/// What the kubelet puts into the context of a volume; the controller passes it on.
fn volume_context() -> Value {
    json!({
        "secretProviderClass": CLASS_NAME,
        "csi.storage.k8s.io/pod.name": "sanity",
        "csi.storage.k8s.io/pod.namespace": NAMESPACE,
        "csi.storage.k8s.io/pod.uid": POD_UID,
        "csi.storage.k8s.io/serviceAccount.name": "default",
        "csi.storage.k8s.io/ephemeral": "true",
    })
}

fn class_manifest() -> Value {
    json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": { "name": CLASS_NAME, "namespace": NAMESPACE },
        "spec": { "provider": PROVIDER_NAME, "parameters": { "any": "thing" } },
    })
}

fn mock_response() -> Value {
    json!({
        "files": [{ "path": "secret", "mode": 0o644, "contents": "kept" }],
        "objects": { "secret/secret": "1" },
    })
}

fn write_file(path: &Path, text: &str) -> Result<(), SanityError> {
    std::fs::write(path, text)
        .map_err(|source| SanityError::Write { path: path.to_path_buf(), source })
}
