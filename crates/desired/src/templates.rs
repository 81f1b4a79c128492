//! How the components of a control plane run: the images, commands and places of their workloads.
//!
//! Without a template a component is a canary: a small pod with the volumes, mounts, variables and
//! configurations of the component, which keeps proving its identity. A template is a Deployment;
//! what brings the identity is added to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use lanyard_vocabulary::{Component, EntraClientId};
use serde_json::{Map, Value, json};

use crate::problem::ValidationProblems;
use crate::workload::VAULT_READER;

mod deployment;
mod parse;
pub(crate) mod reserved_names;
#[cfg(test)]
mod tests;

/// How the components of a control plane run.
///
/// ```
/// use lanyard_desired::templates::WorkloadTemplates;
///
/// let templates = WorkloadTemplates::parse("canary: {image: registry.example.com/lanyard:1}")?;
/// assert_eq!(templates.canary.image, "registry.example.com/lanyard:1");
/// let problems = WorkloadTemplates::parse("canary: {imag: x, replicas: many}").unwrap_err();
/// assert_eq!(problems.iter().count(), 2);
/// # Ok::<(), lanyard_desired::Problems>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadTemplates {
    /// How canaries run.
    pub canary: CanaryTemplate,
    /// Deployments of the components that are no canaries, by name, checked.
    deployments: BTreeMap<String, Value>,
    /// Deployments that somebody else makes.
    excluded_deployments: BTreeSet<String>,
    /// The pod security standard of the namespace, where it is not that of the canaries.
    pod_security: Option<String>,
}

/// How canaries run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CanaryTemplate {
    /// The image, which holds `lanyard`.
    pub image: String,
    /// The command; empty for the entry point of the image.
    pub command: Vec<String>,
    /// `Always`, `IfNotPresent` or `Never`; nothing leaves it to the API server.
    pub image_pull_policy: Option<String>,
    /// The names of the Secrets with which the image is pulled.
    pub image_pull_secrets: Vec<String>,
    /// How often a canary makes its call, such as `60s`.
    pub interval: String,
    /// How often it probes beyond the call, such as `10m`.
    pub probe_interval: String,
    /// Where health and metrics are served, by canaries and by the plugins beside them: every
    /// address of the pod, unless this is another one than the unspecified.
    pub metrics_address: IpAddr,
    /// The port of health and metrics. In the network of the node each component has its own:
    /// this one and its place in the order of the API.
    pub metrics_port: u16,
    /// Whether pods are in the network of the node.
    pub host_network: bool,
    /// How many pods each component has.
    pub replicas: u32,
    /// What a component calls instead of what its role grants by the table, as `GET https://…`; an
    /// empty text is no call.
    pub calls: BTreeMap<Component, String>,
    /// `resources` of the container.
    pub resources: Value,
    /// Further variables of the container.
    pub env: Vec<Value>,
    /// Further volumes of the pod.
    pub volumes: Vec<Value>,
    /// Further mounts of the container.
    pub volume_mounts: Vec<Value>,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Where the pod may run, as fields of its spec: node selector, tolerations, affinity, priority
    /// class.
    pub placement: Map<String, Value>,
}

impl Default for CanaryTemplate {
    /// The image has the version of this program and no registry: whoever deploys says where it is.
    fn default() -> Self {
        Self {
            image: concat!("lanyard:", env!("CARGO_PKG_VERSION")).to_owned(),
            command: Vec::new(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            interval: "60s".to_owned(),
            probe_interval: "10m".to_owned(),
            metrics_address: Ipv4Addr::UNSPECIFIED.into(),
            metrics_port: 9464,
            host_network: false,
            replicas: 1,
            calls: BTreeMap::new(),
            resources: json!({
                "requests": {"cpu": "5m", "memory": "24Mi"},
                "limits": {"memory": "96Mi"},
            }),
            env: Vec::new(),
            volumes: Vec::new(),
            volume_mounts: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            placement: Map::new(),
        }
    }
}

impl CanaryTemplate {
    /// The address of the pages, where it is a certain one. The kubelet has to ask there, too.
    pub(crate) fn specific_metrics_address(&self) -> Option<IpAddr> {
        Some(self.metrics_address).filter(|address| !address.is_unspecified())
    }

    /// A probe of a page.
    pub(crate) fn http_probe(&self, path: &str, port: u16) -> Value {
        let mut get = json!({"path": path, "port": port});
        if let Some(address) = self.specific_metrics_address() {
            get["host"] = json!(address);
        }
        json!({"httpGet": get})
    }
}

impl WorkloadTemplates {
    /// Reads templates out of YAML or JSON.
    ///
    /// # Errors
    /// Every problem: fields that are not known or of another type, deployments that are not of a
    /// component, containers that are missing, and volumes, mounts and variables that are taken.
    pub fn parse(text: &str) -> Result<Self, ValidationProblems> {
        parse::parse_templates(text, Map::new())
    }

    /// The same with these fields of `canary` in the place of those of the text, of its `calls` each
    /// by itself: flags win over a file, and are held to the same rules.
    ///
    /// # Errors
    /// As [`WorkloadTemplates::parse`].
    pub fn parse_with_canary_overrides(
        text: &str,
        canary: Map<String, Value>,
    ) -> Result<Self, ValidationProblems> {
        parse::parse_templates(text, canary)
    }

    /// The template of a deployment, if it is no canary.
    pub fn deployment(&self, name: &str) -> Option<&Value> {
        self.deployments.get(name)
    }

    /// What somebody should look at who gives no identity that reads the vault: the components that
    /// make classes or nodes themselves are not told one. The reference refuses to make
    /// `capi-provider` then.
    pub fn lint_vault_reader(&self, reader: Option<EntraClientId>) -> ValidationProblems {
        let mut problems = ValidationProblems::default();
        let deployments = self.deployments.keys().filter(|_| reader.is_none());
        for name in deployments {
            let claims = reserved_names::reserved_names(name).unwrap_or_default();
            for (container, variables) in claims.variables {
                if variables.contains(VAULT_READER) {
                    problems.lint(
                        format!("deployments.{name}"),
                        format!("`{container}` is not told {VAULT_READER}, the identity that reads the vault"),
                        "give --vault-reader",
                    );
                }
            }
        }
        problems
    }

    /// Whether somebody else makes the deployment.
    pub fn is_excluded(&self, name: &str) -> bool {
        self.excluded_deployments.contains(name)
    }

    /// The pod security standard that the workloads keep.
    pub fn pod_security(&self) -> &str {
        match &self.pod_security {
            Some(standard) => standard,
            None if self.canary.host_network => "privileged",
            None => "restricted",
        }
    }
}
