//! The charts, judged by Helm and by a Kubernetes API.

mod authority;
mod operator_ownership;
mod ownership;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use super::chain;
use crate::helm::{Chart, Helm, HelmError};
use crate::site::Site;

/// Values that are rendered and compared with the committed objects.
#[derive(Debug, Clone, Copy)]
struct Variant {
    chart: Chart,
    /// The name of the two files: `NAME.values.yaml` and `NAME.golden.yaml`.
    name: &'static str,
    /// The version of the cluster.
    kubernetes: &'static str,
    /// An API that is there beside those of Kubernetes.
    api: Option<&'static str>,
}

const fn variant(chart: Chart, name: &'static str, kubernetes: &'static str) -> Variant {
    Variant { chart, name, kubernetes, api: None }
}

impl Variant {
    /// The name in the names of trials.
    fn title(self) -> String {
        let name = self.name.replace(['-', '.'], "_");
        match self.chart {
            Chart::Node => name,
            Chart::Operator => format!("operator_{name}"),
            Chart::Azure => format!("azure_{name}"),
        }
    }

    /// The same where an API is there.
    const fn with(self, api: &'static str) -> Self {
        Self { api: Some(api), ..self }
    }
}

const MONITORS: &str = "monitoring.coreos.com/v1/PodMonitor";

const VARIANTS: [Variant; 12] = [
    variant(Chart::Node, "defaults", "1.36.3"),
    variant(Chart::Node, "tokens-in-the-volume-context", "1.34.4"),
    variant(Chart::Node, "beside-another-driver", "1.36.3"),
    variant(Chart::Node, "least", "1.36.3"),
    variant(Chart::Node, "openshift", "1.36.3").with("security.openshift.io/v1"),
    variant(Chart::Node, "everything", "1.36.3").with(MONITORS),
    variant(Chart::Operator, "defaults", "1.36.3"),
    variant(Chart::Operator, "beside-hypershift", "1.36.3"),
    variant(Chart::Operator, "everything", "1.36.3").with(MONITORS),
    variant(Chart::Azure, "defaults", "1.36.3"),
    variant(Chart::Azure, "network-of-the-node", "1.36.3"),
    variant(Chart::Azure, "everything", "1.36.3"),
];

/// Values that must be refused, and what the refusal must name.
const REFUSED: [(&str, &str, &str); 14] = [
    ("an_unknown_value", "linux.imgae.tag=1", "imgae"),
    ("a_value_of_the_upstream_chart_that_nobody_reads", "windows.enabled=true", "windows"),
    ("a_driver_name_that_the_kubelet_refuses", "driverName=.driver", "driverName"),
    ("a_relative_kubelet_directory", "linux.kubeletRootDir=kubelet", "kubeletRootDir"),
    ("an_interval_without_a_unit", "rotationPollInterval=120", "rotationPollInterval"),
    ("a_policy_mode_that_does_not_exist", "policy.mode=off", "mode"),
    ("a_policy_mode_without_a_policy", "policy.mode=enforce", "/policy/document"),
    (
        "a_socket_of_the_provider_that_is_not_there",
        "azureProvider=socket,providerSocket.enabled=true",
        "/providerSocket/enabled",
    ),
    ("a_limit_of_memory_that_is_none", "volumesMemoryLimit=half", "volumesMemoryLimit"),
    ("more_of_a_vault_than_it_gives", "vaultRequestsPerSecond=401", "vaultRequestsPerSecond"),
    (
        "a_directory_of_the_node_that_would_hide_the_containers",
        "cloudEnvironment.directory=/etc",
        "/cloudEnvironment/directory",
    ),
    (
        "two_places_of_environment_files",
        "cloudEnvironment.directory=/etc/kubernetes,cloudEnvironment.configMap=azure-stack",
        "cloudEnvironment: give a configMap or a directory",
    ),
    ("a_port_that_is_none", "livenessProbe.port=70000", "port"),
    (
        "an_image_without_a_repository",
        "linux.image.repository=",
        "linux.image.repository is needed",
    ),
];

