//! The chart on a real node: pods of a real kubelet, over the vaults of the local Azure.
//!
//! The trials are the life of one node, in this order: the chart is installed, pods come and go,
//! the plugin is replaced under them, and at the end upstream's driver takes over and gives back.

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
use crate::azure_target::{LocalAzureTarget, SignInMethod};
use crate::class_manifests::{self, ClassIdentityMode};
use crate::helm::Helm;
use crate::kubectl::KubectlError;
use crate::suite_cluster::SuiteCluster;

/// The namespace of the pods.
const NAMESPACE: &str = "node";
const DRIVER: &str = "secrets-store.csi.k8s.io";
/// The CA of the local Azure, as the chart takes it.
const CA_CONFIG_MAP: &str = "local-azure";
/// The same beside the cluster's own. The token proxy of a cluster is trusted by the cluster's CA,
/// and here it is the local Azure that stands in its place.
const CLUSTER_CA_CONFIG_MAP: &str = "cluster-and-local-azure";

/// How long a pod may take to run, images being there.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How often the plugin looks at vaults.
const ROTATION_INTERVAL: &str = "10s";

/// How long a new version may take to be seen in a pod: the plugin's interval, the kubelet's
/// period of ten to fifteen seconds, and time to act on a busy machine.
const ROTATION_TIMEOUT: Duration = Duration::from_mins(1);

/// Everything that the trials of this suite need.
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

/// The names under which the node has images.
#[derive(Debug, Clone)]
pub(crate) struct NodeSuiteImages {
    pub(crate) lanyard: String,
    pub(crate) witness: String,
}

/// What is decided once for all trials.
#[derive(Debug)]
struct NodeSuiteState {
    metrics_port: u16,
    health_port: u16,
    federation: OnceCell<TokenFederation>,
    installed: OnceCell<()>,
}

type NodeTrialFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type NodeTrial = for<'a> fn(&'a NodeSuiteFixture) -> NodeTrialFuture<'a>;

/// The trials in the order of their lives.
const TRIALS: &[(&str, NodeTrial)] = &[
    ("installed_chart_registers_the_driver", |stage| Box::pin(stage.wait_for_driver(true))),
    ("a_pod_reads_with_the_node_managed_identity", |stage| {
        Box::pin(identity_modes::managed_identity_pod(stage))
    }),
    ("a_pod_reads_with_workload_identity", |stage| {
        Box::pin(identity_modes::workload_identity_pod(stage))
    }),
    ("a_pod_reads_with_an_identity_binding", |stage| {
        Box::pin(identity_modes::identity_binding_pod(stage))
    }),
    ("a_pod_reads_with_a_service_principal", |stage| {
        Box::pin(identity_modes::service_principal_pod(stage))
    }),
    ("a_pod_with_a_sub_path_reads_its_file", |stage| {
        Box::pin(volume_mounts::sub_path_mount(stage))
    }),
    ("fs_group_makes_files_readable_for_a_non_root_pod", |stage| {
        Box::pin(volume_mounts::fs_group_permissions(stage))
    }),
    ("a_pod_cannot_write_into_its_volume", |stage| {
        Box::pin(volume_mounts::read_only_volume(stage))
    }),
    ("mount_failure_emits_a_pod_event", |stage| {
        Box::pin(volume_mounts::mount_failure_event(stage))
    }),
    ("a_rotation_is_seen_inside_a_running_pod", |stage| {
        Box::pin(pod_lifecycle::rotation_reaches_pod(stage))
    }),
    ("a_deleted_pod_leaves_nothing_on_its_node", |stage| {
        Box::pin(pod_lifecycle::deleted_pod_leaves_nothing(stage))
    }),
    ("plugin_upgrade_does_not_interrupt_reads_or_rotation", |stage| {
        Box::pin(pod_lifecycle::upgraded_plugin(stage))
    }),
    ("killed_plugin_recovers_its_volumes", |stage| Box::pin(pod_lifecycle::killed_plugin(stage))),
    ("a_restarted_kubelet_finds_driver_and_volumes_again", |stage| {
        Box::pin(pod_lifecycle::restarted_kubelet(stage))
    }),
    ("pods_keep_reading_when_drivers_are_switched", |stage| {
        Box::pin(driver_switch::switch_drivers(stage))
    }),
    ("uninstalled_chart_leaves_only_the_crds", |stage| Box::pin(stage.uninstall())),
];

pub(crate) fn trials(stage: NodeSuiteFixture) -> Vec<Trial> {
    let stage = Arc::new(stage);
    TRIALS
        .iter()
        .map(|(name, run)| {
            let (stage, run) = (Arc::clone(&stage), *run);
            Trial::test(format!("node::{name}"), move || {
                stage.suite_cluster.runtime.block_on(async {
                    stage.state.installed.get_or_try_init(|| stage.install()).await?;
                    run(&stage).await
                })
            })
        })
        .collect()
}

impl NodeSuiteFixture {
    pub(crate) fn new(
        site: Arc<SuiteCluster>,
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
        Ok(Self { suite_cluster: site, azure, helm, images, upstream_programs: upstream, state })
    }

    /// The namespace of the suite, and what the plugin has to trust.
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

    /// The values of the chart on this node.
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
                // Where a container has such a mount, none is added.
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
            let told = self.plugin_log();
            // The next trial begins anew.
            self.helm.uninstall().map_err(failed_with_causes)?;
            return Err(format!("{error}\n{told}").into());
        }
        self.wait_for_driver(true).await
    }

    async fn uninstall(&self) -> Result<(), Failed> {
        self.helm.uninstall().map_err(failed_with_causes)?;
        self.wait_for_driver(false).await?;
        // A pod is there until its process has ended.
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

    /// Waits until the kubelet lists the driver, or lists it no more.
    async fn wait_for_driver(&self, is_there: bool) -> Result<(), Failed> {
        let what =
            if is_there { "the kubelet knows the driver" } else { "the kubelet forgot the driver" };
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

    /// Writes a class for a vault that `holder` reads.
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

    /// The end of what the plugin logged, for the message of a failure.
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

/// What every pod has of its ServiceAccount, with one more authority.
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
