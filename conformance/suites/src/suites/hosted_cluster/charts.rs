//! Values for the three charts on a node without service proxy, cluster DNS and registry.

use std::os::unix::fs::symlink;
use std::path::Path;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::{LocalClusterPlan, choose_ports};
use lanyard_vocabulary::Component;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{
    CONTROL_PLANE_NAMESPACE, HostedClusterSuiteFixture, HostedClusterSuiteInputs, NAMESPACE,
    RELEASE_NAMESPACE, START_TIMEOUT, failed_with_causes,
};
use crate::helm::HOME_VARIABLES;
use crate::tutorial::TutorialEnvironment;

/// The section of the page that installs the charts.
pub(super) const INSTALL_SECTION: &str = "Six commands";
/// The sections that rotate a certificate and remove a role.
pub(super) const ROTATE_SECTION: &str = "Rotate a certificate";
pub(super) const REMOVE_ROLE_SECTION: &str = "Remove a role";
/// The sections that remove the hosted cluster and the charts.
pub(super) const DELETE_SECTION: &str = "Delete the hosted cluster";
pub(super) const UNINSTALL_SECTION: &str = "Uninstall the charts";

/// The address of the local Azure on the page, which port-forwards to it.
const FORWARDED_ADDRESS: &str = "127.0.0.1:7750";

/// The ports that the programs on this node use.
#[derive(Debug)]
pub(super) struct HostedClusterPorts {
    azure: u16,
    node_metrics: u16,
    node_health: u16,
    operator: u16,
    /// One port for each component, consecutive.
    canaries: [u16; Component::ALL.len()],
}

impl HostedClusterPorts {
    pub(super) fn choose() -> Result<Self, Failed> {
        let [azure, node_metrics, node_health, operator] =
            choose_ports().map_err(failed_with_causes)?;
        let canaries = choose_ports().map_err(failed_with_causes)?;
        Ok(Self { azure, node_metrics, node_health, operator, canaries })
    }

    /// The metrics port of a component's canary.
    pub(super) fn canary_port(&self, component: Component) -> u16 {
        let place = Component::ALL.iter().position(|known| *known == component);
        self.canaries[place.unwrap_or_default()]
    }

    /// The listen address of the local Azure's pod.
    fn azure_address(&self) -> String {
        format!("127.0.0.1:{}", self.azure)
    }

    /// The URL of the local Azure as a proxy.
    pub(super) fn proxy_url(&self) -> String {
        format!("http://{}", self.azure_address())
    }

    /// The URL of the control API of the local Azure.
    pub(super) fn control_api_url(&self) -> String {
        format!("http://{}/lanyard/v1", self.azure_address())
    }
}

/// Builds the environment for the page's commands, with the differences from the cluster that the page
/// describes.
pub(super) fn build_tutorial_environment(
    parts: &HostedClusterSuiteInputs,
    ports: &HostedClusterPorts,
) -> Result<TutorialEnvironment, Failed> {
    let directory = parts.suite_cluster.directory();
    let values = [
        ("lanyard-azure", azure_values(parts, ports)?),
        ("lanyard-node", node_values(parts, ports)?),
        ("lanyard-operator", operator_values(parts, ports)?),
    ];
    let written = values.into_iter().map(|(chart, values)| {
        let path = directory.join(format!("{chart}.json"));
        std::fs::write(&path, values.to_string()).map_err(failed_with_causes)?;
        Ok((chart, path))
    });
    let home = directory.join("helm").display().to_string();
    let mut environment: Vec<_> =
        HOME_VARIABLES.iter().map(|name| ((*name).to_owned(), home.clone())).collect();
    environment.push(("PATH".to_owned(), build_search_path(parts)?));
    let kubeconfig = parts.suite_cluster.kubectl.kubeconfig().display().to_string();
    environment.push(("KUBECONFIG".to_owned(), kubeconfig));
    Ok(TutorialEnvironment {
        directory: parts.repository.clone(),
        environment,
        // The proxy of the environment cannot reach a cluster on loopback.
        removed_variables: &["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"],
        chart_values: written.collect::<Result<_, Failed>>()?,
        replacements: vec![(FORWARDED_ADDRESS, ports.azure_address())],
    })
}

