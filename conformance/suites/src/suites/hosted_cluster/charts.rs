//! The three charts on this node, which has no service proxy, no cluster DNS and no registry.

use std::os::unix::fs::symlink;
use std::path::Path;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{Plan, choose_ports};
use lanyard_vocabulary::Component;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{CONTROL_PLANE, NAMESPACE, Parts, RELEASES, START, Stage, chain};
use crate::helm::HOMES;
use crate::tutorial::Surroundings;

/// The section of the page that ends with nine identities.
pub(super) const INSTALL: &str = "Six commands";
/// The sections that break and rotate.
pub(super) const ROTATE: &str = "Rotate a certificate";
pub(super) const BREAK: &str = "Remove a role";
/// The section that removes the hosted cluster, and the one that removes everything else.
pub(super) const DELETE: &str = "Delete the hosted cluster";
pub(super) const UNINSTALL: &str = "Uninstall the charts";

/// The address of the local Azure behind the port-forward of the page.
const FORWARDED: &str = "127.0.0.1:7750";

/// The ports of this node that are taken.
#[derive(Debug)]
pub(super) struct Ports {
    azure: u16,
    node_metrics: u16,
    node_health: u16,
    operator: u16,
    /// One for each component, in a row.
    canaries: [u16; Component::ALL.len()],
}

impl Ports {
    pub(super) fn choose() -> Result<Self, Failed> {
        let [azure, node_metrics, node_health, operator] = choose_ports().map_err(chain)?;
        let canaries = choose_ports().map_err(chain)?;
        Ok(Self { azure, node_metrics, node_health, operator, canaries })
    }

    /// Where the canary of a component answers.
    pub(super) fn canary(&self, component: Component) -> u16 {
        let place = Component::ALL.iter().position(|known| *known == component);
        self.canaries[place.unwrap_or_default()]
    }

    /// Where the pod of the local Azure listens.
    fn azure(&self) -> String {
        format!("127.0.0.1:{}", self.azure)
    }

    /// The URL of the control API of the local Azure.
    pub(super) fn control_api(&self) -> String {
        format!("http://{}/lanyard/v1", self.azure())
    }
}

/// What is different here from the cluster that the page describes.
pub(super) fn surroundings(parts: &Parts, ports: &Ports) -> Result<Surroundings, Failed> {
    let directory = parts.site.directory();
    let values = [
        ("lanyard-azure", azure_values(parts, ports)?),
        ("lanyard-node", node_values(parts, ports)?),
        ("lanyard-operator", operator_values(parts, ports)?),
    ];
    let written = values.into_iter().map(|(chart, values)| {
        let path = directory.join(format!("{chart}.json"));
        std::fs::write(&path, values.to_string()).map_err(chain)?;
        Ok((chart, path))
    });
    let home = directory.join("helm").display().to_string();
    let mut environment: Vec<_> =
        HOMES.iter().map(|name| ((*name).to_owned(), home.clone())).collect();
    environment.push(("PATH".to_owned(), search_path(parts)?));
    let kubeconfig = parts.site.kubectl.kubeconfig().display().to_string();
    environment.push(("KUBECONFIG".to_owned(), kubeconfig));
    Ok(Surroundings {
        directory: parts.repository.clone(),
        environment,
        // The proxy of the environment knows no cluster on loopback.
        removed: &["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"],
        values: written.collect::<Result<_, Failed>>()?,
        replaced: vec![(FORWARDED, ports.azure())],
    })
}

/// A directory with the programs of the page under the names that it calls them by, before all others.
fn search_path(parts: &Parts) -> Result<String, Failed> {
    let directory = parts.site.directory().join("programs");
    std::fs::create_dir_all(&directory).map_err(chain)?;
    let kubectl = parts.site.kubectl.command();
    let programs = [
        ("helm", parts.helm.as_path()),
        ("kubectl", Path::new(kubectl.get_program())),
        ("lanyard", &parts.lanyard),
        ("kubectl-lanyard", &parts.lanyard),
    ];
    for (name, program) in programs {
        symlink(program, directory.join(name)).map_err(chain)?;
    }
    Ok(format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()))
}

