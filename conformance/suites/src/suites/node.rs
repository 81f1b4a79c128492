//! The chart on a real node: pods of a real kubelet, over the vaults of the local Azure.
//!
//! The trials are the life of one node, in this order: the chart is installed, pods come and go,
//! the plugin is replaced under them, and at the end upstream's driver takes over and gives back.

mod federation;
mod horses;
mod identities;
mod lives;
mod pods;
mod shapes;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{NoPorts, Plan, choose_ports};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::federation::Federation;
use super::chain;
use crate::classes::{self, Mode};
use crate::ground::{Holder, Local};
use crate::helm::Helm;
use crate::kubectl::KubectlError;
use crate::site::Site;

/// The namespace of the pods.
const NAMESPACE: &str = "node";
const DRIVER: &str = "secrets-store.csi.k8s.io";
/// The CA of the local Azure, as the chart takes it.
const AUTHORITIES: &str = "local-azure";
/// The same beside the cluster's own. The token proxy of a cluster is trusted by the cluster's CA,
/// and here it is the local Azure that stands in its place.
const CLUSTER_AUTHORITIES: &str = "cluster-and-local-azure";

/// How long a pod may take to run, images being there.
const START: Duration = Duration::from_mins(1);

/// How often the plugin looks at vaults.
const INTERVAL: &str = "10s";

/// How long a new version may take to be seen in a pod: the plugin's interval, the kubelet's
/// period of ten to fifteen seconds, and time to act on a busy machine.
const ROTATION: Duration = Duration::from_mins(1);

/// Everything that the trials of this suite need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) site: Arc<Site>,
    pub(crate) azure: Arc<Local>,
    pub(crate) helm: Helm,
    pub(crate) images: Images,
    /// Upstream's driver v1.6.0 and Azure provider v1.8.2.
    pub(crate) upstream: (PathBuf, PathBuf),
    state: State,
}

/// The names under which the node has images.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    pub(crate) lanyard: String,
    pub(crate) witness: String,
}

/// What is decided once for all trials.
#[derive(Debug)]
struct State {
    metrics_port: u16,
    health_port: u16,
    federation: OnceCell<Federation>,
    installed: OnceCell<()>,
}

type Steps<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>>;
type Run = for<'a> fn(&'a Stage) -> Steps<'a>;

/// The trials in the order of their lives.
const TRIALS: &[(&str, Run)] = &[
    ("the_installed_chart_is_ready_and_the_kubelet_knows_the_driver", |stage| {
        Box::pin(stage.await_driver(true))
    }),
    ("a_pod_reads_by_the_identity_of_its_node", |stage| Box::pin(identities::managed(stage))),
    ("a_pod_reads_by_its_workload_identity", |stage| Box::pin(identities::workload(stage))),
    ("a_pod_reads_by_an_identity_binding", |stage| Box::pin(identities::binding(stage))),
    ("a_pod_reads_by_a_service_principal", |stage| Box::pin(identities::principal(stage))),
    ("a_pod_with_a_sub_path_reads_its_file", |stage| Box::pin(shapes::sub_path(stage))),
    ("a_pod_that_is_not_root_reads_files_of_its_group_and_nobody_else_does", |stage| {
        Box::pin(shapes::fs_group(stage))
    }),
    ("a_pod_cannot_write_into_its_volume", |stage| Box::pin(shapes::read_only(stage))),
    ("a_pod_that_cannot_start_is_told_why_by_an_event", |stage| Box::pin(shapes::refused(stage))),
    ("a_rotation_is_seen_inside_a_running_pod", |stage| Box::pin(lives::rotation(stage))),
    ("a_deleted_pod_leaves_nothing_on_its_node", |stage| Box::pin(lives::deletion(stage))),
    ("an_upgraded_plugin_keeps_its_pods_reading_and_rotates_on", |stage| {
        Box::pin(lives::upgrade(stage))
    }),
    ("a_killed_plugin_comes_back_to_its_volumes", |stage| Box::pin(lives::kill(stage))),
    ("a_restarted_kubelet_finds_driver_and_volumes_again", |stage| {
        Box::pin(lives::kubelet_restart(stage))
    }),
    ("pods_read_on_from_upstream_to_us_and_back", |stage| Box::pin(horses::change(stage))),
    ("an_uninstalled_chart_leaves_the_crds_and_nothing_else", |stage| Box::pin(stage.uninstall())),
];

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    TRIALS
        .iter()
        .map(|(name, run)| {
            let (stage, run) = (Arc::clone(&stage), *run);
            Trial::test(format!("node::{name}"), move || {
                stage.site.runtime.block_on(async {
                    stage.state.installed.get_or_try_init(|| stage.install()).await?;
                    run(&stage).await
                })
            })
        })
        .collect()
}

impl Stage {
    pub(crate) fn new(
        site: Arc<Site>,
        azure: Arc<Local>,
        helm: Helm,
        images: Images,
        upstream: (PathBuf, PathBuf),
    ) -> Result<Self, NoPorts> {
        let [metrics_port, health_port] = choose_ports()?;
        let state = State {
            metrics_port,
            health_port,
            federation: OnceCell::new(),
            installed: OnceCell::new(),
        };
        Ok(Self { site, azure, helm, images, upstream, state })
    }

