//! The suite `node`: the chart on a real node, with pods of a real kubelet and the vaults of the local Azure.
//!
//! The trials are the lifecycle of one node, in order: the chart is installed, pods are created and deleted,
//! the plugin is replaced while pods run, and at the end upstream's driver takes over and hands back.

mod driver_switch;
mod federation;
mod identity_modes;
mod pod_lifecycle;
mod probe_pod;
mod volume_mounts;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{LocalClusterPlan, NoFreePorts, choose_ports};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::federation::TokenFederation;
use super::failed_with_causes;
use crate::azure_target::LocalAzureTarget;
use crate::class_manifests::{self, ClassIdentityMode};
use crate::helm::Helm;
use crate::kubectl::KubectlError;
use crate::sign_in_method::SignInMethod;
use crate::suite_cluster::SuiteCluster;

/// The namespace of the pods.
const NAMESPACE: &str = "node";
const DRIVER: &str = "secrets-store.csi.k8s.io";
/// The `ConfigMap` with the CA of the local Azure, for the value `caBundle`.
const CA_CONFIG_MAP: &str = "local-azure";
/// The `ConfigMap` with the cluster's CA and that of the local Azure. A cluster's token proxy is trusted
/// through the cluster's CA, and here the local Azure takes its place.
const CLUSTER_CA_CONFIG_MAP: &str = "cluster-and-local-azure";

/// How long a pod may take to run with local images.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How often the plugin checks the vaults for new versions.
const ROTATION_INTERVAL: &str = "10s";

/// How long a new version may take to reach a pod: the plugin's interval, the kubelet's sync period of ten to
/// fifteen seconds, and some time on a busy machine.
const ROTATION_TIMEOUT: Duration = Duration::from_mins(1);

/// The fixture of the suite `node`.
#[derive(Debug)]
pub(crate) struct NodeSuiteFixture {
    pub(crate) suite_cluster: Arc<SuiteCluster>,
    pub(crate) azure: Arc<LocalAzureTarget>,
    pub(crate) helm: Helm,
    pub(crate) images: NodeSuiteImages,
    /// Upstream's driver v1.6.0 and Azure provider v1.8.2.
    pub(crate) upstream_programs: (PathBuf, PathBuf),
    state: NodeSuiteState,
}

/// Image names on the node.
#[derive(Debug, Clone)]
pub(crate) struct NodeSuiteImages {
    pub(crate) lanyard: String,
    pub(crate) witness: String,
}

/// State that all trials share.
#[derive(Debug)]
struct NodeSuiteState {
    metrics_port: u16,
    health_port: u16,
    federation: OnceCell<TokenFederation>,
    installed: OnceCell<()>,
}

type NodeTrialFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type NodeTrial = for<'a> fn(&'a NodeSuiteFixture) -> NodeTrialFuture<'a>;

/// The trials, in order.
const TRIALS: &[(&str, NodeTrial)] = &[
    ("installed_chart_registers_the_driver", |fixture| Box::pin(fixture.wait_for_driver(true))),
    ("a_pod_reads_with_the_node_managed_identity", |fixture| {
        Box::pin(identity_modes::managed_identity_pod(fixture))
    }),
    ("a_pod_reads_with_workload_identity", |fixture| {
        Box::pin(identity_modes::workload_identity_pod(fixture))
    }),
    ("a_pod_reads_with_an_identity_binding", |fixture| {
        Box::pin(identity_modes::identity_binding_pod(fixture))
    }),
    ("a_pod_reads_with_a_service_principal", |fixture| {
        Box::pin(identity_modes::service_principal_pod(fixture))
    }),
    ("a_pod_with_a_sub_path_reads_its_file", |fixture| {
        Box::pin(volume_mounts::sub_path_mount(fixture))
    }),
    ("fs_group_makes_files_readable_for_a_non_root_pod", |fixture| {
        Box::pin(volume_mounts::fs_group_permissions(fixture))
    }),
    ("a_pod_cannot_write_into_its_volume", |fixture| {
        Box::pin(volume_mounts::read_only_volume(fixture))
    }),
    ("mount_failure_emits_a_pod_event", |fixture| {
        Box::pin(volume_mounts::mount_failure_event(fixture))
    }),
    ("a_rotation_is_seen_inside_a_running_pod", |fixture| {
        Box::pin(pod_lifecycle::rotation_reaches_pod(fixture))
    }),
    ("a_deleted_pod_leaves_nothing_on_its_node", |fixture| {
        Box::pin(pod_lifecycle::deleted_pod_leaves_nothing(fixture))
    }),
    ("plugin_upgrade_does_not_interrupt_reads_or_rotation", |fixture| {
        Box::pin(pod_lifecycle::upgraded_plugin(fixture))
    }),
    ("killed_plugin_recovers_its_volumes", |fixture| {
        Box::pin(pod_lifecycle::killed_plugin(fixture))
    }),
    ("a_restarted_kubelet_finds_driver_and_volumes_again", |fixture| {
        Box::pin(pod_lifecycle::restarted_kubelet(fixture))
    }),
    ("pods_keep_reading_when_drivers_are_switched", |fixture| {
        Box::pin(driver_switch::switch_drivers(fixture))
    }),
    ("uninstalled_chart_leaves_only_the_crds", |fixture| Box::pin(fixture.uninstall())),
];