/// Links the programs of the page into a directory under the names that the page uses. Returns a search path
/// that begins with it.
fn build_search_path(parts: &HostedClusterSuiteInputs) -> Result<String, Failed> {
    let directory = parts.suite_cluster.directory().join("programs");
    std::fs::create_dir_all(&directory).map_err(failed_with_causes)?;
    let kubectl = parts.suite_cluster.kubectl.base_command();
    let programs = [
        ("helm", parts.helm_program.as_path()),
        ("kubectl", Path::new(kubectl.get_program())),
        ("lanyard", &parts.lanyard_program),
        ("kubectl-lanyard", &parts.lanyard_program),
    ];
    for (name, program) in programs {
        symlink(program, directory.join(name)).map_err(failed_with_causes)?;
    }
    Ok(format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()))
}

fn azure_values(
    parts: &HostedClusterSuiteInputs,
    ports: &HostedClusterPorts,
) -> Result<Value, Failed> {
    Ok(json!({
        "image": image_values(&parts.images.azure)?,
        "listen": ports.azure_address(),
        "hostNetwork": true,
    }))
}

fn node_values(
    parts: &HostedClusterSuiteInputs,
    ports: &HostedClusterPorts,
) -> Result<Value, Failed> {
    let location = &parts.suite_cluster;
    let proxy = ports.proxy_url();
    Ok(json!({
        "linux": {
            "image": image_values(&parts.images.node)?,
            "kubeletRootDir": location.cluster.layout().kubelet_directory(),
            "providersDir": location.directory().join("p"),
            "additionalProvidersDirs": [],
            "metricsAddr": format!("127.0.0.1:{}", ports.node_metrics),
            "env": [
                { "name": "HTTPS_PROXY", "value": proxy },
                { "name": "AZURE_POD_IDENTITY_AUTHORITY_HOST", "value": proxy },
            ],
        },
        "apiServer": api_server_values(parts),
        "livenessProbe": { "port": ports.node_health },
    }))
}

fn operator_values(
    parts: &HostedClusterSuiteInputs,
    ports: &HostedClusterPorts,
) -> Result<Value, Failed> {
    let server = api_server_values(parts);
    Ok(json!({
        "image": image_values(&parts.images.operator)?,
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
                    { "name": "HTTPS_PROXY", "value": ports.proxy_url() },
                    { "name": "SSL_CERT_FILE", "value": "/etc/lanyard/local-azure/ca.crt" },
                    { "name": "KUBERNETES_SERVICE_HOST", "value": server["host"] },
                    { "name": "KUBERNETES_SERVICE_PORT", "value": server["port"].to_string() },
                ],
            },
        },
    }))
}

/// Chart values for an image that was imported into the node.
fn image_values(name: &str) -> Result<Value, Failed> {
    let (repository, tag) = name.rsplit_once(':').ok_or("the name of an image has no tag")?;
    Ok(json!({ "repository": repository, "tag": tag, "pullPolicy": "Never" }))
}

fn api_server_values(parts: &HostedClusterSuiteInputs) -> Value {
    let port = parts.suite_cluster.cluster.plan().ports.api_server;
    json!({ "host": LocalClusterPlan::LOOPBACK_ADDRESS.to_string(), "port": port })
}

/// Uninstalls the releases and expects that only the CRDs remain.
pub(super) async fn uninstall_charts(fixture: &HostedClusterSuiteFixture) -> Result<(), Failed> {
    fixture.run_tutorial_section(UNINSTALL_SECTION)?;
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + START_TIMEOUT;
    let everything = [
        "get",
        "all,configmap,secret,serviceaccount,lease,role,rolebinding,clusterrole,clusterrolebinding,csidriver,validatingadmissionpolicies,validatingadmissionpolicybindings",
        "--all-namespaces",
        "--output=name",
    ];
    loop {
        let left = fixture.kubectl().run(&everything).map_err(failed_with_causes)?;
        let mut ours: Vec<&str> = left.lines().filter(|name| name.contains("lanyard")).collect();
        let namespaces = ["get", "namespaces", "--output=name"];
        let namespaces = fixture.kubectl().run(&namespaces).map_err(failed_with_causes)?;
        let is_ours = |line: &&str| {
            let name = line.trim_start_matches("namespace/");
            [RELEASE_NAMESPACE, NAMESPACE, CONTROL_PLANE_NAMESPACE].contains(&name)
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
    let retained = ["get", "crd", "--output=name"];
    let retained = fixture.kubectl().run(&retained).map_err(failed_with_causes)?;
    for name in ["hostedclusters.hypershift.openshift.io", "hostedclusteridentities.lanyard.dev"] {
        if !retained.contains(name) {
            return Err(format!("the definition {name} is gone: {retained}").into());
        }
    }
    Ok(())
}