fn azure_values(parts: &Parts, ports: &Ports) -> Result<Value, Failed> {
    Ok(json!({
        "image": image(&parts.images.azure)?,
        "listen": ports.azure(),
        "hostNetwork": true,
    }))
}

fn node_values(parts: &Parts, ports: &Ports) -> Result<Value, Failed> {
    let site = &parts.site;
    let proxy = format!("http://{}", ports.azure());
    Ok(json!({
        "linux": {
            "image": image(&parts.images.node)?,
            "kubeletRootDir": site.cluster.layout().kubelet(),
            "providersDir": site.directory().join("p"),
            "additionalProvidersDirs": [],
            "metricsAddr": format!("127.0.0.1:{}", ports.node_metrics),
            "env": [
                { "name": "HTTPS_PROXY", "value": proxy },
                { "name": "AZURE_POD_IDENTITY_AUTHORITY_HOST", "value": proxy },
            ],
        },
        "apiServer": api_server(parts),
        "livenessProbe": { "port": ports.node_health },
    }))
}

fn operator_values(parts: &Parts, ports: &Ports) -> Result<Value, Failed> {
    let server = api_server(parts);
    Ok(json!({
        "image": image(&parts.images.operator)?,
        "hostNetwork": true,
        "metricsAddr": format!("127.0.0.1:{}", ports.operator),
        "apiServer": server,
        "workloads": {
            "canary": {
                "interval": "2s",
                "probeInterval": "5s",
                "metricsAddress": "127.0.0.1",
                "metricsPort": ports.canaries[0],
                "hostNetwork": true,
                "env": [
                    { "name": "HTTPS_PROXY", "value": format!("http://{}", ports.azure()) },
                    { "name": "SSL_CERT_FILE", "value": "/etc/lanyard/local-azure/ca.crt" },
                    { "name": "KUBERNETES_SERVICE_HOST", "value": server["host"] },
                    { "name": "KUBERNETES_SERVICE_PORT", "value": server["port"].to_string() },
                ],
            },
        },
    }))
}

/// An image that the node has, by its name there.
fn image(name: &str) -> Result<Value, Failed> {
    let (repository, tag) = name.rsplit_once(':').ok_or("the name of an image has no tag")?;
    Ok(json!({ "repository": repository, "tag": tag, "pullPolicy": "Never" }))
}

fn api_server(parts: &Parts) -> Value {
    let port = parts.site.cluster.plan().ports.api_server;
    json!({ "host": Plan::ADDRESS.to_string(), "port": port })
}

/// Takes the releases and their namespaces away; the definitions stay.
pub(super) async fn uninstall(stage: &Stage) -> Result<(), Failed> {
    stage.follow(UNINSTALL)?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + START;
    let everything = [
        "get",
        "all,configmap,secret,serviceaccount,lease,role,rolebinding,clusterrole,clusterrolebinding,csidriver",
        "--all-namespaces",
        "--output=name",
    ];
    loop {
        let left = stage.kubectl().run(&everything).map_err(chain)?;
        let mut ours: Vec<&str> = left.lines().filter(|name| name.contains("lanyard")).collect();
        let namespaces = ["get", "namespaces", "--output=name"];
        let namespaces = stage.kubectl().run(&namespaces).map_err(chain)?;
        let is_ours = |line: &&str| {
            let name = line.trim_start_matches("namespace/");
            [RELEASES, NAMESPACE, CONTROL_PLANE].contains(&name)
        };
        ours.extend(namespaces.lines().filter(is_ours));
        if ours.is_empty() {
            break;
        }
        if clock.monotonic() > deadline {
            return Err(format!("left behind: {}", ours.join(", ")).into());
        }
        clock.sleep(std::time::Duration::from_millis(500)).await;
    }
    let kept = ["get", "crd", "--output=name"];
    let kept = stage.kubectl().run(&kept).map_err(chain)?;
    for name in ["hostedclusters.hypershift.openshift.io", "hostedclusteridentities.lanyard.dev"] {
        if !kept.contains(name) {
            return Err(format!("the definition {name} is gone: {kept}").into());
        }
    }
    Ok(())
}