/// The same for the chart of the operator.
const REFUSED_BY_OPERATOR: [(&str, &str, &str); 12] = [
    ("an_unknown_value", "replicass=2", "replicass"),
    ("a_role_that_does_not_exist", "role=observer", "/role"),
    ("a_reader_that_is_no_client_id", "keyVaultUserClientID=reader", "/keyVaultUserClientID"),
    ("an_address_without_a_port", "metricsAddr=8080", "/metricsAddr"),
    (
        "a_page_that_the_kubelet_cannot_reach",
        "metricsAddr=127.0.0.1:8080",
        "metricsAddr: nobody outside of the pod reaches 127.0.0.1:8080",
    ),
    (
        "the_same_page_by_its_name",
        "metricsAddr=localhost:8080",
        "metricsAddr: nobody outside of the pod reaches localhost:8080",
    ),
    ("authorities_that_it_would_not_ask_for", "caBundle.configMap=authorities", "caBundle"),
    ("more_shards_than_the_operator_takes", "shards=65", "/shards"),
    ("no_workers", "workers=0", "/workers"),
    ("an_interval_without_a_unit", "workloads.canary.interval=60", "/workloads/canary/interval"),
    ("an_unknown_value_of_the_canaries", "workloads.canary.imag=x", "imag"),
    ("an_image_without_a_repository", "image.repository=", "image.repository is needed"),
];

/// The same for the chart of the local Azure.
const REFUSED_BY_AZURE: [(&str, &str, &str); 9] = [
    ("an_unknown_value", "hostedclusters=x", "hostedclusters"),
    ("a_type_of_the_service", "service.type=LoadBalancer", "type"),
    ("more_than_one_replica", "replicas=2", "replicas"),
    (
        "an_address_that_machines_outside_of_the_node_reach",
        "hostNetwork=true,listen=0.0.0.0:7750",
        "listen: with hostNetwork=true every machine that reaches the node",
    ),
    (
        "an_address_that_other_pods_cannot_reach",
        "listen=127.0.0.1:7750",
        "listen: other pods cannot reach 127.0.0.1:7750",
    ),
    ("an_address_without_a_port", "listen=0.0.0.0", "/listen"),
    ("a_certificate_without_its_key", "ca.key=", "/ca"),
    ("a_hosted_cluster_that_is_none", "hostedCluster=kind: Pod", "this is not one HostedCluster"),
    ("an_image_without_a_repository", "image.repository=", "image.repository is needed"),
];

/// What the trials need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) helm: Helm,
    /// The same for the chart of the operator.
    pub(crate) operator: Helm,
    /// The same for the chart of the local Azure.
    pub(crate) azure: Helm,
    pub(crate) site: Arc<Site>,
    /// `conformance/kubernetes`.
    pub(crate) golden: PathBuf,
    /// Write what is rendered instead of comparing it.
    pub(crate) bless: bool,
}

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    let mut trials = vec![
        trial("chart::lint_finds_nothing", &stage, |stage| stage.helm.lint().map_err(chain)),
        trial("chart::lint_finds_nothing_in_the_chart_of_the_operator", &stage, |stage| {
            stage.operator.lint().map_err(chain)
        }),
        trial("chart::lint_finds_nothing_in_the_chart_of_the_local_azure", &stage, |stage| {
            stage.azure.lint().map_err(chain)
        }),
    ];
    for variant in VARIANTS {
        let name = variant.title();
        trials.push(trial(&format!("chart::{name}_renders_as_committed"), &stage, move |stage| {
            stage.render(variant)
        }));
        if variant.api.is_none() {
            trials.push(trial(
                &format!("chart::the_api_takes_every_object_of_{name}"),
                &stage,
                move |stage| stage.validate(variant),
            ));
        }
    }
    for (name, value, named) in REFUSED {
        trials.push(trial(&format!("chart::{name}_is_refused"), &stage, move |stage| {
            stage.refuse(Chart::Node, value, named)
        }));
    }
    for (name, value, named) in REFUSED_BY_OPERATOR {
        let name = format!("chart::{name}_is_refused_by_the_operator");
        trials.push(trial(&name, &stage, move |stage| stage.refuse(Chart::Operator, value, named)));
    }
    for (name, value, named) in REFUSED_BY_AZURE {
        let name = format!("chart::{name}_is_refused_by_the_local_azure");
        trials.push(trial(&name, &stage, move |stage| stage.refuse(Chart::Azure, value, named)));
    }
    trials.extend(ownership::trials(&stage));
    trials.extend(operator_ownership::trials(&stage));
    trials.extend(authority::trials(&stage));
    trials
}