pub(crate) fn trials(fixture: NodeSuiteFixture) -> Vec<Trial> {
    let fixture = Arc::new(fixture);
    TRIALS
        .iter()
        .map(|(name, run)| {
            let (fixture, run) = (Arc::clone(&fixture), *run);
            Trial::test(format!("node::{name}"), move || {
                fixture.suite_cluster.runtime.block_on(async {
                    fixture.state.installed.get_or_try_init(|| fixture.install()).await?;
                    run(&fixture).await
                })
            })
        })
        .collect()
}

impl NodeSuiteFixture {
    pub(crate) fn new(
        suite_cluster: Arc<SuiteCluster>,
        azure: Arc<LocalAzureTarget>,
        helm: Helm,
        images: NodeSuiteImages,
        upstream: (PathBuf, PathBuf),
    ) -> Result<Self, NoFreePorts> {
        let [metrics_port, health_port] = choose_ports()?;
        let state = NodeSuiteState {
            metrics_port,
            health_port,
            federation: OnceCell::new(),
            installed: OnceCell::new(),
        };
        Ok(Self { suite_cluster, azure, helm, images, upstream_programs: upstream, state })
    }

    /// Creates the namespace of the suite and the `ConfigMaps` with the CAs that the plugin trusts.
    pub(crate) fn prepare(&self) -> Result<(), KubectlError> {
        let authority = std::fs::read_to_string(self.azure.authority_file()).unwrap_or_default();
        let kubectl = &self.suite_cluster.kubectl;
        kubectl.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        }))?;
        let trusted = ["configmap", "kube-root-ca.crt", "--namespace", Helm::NAMESPACE];
        let trusted = kubectl.get_json(&trusted)?;
        let cluster = trusted["data"]["ca.crt"].as_str().unwrap_or_default();
        kubectl.apply(&ca_config_map(CA_CONFIG_MAP, &authority))?;
        kubectl.apply(&ca_config_map(CLUSTER_CA_CONFIG_MAP, &format!("{cluster}\n{authority}")))
    }

    /// Writes the values file of the chart for this node.
    async fn write_values_file(&self) -> Result<PathBuf, Failed> {
        let federation = self.ensure_federation().await?;
        let (repository, tag) =
            self.images.lanyard.rsplit_once(':').ok_or("the name of our image has no tag")?;
        let proxy = self.azure.proxy_url();
        let kubelet = self.suite_cluster.cluster.layout().kubelet_directory();
        let values = json!({
            "linux": {
                "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" },
                "kubeletRootDir": kubelet,
                "providersDir": self.provider_socket_directory(),
                "additionalProvidersDirs": [],
                "metricsAddr": format!("127.0.0.1:{}", self.state.metrics_port),
                "env": [
                    { "name": "HTTPS_PROXY", "value": proxy },
                    { "name": "NO_PROXY", "value": "127.0.0.1" },
                    { "name": "AZURE_POD_IDENTITY_AUTHORITY_HOST", "value": proxy },
                ],
                "volumes": [service_account_volume()],
                // Kubernetes adds no ServiceAccount mount to a container that has one at this path.
                "volumeMounts": [{
                    "name": "service-account",
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                    "readOnly": true,
                }],
            },
            "apiServer": {
                "host": LocalClusterPlan::LOOPBACK_ADDRESS.to_string(),
                "port": self.suite_cluster.cluster.plan().ports.api_server,
            },
            "caBundle": { "configMap": CA_CONFIG_MAP },
            "livenessProbe": { "port": self.state.health_port },
            "rotationPollInterval": ROTATION_INTERVAL,
            "tokenProxyURL": proxy.replacen("http:", "https:", 1),
            "sniName": federation.server_name,
            "logVerbosity": 2,
        });
        let path = self.suite_cluster.directory().join("values.json");
        std::fs::write(&path, values.to_string()).map_err(failed_with_causes)?;
        Ok(path)
    }

    fn provider_socket_directory(&self) -> PathBuf {
        self.suite_cluster.directory().join("p")
    }

    /// Makes the local Azure trust the tokens of this cluster, once.
    async fn ensure_federation(&self) -> Result<&TokenFederation, Failed> {
        self.state.federation.get_or_try_init(|| TokenFederation::establish(self)).await
    }

    async fn install(&self) -> Result<(), Failed> {
        let values = self.write_values_file().await?;
        if let Err(error) = self.helm.install(&values, &["--wait", "--timeout", "1m"]) {
            let log = self.plugin_log();
            // The next trial installs again from scratch.
            self.helm.uninstall().map_err(failed_with_causes)?;
            return Err(format!("{error}\n{log}").into());
        }
        self.wait_for_driver(true).await
    }

    async fn uninstall(&self) -> Result<(), Failed> {
        self.helm.uninstall().map_err(failed_with_causes)?;
        self.wait_for_driver(false).await?;
        // A pod exists until its process has ended.
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + START_TIMEOUT;
        loop {
            let everything = ["get", "all,csidriver", "--all-namespaces", "--output=name"];
            let left = self.suite_cluster.kubectl.run(&everything).map_err(failed_with_causes)?;
            let is_ours = |it: &&str| it.contains("lanyard") || it.contains(DRIVER);
            let ours: Vec<&str> = left.lines().filter(is_ours).collect();
            if ours.is_empty() {
                break;
            }
            if clock.monotonic() > deadline {
                return Err(format!("left behind: {}", ours.join(", ")).into());
            }
            clock.sleep(Duration::from_millis(500)).await;
        }
        self.suite_cluster
            .kubectl
            .get_json(&["crd", "secretproviderclasses.secrets-store.csi.x-k8s.io"])
            .map_err(failed_with_causes)?;
        Ok(())
    }

    /// Waits until the kubelet lists the driver, or no longer lists it.
    async fn wait_for_driver(&self, is_there: bool) -> Result<(), Failed> {
        let what = if is_there {
            "the kubelet lists the driver"
        } else {
            "the kubelet no longer lists the driver"
        };
        let lists = |node: &Value| {
            let drivers = node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
            drivers.iter().any(|driver| driver["name"] == DRIVER) == is_there
        };
        let arguments = ["csinode", LocalClusterPlan::NODE_NAME];
        self.suite_cluster
            .kubectl
            .wait_for_object(what, START_TIMEOUT, &arguments, lists)
            .await
            .map_err(failed_with_causes)?;
        Ok(())
    }

    /// Creates a class for the vault objects of `holder`.
    fn create_class(
        &self,
        name: &str,
        holder: SignInMethod,
        mode: ClassIdentityMode,
        object: &str,
    ) -> Result<(), Failed> {
        let inputs = self.azure.inputs(holder);
        let object = object.replace("{component}", &inputs.secret_name);
        let class =
            class_manifests::class_manifest(NAMESPACE, name, "azure", mode, &inputs, &[object]);
        self.suite_cluster.kubectl.apply(&class).map_err(failed_with_causes)
    }

    /// The last log lines of the plugin, for failure messages.
    fn plugin_log(&self) -> String {
        let arguments = [
            "logs",
            "--namespace",
            Helm::NAMESPACE,
            "--selector",
            "app.kubernetes.io/name=lanyard-node",
            "--tail=30",
        ];
        self.suite_cluster.kubectl.run(&arguments).unwrap_or_else(|error| error.to_string())
    }
}

fn ca_config_map(name: &str, pem: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": Helm::NAMESPACE },
        "data": { "ca.crt": pem },
    })
}

/// The projected volume that every pod has for its ServiceAccount, with an additional CA.
fn service_account_volume() -> Value {
    let namespace =
        json!({ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } });
    json!({
        "name": "service-account",
        "projected": {
            "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                { "configMap": { "name": CLUSTER_CA_CONFIG_MAP } },
                { "downwardAPI": { "items": [namespace] } },
            ],
        },
    })
}
