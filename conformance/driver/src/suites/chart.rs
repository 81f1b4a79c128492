//! The chart `charts/lanyard-node`, judged by Helm and by a Kubernetes API.

mod ownership;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use super::chain;
use crate::helm::{Helm, HelmError};
use crate::site::Site;

/// Values that are rendered and compared with the committed objects.
#[derive(Debug, Clone, Copy)]
struct Variant {
    /// The name of the two files: `NAME.values.yaml` and `NAME.golden.yaml`.
    name: &'static str,
    /// The version of the cluster.
    kubernetes: &'static str,
    /// An API that is there beside those of Kubernetes.
    api: Option<&'static str>,
}

const fn variant(name: &'static str, kubernetes: &'static str) -> Variant {
    Variant { name, kubernetes, api: None }
}

const VARIANTS: [Variant; 6] = [
    variant("defaults", "1.36.3"),
    variant("tokens-in-the-volume-context", "1.34.4"),
    variant("beside-another-driver", "1.36.3"),
    variant("least", "1.36.3"),
    Variant { name: "openshift", kubernetes: "1.36.3", api: Some("security.openshift.io/v1") },
    Variant {
        name: "everything",
        kubernetes: "1.36.3",
        api: Some("monitoring.coreos.com/v1/PodMonitor"),
    },
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

/// What the trials need.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) helm: Helm,
    pub(crate) site: Arc<Site>,
    /// `conformance/kubernetes/chart`.
    pub(crate) golden: PathBuf,
    /// Write what is rendered instead of comparing it.
    pub(crate) bless: bool,
}

pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    let stage = Arc::new(stage);
    let mut trials =
        vec![trial("chart::lint_finds_nothing", &stage, |stage| stage.helm.lint().map_err(chain))];
    for variant in VARIANTS {
        let name = variant.name.replace(['-', '.'], "_");
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
            stage.refuse(value, named)
        }));
    }
    trials.extend(ownership::trials(&stage));
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
    fn rendered(&self, variant: Variant) -> Result<String, Failed> {
        let values = self.golden.join(format!("{}.values.yaml", variant.name));
        let mut arguments = vec!["--kube-version", variant.kubernetes];
        if let Some(api) = variant.api {
            arguments.extend(["--api-versions", api]);
        }
        self.helm.template(&values, &arguments).map_err(chain)
    }

    fn render(&self, variant: Variant) -> Result<(), Failed> {
        let rendered = self.rendered(variant)?;
        let golden = self.golden.join(format!("{}.golden.yaml", variant.name));
        if self.bless {
            return fs::write(&golden, rendered).map_err(chain);
        }
        let committed = fs::read_to_string(&golden).map_err(chain)?;
        compare(&committed, &rendered, &golden)
    }

    /// The API reads every object strictly and admits it, without keeping it.
    fn validate(&self, variant: Variant) -> Result<(), Failed> {
        let rendered = self.rendered(variant)?;
        self.site.kubectl.admit(&rendered).map_err(chain)
    }

    fn refuse(&self, value: &str, named: &str) -> Result<(), Failed> {
        let values = self.golden.join("defaults.values.yaml");
        match self.helm.template(&values, &["--set", value]) {
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