fn trial(
    name: &str,
    stage: &Arc<Stage>,
    run: impl FnOnce(&Stage) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let stage = Arc::clone(stage);
    Trial::test(name, move || run(&stage))
}

impl Stage {
    const fn helm(&self, chart: Chart) -> &Helm {
        match chart {
            Chart::Node => &self.helm,
            Chart::Operator => &self.operator,
            Chart::Azure => &self.azure,
        }
    }

    /// Where the values and the committed objects of a chart are.
    fn golden(&self, chart: Chart) -> PathBuf {
        self.golden.join(match chart {
            Chart::Node => "chart",
            Chart::Operator => "operator-chart",
            Chart::Azure => "azure-chart",
        })
    }

    fn rendered(&self, variant: Variant) -> Result<String, Failed> {
        let values = self.golden(variant.chart).join(format!("{}.values.yaml", variant.name));
        let mut arguments = vec!["--kube-version", variant.kubernetes];
        if let Some(api) = variant.api {
            arguments.extend(["--api-versions", api]);
        }
        self.helm(variant.chart).template(&values, &arguments).map_err(chain)
    }

    fn render(&self, variant: Variant) -> Result<(), Failed> {
        let rendered = self.rendered(variant)?;
        let golden = self.golden(variant.chart).join(format!("{}.golden.yaml", variant.name));
        if self.bless {
            return fs::write(&golden, rendered).map_err(chain);
        }
        let committed = fs::read_to_string(&golden).map_err(chain)?;
        compare(&committed, &rendered, &golden)
    }

    /// The API reads every object strictly and admits it, without keeping it.
    fn validate(&self, variant: Variant) -> Result<(), Failed> {
        let rendered = self.rendered(variant)?;
        let kubectl = &self.site.kubectl;
        // The API admits no object of a namespace that it would only have created.
        let namespaces = authority::namespaces(variant.chart, &rendered);
        for name in &namespaces {
            kubectl.run(&["create", "namespace", name]).map_err(chain)?;
        }
        let admitted = kubectl.admit(&rendered);
        for name in &namespaces {
            kubectl.delete(&["namespace", name]).map_err(chain)?;
        }
        admitted.map_err(chain)
    }

    fn refuse(&self, chart: Chart, value: &str, named: &str) -> Result<(), Failed> {
        let values = self.golden(chart).join("defaults.values.yaml");
        match self.helm(chart).template(&values, &["--set", value]) {
            Ok(_) => Err("Helm rendered it".into()),
            // Helm's own words, without the call, which names the value anyway.
            Err(HelmError::Failed { message, .. }) if message.contains(named) => Ok(()),
            Err(error) => Err(format!("the refusal does not name `{named}`: {error}").into()),
        }
    }
}

fn compare(committed: &str, rendered: &str, golden: &Path) -> Result<(), Failed> {
    if committed == rendered {
        return Ok(());
    }
    let differing = committed.lines().zip(rendered.lines()).position(|(one, other)| one != other);
    let line = differing.unwrap_or_else(|| committed.lines().count().min(rendered.lines().count()));
    let show = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{} differs at line {}\n  committed: {}\n  rendered:  {}\nif the change is meant: cargo xtask conformance chart --bless",
        golden.display(),
        line + 1,
        show(committed),
        show(rendered)
    )
    .into())
}
