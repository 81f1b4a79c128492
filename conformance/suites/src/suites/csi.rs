//! The suite `csi`: csi-sanity of the CSI community with lanyard's driver.
//!
//! csi-sanity runs while the suite is prepared, and each spec that ran becomes a trial. Another trial checks
//! the number of specs, because a skipped spec does not fail.

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
use crate::file_error::FileError;
use crate::kubectl::KubectlError;
use crate::suite_cluster::SuiteCluster;

/// csi-sanity could not be run.
#[derive(Debug, Error)]
pub(crate) enum SanityError {
    #[error(transparent)]
    Process(#[from] DriverProcessError),
    #[error(transparent)]
    Kubectl(#[from] KubectlError),
    #[error("csi-sanity could not be started")]
    Start(#[source] std::io::Error),
    #[error("csi-sanity wrote no report; its output was:\n{0}")]
    NoReport(String),
    #[error("the report of csi-sanity cannot be read")]
    Report(#[source] serde_json::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The fixture of the suite `csi`.
#[derive(Debug)]
pub(crate) struct CsiSuiteFixture {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) csi_sanity: PathBuf,
    pub(crate) mock_provider: PathBuf,
    /// The lanyard program, built with the feature `sanity`.
    pub(crate) lanyard: PathBuf,
}

/// One run of csi-sanity.
#[derive(Debug, Clone, Copy)]
struct SanityRun {
    test_name: &'static str,
    /// A pattern of specs to skip.
    skip_pattern: &'static str,
    /// The number of specs that must run.
    minimum_specs: usize,
    /// Whether the program runs with its test controller, which creates nothing, and allows writable volumes.
    /// The lifecycle specs require both.
    with_controller: bool,
}

/// A driver with only a node service. The skipped specs call a controller.
const NODE_ONLY_RUN: SanityRun = SanityRun {
    test_name: "node_only",
    skip_pattern: "Controller Server|GroupController|SnapshotMetadata|should remove target path",
    minimum_specs: 10,
    with_controller: false,
};

/// A driver with the test controller. All specs run except those of capabilities that it does not have.
const LIFECYCLE_RUN: SanityRun = SanityRun {
    test_name: "life_cycle",
    skip_pattern: "GroupController|SnapshotMetadata",
    minimum_specs: 28,
    with_controller: true,
};

/// The environment variable that enables the test controller in builds with the feature `sanity`.
const CONTROLLER_VARIABLE: &str = "LANYARD_TEST_CONTROLLER";

const NAMESPACE: &str = "sanity";
const PROVIDER_NAME: &str = "e2e-provider";
const CLASS_NAME: &str = "sanity";
const POD_UID: &str = "00000000-0000-4000-8000-000000000000";

pub(crate) fn trials(fixture: &CsiSuiteFixture) -> Result<Vec<Trial>, SanityError> {
    let mut trials = Vec::new();
    for run in [NODE_ONLY_RUN, LIFECYCLE_RUN] {
        let specs = fixture.suite_cluster.runtime.block_on(fixture.run_csi_sanity(run))?;
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
            if ran == wanted { Ok(()) } else { Err(format!("{ran} specs ran").into()) }
        },
    ));
    trials
}

impl CsiSuiteFixture {
    /// Creates the namespace of the suite, with the chart's CRDs and a class.
    pub(crate) fn prepare(&self, crds: &str) -> Result<(), KubectlError> {
        let kubectl = &self.suite_cluster.kubectl;
        kubectl.create_namespace_with_definitions(NAMESPACE, crds)?;
        kubectl.apply(&class_manifest())
    }

    /// Runs csi-sanity against lanyard's driver with a mock provider.
    async fn run_csi_sanity(&self, run: SanityRun) -> Result<Vec<SanitySpec>, SanityError> {
        let directory = self.suite_cluster.directory();
        let directories = DriverFixtureDirectory::new(
            directory,
            run.test_name,
            self.suite_cluster.kubectl.kubeconfig(),
        )?;
        let mut provider =
            directories.start_mock_provider(&self.mock_provider, PROVIDER_NAME).await?;
        provider.set_response(&mock_response()).await?;
        let mut environment = EnvironmentVariables::new();
        if run.with_controller {
            environment.insert(CONTROLLER_VARIABLE, "1".into());
        }
        let driver = directories
            .start_lanyard_node(&self.lanyard, DriverRotation::Disabled, &environment)
            .await?;
        let parameters = directory.join(format!("{}.parameters.yaml", run.test_name));
        write_file(&parameters, &volume_context().to_string())?;
        let report = directory.join(format!("{}.json", run.test_name));
        // The kubelet creates this directory; csi-sanity creates and removes those below it.
        let pod = directories.kubelet_directory().join("pods").join(POD_UID);
        std::fs::create_dir_all(&pod).map_err(FileError::of("write", &pod))?;
        let mut sanity = Command::new(&self.csi_sanity);
        sanity.arg("--csi.endpoint").arg(driver.client.socket());
        sanity.arg("--csi.mountdir").arg(pod.join("mount"));
        sanity.arg("--csi.stagingdir").arg(pod.join("staging"));
        sanity.arg("--csi.testvolumeparameters").arg(parameters);
        sanity.arg("--ginkgo.skip").arg(run.skip_pattern).arg("--ginkgo.json-report").arg(&report);
        // The report contains everything that the exit code reports.
        let output = sanity.output().map_err(SanityError::Start)?;
        let text = std::fs::read(&report).map_err(|_absent| {
            SanityError::NoReport(String::from_utf8_lossy(&output.stdout).into_owned())
        })?;
        driver.daemon.stop().await;
        report::parse_report(&text).map_err(SanityError::Report)
    }
}

/// The volume context that the kubelet sends. The test controller passes it on.
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
    Ok(std::fs::write(path, text).map_err(FileError::of("write", path))?)
}
