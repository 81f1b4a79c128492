//! The processes, class and volume of one interop case.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{InteropSuiteFixture, NAMESPACE, failed_with_causes};
use crate::class_manifests::{self, ClassIdentityMode};
use crate::client_program::ClientInputs;
use crate::daemon::Daemon;
use crate::driver_processes::{
    DriverFixtureDirectory, DriverRotation, RunningDriver, SharedMountDirectory,
};
use crate::sign_in_method::SignInMethod;
use crate::volume::{CsiCallError, CsiDriverClient, TestVolume, VolumeFile};
use crate::waiting::{DEFAULT_TIMEOUT, sleep};

/// The processes of one case, with their sockets in one directory.
#[derive(Debug)]
pub(super) struct InteropCaseFixture<'a> {
    suite: &'a InteropSuiteFixture,
    pub(super) fixture_directory: DriverFixtureDirectory,
}

/// The result of a mount: the files, and the objects that the pod status lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountedContents {
    pub(super) files: BTreeMap<String, VolumeFile>,
    pub(super) objects: Vec<(String, String)>,
}

impl<'a> InteropCaseFixture<'a> {
    pub(super) fn new(suite_fixture: &'a InteropSuiteFixture, name: &str) -> Result<Self, Failed> {
        let location = &suite_fixture.suite_cluster;
        let fixture_directory =
            DriverFixtureDirectory::new(location.directory(), name, location.kubectl.kubeconfig())
                .map_err(failed_with_causes)?;
        Ok(Self { suite: suite_fixture, fixture_directory })
    }

    pub(super) async fn start_upstream_driver(
        &self,
        program: &Path,
        rotation: DriverRotation,
    ) -> Result<RunningDriver, Failed> {
        self.fixture_directory
            .start_upstream_driver(program, rotation)
            .await
            .map_err(failed_with_causes)
    }

    /// Starts a version of the driver that accesses the API only as a pod does.
    pub(super) async fn start_upstream_driver_in_pod(
        &self,
        program: &Path,
        rotation: DriverRotation,
    ) -> Result<(RunningDriver, SharedMountDirectory), Failed> {
        let pod = self.suite.in_cluster_access()?;
        self.fixture_directory
            .start_upstream_driver_in_pod(program, rotation, &pod)
            .await
            .map_err(failed_with_causes)
    }

    pub(super) async fn start_upstream_provider(&self, name: &str) -> Result<Daemon, Failed> {
        let program = &self.suite.programs.azure_provider;
        let environment = self.suite.azure.client_environment();
        self.fixture_directory
            .start_upstream_provider(program, name, &environment)
            .await
            .map_err(failed_with_causes)
    }

    pub(super) async fn start_lanyard_node(
        &self,
        rotation: DriverRotation,
    ) -> Result<RunningDriver, Failed> {
        let program = &self.suite.programs.lanyard;
        let environment = self.suite.azure.lanyard_environment();
        self.fixture_directory
            .start_lanyard_node(program, rotation, &environment)
            .await
            .map_err(failed_with_causes)
    }

    /// Creates a class and returns a volume of it.
    pub(super) fn create_class_and_volume(
        &self,
        name: &str,
        provider: &str,
        holder: SignInMethod,
        objects: &[&str],
    ) -> Result<TestVolume, Failed> {
        let (mode, inputs) = (class_identity_mode(holder), self.suite.azure.inputs(holder));
        // `{component}` stands for the vault secret of a component, which the local Azure can rotate.
        let objects: Vec<String> =
            objects.iter().map(|it| it.replace("{component}", &inputs.secret_name)).collect();
        let class =
            class_manifests::class_manifest(NAMESPACE, name, provider, mode, &inputs, &objects);
        self.suite.suite_cluster.kubectl.apply(&class).map_err(failed_with_causes)?;
        let mut volume =
            TestVolume::new(&self.fixture_directory.kubelet_directory(), NAMESPACE, name, name);
        add_identity_proof(&mut volume, mode, &inputs)?;
        Ok(volume)
    }

    /// Creates the pod of a volume on the node without a kubelet. Without a pod, its pod status would be
    /// garbage-collected, and drivers that look up the pod would fail.
    pub(super) fn create_pod(&self, volume: &mut TestVolume) -> Result<(), Failed> {
        let kubectl = &self.suite.suite_cluster.kubectl;
        kubectl.apply(&volume.pod_object()).map_err(failed_with_causes)?;
        let found = kubectl
            .get_json(&["pod", &volume.pod, "--namespace", NAMESPACE])
            .map_err(failed_with_causes)?;
        let uid = found["metadata"]["uid"].as_str().ok_or("the pod has no id")?;
        uid.clone_into(&mut volume.uid);
        Ok(())
    }