    /// The namespace of the suite, and what the plugin has to trust.
    pub(crate) fn prepare(&self) -> Result<(), KubectlError> {
        let authority = std::fs::read_to_string(self.azure.authority()).unwrap_or_default();
        let kubectl = &self.site.kubectl;
        kubectl.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        }))?;
        let trusted = ["configmap", "kube-root-ca.crt", "--namespace", Helm::NAMESPACE];
        let trusted = kubectl.read(&trusted)?;
        let cluster = trusted["data"]["ca.crt"].as_str().unwrap_or_default();
        kubectl.apply(&authorities(AUTHORITIES, &authority))?;
        kubectl.apply(&authorities(CLUSTER_AUTHORITIES, &format!("{cluster}\n{authority}")))
    }

    /// The values of the chart on this node.
    async fn values(&self) -> Result<PathBuf, Failed> {
        let federation = self.federation().await?;
        let (repository, tag) =
            self.images.lanyard.rsplit_once(':').ok_or("the name of our image has no tag")?;
        let proxy = self.azure.proxy();
        let kubelet = self.site.cluster.layout().kubelet();
        let values = json!({
            "linux": {
                "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" },
                "kubeletRootDir": kubelet,
                "providersDir": self.providers(),
                "additionalProvidersDirs": [],
                "metricsAddr": format!("127.0.0.1:{}", self.state.metrics_port),
                "env": [
                    { "name": "HTTPS_PROXY", "value": proxy },
                    { "name": "NO_PROXY", "value": "127.0.0.1" },
                    { "name": "AZURE_POD_IDENTITY_AUTHORITY_HOST", "value": proxy },
                ],
                "volumes": [service_account()],
                // Where a container has such a mount, none is added.
                "volumeMounts": [{
                    "name": "service-account",
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                    "readOnly": true,
                }],
            },
            "apiServer": {
                "host": Plan::ADDRESS.to_string(),
                "port": self.site.cluster.plan().ports.api_server,
            },
            "caBundle": { "configMap": AUTHORITIES },
            "livenessProbe": { "port": self.state.health_port },
            "rotationPollInterval": INTERVAL,
            "tokenProxyURL": proxy.replacen("http:", "https:", 1),
            "sniName": federation.server_name,
            "logVerbosity": 2,
        });
        let path = self.site.directory().join("values.json");
        std::fs::write(&path, values.to_string()).map_err(chain)?;
        Ok(path)
    }

    fn providers(&self) -> PathBuf {
        self.site.directory().join("p")
    }

    /// Makes the local Azure trust the tokens of this cluster, once.
    async fn federation(&self) -> Result<&Federation, Failed> {
        self.state.federation.get_or_try_init(|| Federation::establish(self)).await
    }

    async fn install(&self) -> Result<(), Failed> {
        let values = self.values().await?;
        if let Err(error) = self.helm.install(&values, &["--wait", "--timeout", "1m"]) {
            let told = self.plugin_log();
            // The next trial begins anew.
            self.helm.uninstall().map_err(chain)?;
            return Err(format!("{error}\n{told}").into());
        }
        self.await_driver(true).await
    }

    async fn uninstall(&self) -> Result<(), Failed> {
        self.helm.uninstall().map_err(chain)?;
        self.await_driver(false).await?;
        // A pod is there until its process has ended.
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + START;
        loop {
            let everything = ["get", "all,csidriver", "--all-namespaces", "--output=name"];
            let left = self.site.kubectl.run(&everything).map_err(chain)?;
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
        self.site
            .kubectl
            .read(&["crd", "secretproviderclasses.secrets-store.csi.x-k8s.io"])
            .map_err(chain)?;
        Ok(())
    }

    /// Waits until the kubelet lists the driver, or lists it no more.
    async fn await_driver(&self, is_there: bool) -> Result<(), Failed> {
        let what =
            if is_there { "the kubelet knows the driver" } else { "the kubelet forgot the driver" };
        let lists = |node: &Value| {
            let drivers = node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
            drivers.iter().any(|driver| driver["name"] == DRIVER) == is_there
        };
        let arguments = ["csinode", Plan::NODE];
        self.site.kubectl.await_object(what, START, &arguments, lists).await.map_err(chain)?;
        Ok(())
    }

    /// Writes a class for a vault that `holder` reads.
    fn class(&self, name: &str, holder: Holder, mode: Mode, object: &str) -> Result<(), Failed> {
        let inputs = self.azure.inputs(holder);
        let object = object.replace("{component}", &inputs.secret_name);
        let class = classes::class(NAMESPACE, name, "azure", mode, &inputs, &[object]);
        self.site.kubectl.apply(&class).map_err(chain)
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
        self.site.kubectl.run(&arguments).unwrap_or_else(|error| error.to_string())
    }
}

fn authorities(name: &str, pem: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": Helm::NAMESPACE },
        "data": { "ca.crt": pem },
    })
}

/// What every pod has of its ServiceAccount, with one more authority.
fn service_account() -> Value {
    let namespace =
        json!({ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } });
    json!({
        "name": "service-account",
        "projected": {
            "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                { "configMap": { "name": CLUSTER_AUTHORITIES } },
                { "downwardAPI": { "items": [namespace] } },
            ],
        },
    })
}
