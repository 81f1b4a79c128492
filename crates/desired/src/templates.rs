//! Workload templates: the images, commands and placement of the components of a control plane.
//!
//! A component without a template runs as a canary: a small pod with the component's volumes,
//! mounts, variables and configurations, which continuously proves the component's identity. A
//! template is a Deployment; rendering adds the credential injection to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use lanyard_vocabulary::{Component, EntraClientId};
use serde_json::{Map, Value, json};

use crate::container_settings::VAULT_READER;
use crate::problem::{ValidationProblem, ValidationProblems};

pub(crate) mod api_server_flags;
mod deployment;
mod json_values;
mod parse;
pub(crate) mod reserved_names;
#[cfg(test)]
mod tests;

/// The workload templates of a control plane's components.
///
/// ```
/// use lanyard_desired::templates::WorkloadTemplates;
///
/// let templates = WorkloadTemplates::parse("canary: {image: registry.example.com/lanyard:1}")?;
/// assert_eq!(templates.canary.image, "registry.example.com/lanyard:1");
/// let problems = WorkloadTemplates::parse("canary: {imag: x, replicas: many}").unwrap_err();
/// assert_eq!(problems.iter().count(), 2);
/// # Ok::<(), lanyard_desired::ValidationProblems>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadTemplates {
    /// The settings of canaries.
    pub canary: CanaryTemplate,
    /// Validated Deployments of the components that do not run as canaries, by name.
    deployments: BTreeMap<String, Value>,
    /// The names of deployments that lanyard does not create (`without`).
    excluded_deployments: BTreeSet<String>,
    /// The pod security standard of the namespace, if it differs from that of the canaries.
    pod_security: Option<String>,
}

/// The settings of canaries.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CanaryTemplate {
    /// The image, which must contain `lanyard`.
    pub image: String,
    /// The command; if empty, the entry point of the image.
    pub command: Vec<String>,
    /// `Always`, `IfNotPresent` or `Never`; `None` uses the default of the API server.
    pub image_pull_policy: Option<String>,
    /// The names of the image pull Secrets.
    pub image_pull_secrets: Vec<String>,
    /// The interval between two calls of a canary, such as `60s`.
    pub interval: String,
    /// The interval between two runs of the additional probes, such as `10m`.
    pub probe_interval: String,
    /// The address on which canaries and KMS plugins serve health and metrics. The unspecified
    /// address means every address of the pod.
    pub metrics_address: IpAddr,
    /// The port of health and metrics. With `host_network`, each component has its own port: this
    /// one plus the component's index in the order of the API.
    pub metrics_port: u16,
    /// Whether pods use the network of the node.
    pub host_network: bool,
    /// The number of replicas of each component.
    pub replicas: u32,
    /// The requests that replace the default proof call of a component, as `GET https://…`; an
    /// empty string disables the call.
    pub calls: BTreeMap<Component, String>,
    /// The `resources` of the container.
    pub resources: Value,
    /// Additional environment variables of the container.
    pub env: Vec<Value>,
    /// Additional volumes of the pod.
    pub volumes: Vec<Value>,
    /// Additional volume mounts of the container.
    pub volume_mounts: Vec<Value>,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Scheduling fields of the pod spec: node selector, tolerations, affinity and priority class.
    pub placement: Map<String, Value>,
}

impl Default for CanaryTemplate {
    /// The default image has the version of this program and no registry, so a deployment must set
    /// the registry.
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

/// Returns a container of a template.
pub(crate) fn template_container<'a>(template: &'a Value, name: &str) -> Option<&'a Value> {
    let containers = template.pointer("/spec/template/spec/containers")?.as_array()?;
    containers.iter().find(|it| it.get("name").and_then(Value::as_str) == Some(name))
}

impl CanaryTemplate {
    /// Returns the address of the HTTP endpoints, unless it is the unspecified address. The
    /// kubelet's probes must use the same address.
    pub(crate) fn specific_metrics_address(&self) -> Option<IpAddr> {
        Some(self.metrics_address).filter(|address| !address.is_unspecified())
    }

    /// Builds an HTTP probe.
    pub(crate) fn http_probe(&self, path: &str, port: u16) -> Value {
        let mut get = json!({"path": path, "port": port});
        if let Some(address) = self.specific_metrics_address() {
            get["host"] = json!(address);
        }
        json!({"httpGet": get})
    }
}

impl WorkloadTemplates {
    /// Parses templates from YAML or JSON.
    ///
    /// # Errors
    /// Returns every problem: unknown fields, fields of another type, deployments that belong to no
    /// component, missing containers, and volumes, mounts and variables with reserved names.
    pub fn parse(text: &str) -> Result<Self, ValidationProblems> {
        parse::parse_templates(text, Map::new())
    }

    /// Parses templates and replaces fields of `canary`; `calls` is merged entry by entry.
    /// Command-line flags use this to override a file, and are validated by the same rules.
    ///
    /// # Errors
    /// Fails in the cases of [`WorkloadTemplates::parse`].
    pub fn parse_with_canary_overrides(
        text: &str,
        canary: Map<String, Value>,
    ) -> Result<Self, ValidationProblems> {
        parse::parse_templates(text, canary)
    }

    /// Returns the template of a deployment; `None` if it runs as a canary.
    pub fn deployment(&self, name: &str) -> Option<&Value> {
        self.deployments.get(name)
    }

    /// Lints templates if no vault reader is configured: components that create
    /// SecretProviderClasses or nodes themselves then lack its client id. HyperShift refuses to
    /// create `capi-provider` in this case.
    pub fn lint_vault_reader(&self, reader: Option<EntraClientId>) -> ValidationProblems {
        let mut problems = ValidationProblems::default();
        let deployments = self.deployments.keys().filter(|_| reader.is_none());
        for name in deployments {
            let claims = reserved_names::reserved_names(name).unwrap_or_default();
            for (container, variables) in claims.variables {
                if variables.contains(VAULT_READER) {
                    problems.lint(
                        format!("deployments.{name}"),
                        format!(
                            "`{container}` lacks {VAULT_READER}, the identity that reads the vault"
                        ),
                        "give --vault-reader",
                    );
                }
            }
        }
        problems
    }

    /// Lints a template of the API server that does not read the `EncryptionConfiguration`. It
    /// concerns every HostedCluster with an encryption key.
    pub fn lint_encryption_flags(&self) -> Option<ValidationProblem> {
        let name = Component::Kms.consumers().first()?.deployment;
        let template = self.deployment(name)?;
        let path = format!("deployments.{name}.spec.template.spec.containers[name={name}]");
        api_server_flags::lint_encryption_flags(template_container(template, name)?, &path)
    }

    /// Returns whether lanyard does not create the deployment.
    pub fn is_excluded(&self, name: &str) -> bool {
        self.excluded_deployments.contains(name)
    }

    /// Returns the pod security standard of the workloads' namespace.
    pub fn pod_security(&self) -> &str {
        match &self.pod_security {
            Some(standard) => standard,
            None if self.canary.host_network => "privileged",
            None => "restricted",
        }
    }
}
