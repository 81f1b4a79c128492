//! Both charts on this node.

use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::Plan;
use lanyard_vocabulary::Component;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{INTERVAL, START, Stage, chain};
use crate::helm::Helm;
use crate::peers::free_port;

/// The `ConfigMap` with the CA of the local Azure.
pub(super) const AUTHORITIES: &str = "local-azure";

/// Where canaries find the CA of the local Azure.
const AUTHORITY: &str = "/etc/lanyard/local-azure.pem";

/// The ports of this node that are taken.
#[derive(Debug)]
pub(super) struct Ports {
    node_metrics: u16,
    node_health: u16,
    operator: u16,
    /// The first of one for each component.
    canaries: u16,
}

impl Ports {
    pub(super) fn choose() -> Self {
        let [node_metrics, node_health, operator] = [free_port(), free_port(), free_port()];
        Self { node_metrics, node_health, operator, canaries: free_row() }
    }

    /// Where the canary of a component answers.
    pub(super) fn canary(&self, component: Component) -> u16 {
        let place = Component::ALL.iter().position(|known| *known == component);
        self.canaries + u16::try_from(place.unwrap_or_default()).unwrap_or_default()
    }
}

/// The first of as many free ports in a row as there are components.
fn free_row() -> u16 {
    let count = u16::try_from(Component::ALL.len()).unwrap_or_default();
    loop {
        let first = free_port();
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if first.checked_add(count).is_some_and(|end| (first..end).all(is_free)) {
            return first;
        }
    }
}

pub(super) fn install(stage: &Stage) -> Result<(), Failed> {
    let parts = &stage.parts;
    let node = write(stage, "node.json", &node_values(stage)?)?;
    parts.node.install(&node, &["--wait", "--timeout", "2m"]).map_err(chain)?;
    let operator = write(stage, "operator.json", &operator_values(stage)?)?;
    let installed = parts.operator.install(&operator, &["--wait", "--timeout", "2m"]);
    installed.map_err(|error| stage.told(error))
}

fn write(stage: &Stage, name: &str, values: &Value) -> Result<PathBuf, Failed> {
    let path = stage.parts.site.directory().join(name);
    std::fs::write(&path, values.to_string()).map_err(chain)?;
    Ok(path)
}

fn node_values(stage: &Stage) -> Result<Value, Failed> {
    let site = &stage.parts.site;
    let proxy = stage.parts.azure.proxy();
    Ok(json!({
        "linux": {
            "image": image(stage)?,
            "kubeletRootDir": site.cluster.layout().kubelet(),
            "providersDir": site.directory().join("p"),
            "additionalProvidersDirs": [],
            "metricsAddr": format!("127.0.0.1:{}", stage.ports.node_metrics),
            "env": [
                { "name": "HTTPS_PROXY", "value": proxy },
                { "name": "NO_PROXY", "value": "127.0.0.1" },
                { "name": "AZURE_POD_IDENTITY_AUTHORITY_HOST", "value": proxy },
            ],
        },
        "apiServer": api_server(stage),
        "caBundle": { "configMap": AUTHORITIES },
        "livenessProbe": { "port": stage.ports.node_health },
        "rotationPollInterval": INTERVAL,
    }))
}

/// The CA of the local Azure where canaries may read it: they run as nobody.
fn public_authority(stage: &Stage) -> Result<PathBuf, Failed> {
    let path = stage.parts.site.directory().join("local-azure.pem");
    std::fs::copy(stage.parts.azure.authority(), &path).map_err(chain)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).map_err(chain)?;
    Ok(path)
}

fn operator_values(stage: &Stage) -> Result<Value, Failed> {
    let (parts, ports) = (&stage.parts, &stage.ports);
    let authority = public_authority(stage)?;
    let server = api_server(stage);
    Ok(json!({
        "image": image(stage)?,
        "keyVaultUserClientID": parts.azure.vault_reader(),
        "replicas": 1,
        "shards": 1,
        "hostNetwork": true,
        "metricsAddr": format!("127.0.0.1:{}", ports.operator),
        "apiServer": server,
        "workloads": {
            "canary": {
                "interval": "2s",
                "probeInterval": "5s",
                "metricsAddress": "127.0.0.1",
                "metricsPort": ports.canaries,
                "hostNetwork": true,
                "env": [
                    { "name": "HTTPS_PROXY", "value": parts.azure.proxy() },
                    { "name": "NO_PROXY", "value": "127.0.0.1" },
                    { "name": "SSL_CERT_FILE", "value": AUTHORITY },
                    { "name": "KUBERNETES_SERVICE_HOST", "value": server["host"] },
                    { "name": "KUBERNETES_SERVICE_PORT", "value": server["port"].to_string() },
                ],
                "volumes": [{
                    "name": "local-azure",
                    "hostPath": { "path": authority, "type": "File" },
                }],
                "volumeMounts": [
                    { "name": "local-azure", "mountPath": AUTHORITY, "readOnly": true },
                ],
            },
        },
    }))
}

fn image(stage: &Stage) -> Result<Value, Failed> {
    let (repository, tag) =
        stage.parts.image.rsplit_once(':').ok_or("the name of our image has no tag")?;
    Ok(json!({ "repository": repository, "tag": tag, "pullPolicy": "Never" }))
}

fn api_server(stage: &Stage) -> Value {
    let port = stage.parts.site.cluster.plan().ports.api_server;
    json!({ "host": Plan::ADDRESS.to_string(), "port": port })
}

/// Takes both releases away; their definitions stay, and a lease that nobody renews: the rights to it went
/// with the release before its holder ended.
pub(super) async fn uninstall(stage: &Stage) -> Result<(), Failed> {
    stage.parts.operator.uninstall().map_err(chain)?;
    stage.parts.node.uninstall().map_err(chain)?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + START;
    let everything = [
        "get",
        "all,configmap,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding,csidriver",
        "--all-namespaces",
        "--output=name",
    ];
    loop {
        let left = stage.kubectl().run(&everything).map_err(chain)?;
        let ours: Vec<&str> = left.lines().filter(|name| name.contains("lanyard")).collect();
        if ours.is_empty() {
            break;
        }
        if clock.monotonic() > deadline {
            return Err(format!("left behind: {}", ours.join(", ")).into());
        }
        clock.sleep(Duration::from_millis(500)).await;
    }
    let kept = ["get", "crd", "--output=name"];
    let kept = stage.kubectl().run(&kept).map_err(chain)?;
    for name in ["hostedclusters.hypershift.openshift.io", "hostedclusteridentities.lanyard.dev"] {
        if !kept.contains(name) {
            return Err(format!("the definition {name} is gone: {kept}").into());
        }
    }
    stage.kubectl().run(&["get", "namespace", Helm::NAMESPACE]).map_err(chain)?;
    Ok(())
}