    /// Deletes the pod of a volume.
    pub(super) fn delete_pod(&self, volume: &TestVolume) -> Result<(), Failed> {
        let arguments =
            ["pod", &volume.pod, "--namespace", NAMESPACE, "--force", "--grace-period=0"];
        self.suite.suite_cluster.kubectl.delete(&arguments).map_err(failed_with_causes)
    }

    /// Publishes a volume and reads its contents.
    pub(super) async fn mount_and_read(
        &self,
        plugin: &CsiDriverClient,
        volume: &TestVolume,
    ) -> Result<MountedContents, Failed> {
        publish_known_class(plugin, volume).await.map_err(failed_with_causes)?;
        self.read_contents(volume)
    }

    /// Reads the files of a volume and its pod status.
    pub(super) fn read_contents(&self, volume: &TestVolume) -> Result<MountedContents, Failed> {
        let files = volume.read_files().map_err(failed_with_causes)?;
        let name = volume.pod_status_name();
        let kubectl = &self.suite.suite_cluster.kubectl;
        let arguments = ["secretproviderclasspodstatus", &name, "--namespace", NAMESPACE];
        let status = kubectl.get_json(&arguments).map_err(failed_with_causes)?;
        Ok(MountedContents { files, objects: status_objects(&status) })
    }

    /// Unpublishes a volume and expects that its target is gone.
    pub(super) async fn unmount_and_expect_empty(
        &self,
        plugin: &CsiDriverClient,
        volume: &TestVolume,
    ) -> Result<(), Failed> {
        plugin.unpublish(volume).await.map_err(failed_with_causes)?;
        if volume.target_path().exists() {
            return Err(format!("{} still exists", volume.target_path().display()).into());
        }
        Ok(())
    }
}

/// Adds the Secret or token that the kubelet would send for this identity mode.
fn add_identity_proof(
    volume: &mut TestVolume,
    mode: ClassIdentityMode,
    inputs: &ClientInputs,
) -> Result<(), Failed> {
    match mode {
        ClassIdentityMode::ManagedIdentity => {}
        ClassIdentityMode::ServicePrincipal => {
            volume.secrets = BTreeMap::from([
                ("clientid".to_owned(), inputs.client.clone()),
                ("clientsecret".to_owned(), inputs.client_secret.clone()),
            ]);
        }
        ClassIdentityMode::WorkloadIdentity | ClassIdentityMode::IdentityBinding => {
            let token = std::fs::read_to_string(&inputs.token_file).map_err(failed_with_causes)?;
            volume.tokens = Some(json!({
                "api://AzureADTokenExchange": {
                    "token": token, "expirationTimestamp": "2100-01-01T00:00:00Z",
                },
            }));
        }
    }
    Ok(())
}

fn status_objects(status: &Value) -> Vec<(String, String)> {
    let text =
        |object: &Value, field: &str| object[field].as_str().map(str::to_owned).unwrap_or_default();
    let objects = status["status"]["objects"].as_array().cloned().unwrap_or_default();
    objects.iter().map(|object| (text(object, "id"), text(object, "version"))).collect()
}

const fn class_identity_mode(holder: SignInMethod) -> ClassIdentityMode {
    match holder {
        SignInMethod::Secret => ClassIdentityMode::ServicePrincipal,
        SignInMethod::ManagedIdentity => ClassIdentityMode::ManagedIdentity,
        // No identity mode of a volume uses the test client with a certificate, or a user.
        SignInMethod::Federated | SignInMethod::Certificate | SignInMethod::User => {
            ClassIdentityMode::WorkloadIdentity
        }
    }
}

/// Publishes a volume. The upstream driver reads classes from a watch and refuses a class that it does not
/// know yet. Then the call is repeated, as the kubelet repeats it.
pub(super) async fn publish_known_class(
    plugin: &CsiDriverClient,
    volume: &TestVolume,
) -> Result<(), CsiCallError> {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + DEFAULT_TIMEOUT;
    loop {
        match plugin.publish(volume).await {
            Err(error) if is_unknown_class_error(&error) && clock.monotonic() < deadline => {
                sleep(PUBLISH_RETRY_INTERVAL).await;
            }
            answer => return answer,
        }
    }
}

/// Whether a driver answered that the SecretProviderClass does not exist.
pub(super) fn is_unknown_class_error(error: &CsiCallError) -> bool {
    let message = error.status.message();
    message.contains("failed to get secretproviderclass") && message.contains("not found")
}

const PUBLISH_RETRY_INTERVAL: Duration = Duration::from_millis(200);
