//! The workloads of a control plane: a deployment for each row of the table of consumers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use lanyard_api::{CanaryFacts, HostedControlPlane};
use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::{ConfigMount, Consumer, Told};
use serde_json::{Value, json};

use crate::hash::CONFIG_HASH;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired::Desired;
use crate::hosted_cluster::encryption_config::{
    ENCRYPTION_CONFIG, ENCRYPTION_CONFIG_SECRET, KeyPart,
};
use crate::hosted_cluster::wiring::Wiring;
use crate::objects::{CLUSTER_LABEL, Inputs, MANAGED_BY, MANAGED_BY_LABEL, cluster_label};
use crate::roll::{CLASS_STAMP, class_stamp};

mod additions;
mod canary;
mod canary_call;
mod key_plugin;
mod mounted;
#[cfg(test)]
mod tests;

use additions::Additions;
pub use canary_call::CanaryCalls;

/// The ServiceAccount of canaries, and the RoleBinding that gives it its rights.
pub const CANARY_ACCOUNT: &str = "lanyard-canary";
/// The Service of the reference that leads the pods of a control plane to private vaults.
pub const PRIVATE_ROUTER: &str = "private-router";
/// The ClusterRole with the rights of canaries: `get` of pods and `patch` of their status.
pub const CANARY_ROLE: &str = "lanyard-canary";

/// Variable of the storage drivers: the path of their cloud configuration.
pub(crate) const CREDENTIAL_FILE: &str = "AZURE_CREDENTIAL_FILE";
/// Variable of the reference's operators: the client id that reads the vault.
pub(crate) const VAULT_READER: &str = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID";
/// Variable of the reference's operators: which service manages the management cluster.
pub(crate) const MANAGED_SERVICE: &str = "MANAGED_SERVICE";

/// Where the plugins of the keys listen.
pub(crate) const KMS_SOCKET: ConfigMount =
    ConfigMount { volume: "kms-socket", directory: "/opt", file: "" };
/// Where the API server reads which keys encrypt.
pub(crate) const ENCRYPTION_MOUNT: ConfigMount = ConfigMount {
    volume: ENCRYPTION_CONFIG_SECRET,
    directory: "/etc/kubernetes/secret-encryption",
    file: ENCRYPTION_CONFIG,
};
/// Annotation of the API server's pods: SHA-256 of the configuration with the keys.
const ENCRYPTION_CONFIG_HASH: &str =
    "kube-apiserver.hypershift.openshift.io/encryption-config-hash";

/// What a deployment is made from.
#[derive(Clone, Copy)]
struct Site<'a> {
    cluster: &'a ValidatedHostedCluster,
    inputs: &'a Inputs<'a>,
    desired: &'a Desired,
    encryption_config: Option<&'a Secret>,
}

/// The deployments, by name.
pub(crate) fn desired_workloads(
    cluster: &ValidatedHostedCluster,
    desired: &Desired,
    encryption_config: Option<&Secret>,
    inputs: &Inputs<'_>,
) -> BTreeMap<String, Value> {
    let site = Site { cluster, inputs, desired, encryption_config };
    let mut deployments = BTreeMap::new();
    for wiring in &desired.wirings {
        let mut names = vec![wiring.consumer.deployment];
        // The operators that render consumers run where there is a template for them.
        let operators = wiring.variables.iter().map(|variable| variable.deployment);
        names.extend(operators.filter(|name| inputs.templates.deployment(name).is_some()));
        for name in names {
            if !inputs.templates.is_left_out(name) && !deployments.contains_key(name) {
                deployments.insert(name.to_owned(), site.deployment(name));
            }
        }
    }
    deployments
}

impl<'a> Site<'a> {
    fn canary_calls(self) -> CanaryCalls<'a> {
        let Inputs { templates, private_router, .. } = self.inputs;
        CanaryCalls { templates, private_router: *private_router }
    }

    /// The deployment of this name: a template or a canary, and what brings the identities.
    fn deployment(self, name: &str) -> Value {
        let wirings: Vec<_> = self
            .desired
            .wirings
            .iter()
            .filter(|wiring| wiring.consumer.deployment == name)
            .collect();
        let own = own_wiring(&wirings, name);
        let template = self.inputs.templates.deployment(name);
        let mut additions = Additions::default();
        for wiring in &wirings {
            additions.wiring(wiring);
        }
        additions.variables(&self.desired.wirings, name);
        let mut deployment = match (template, own) {
            (Some(template), _) => {
                additions.operator_variables(&wirings, self.inputs.vault_reader);
                template.clone()
            }
            (None, Some(own)) => self.canary(own, &wirings),
            (None, None) => json!({}),
        };
        if let Some(own) = own.filter(|own| own.component == Component::Kms) {
            self.add_key_plugins(&mut additions, own, template);
        }
        self.identify(&mut deployment, name, own);
        additions.apply(&mut deployment);
        self.stamp(&mut deployment, &wirings);
        deployment
    }

    /// Name, place and labels.
    fn identify(self, deployment: &mut Value, name: &str, own: Option<&Wiring>) {
        deployment["apiVersion"] = json!("apps/v1");
        deployment["kind"] = json!("Deployment");
        deployment["metadata"]["name"] = json!(name);
        deployment["metadata"]["namespace"] = json!(self.desired.namespace);
        let labels = &mut deployment["spec"]["template"]["metadata"]["labels"];
        labels[MANAGED_BY_LABEL] = json!(MANAGED_BY);
        labels[CLUSTER_LABEL] = json!(cluster_label(&self.cluster.name));
        labels[HostedControlPlane::CONTROL_PLANE_LABEL] = json!(self.desired.namespace);
        if let Some(own) = own {
            labels[CanaryFacts::COMPONENT_LABEL] = json!(own.component.name());
        }
    }

    /// What makes pods start anew when it changes.
    fn stamp(self, deployment: &mut Value, wirings: &[&Wiring]) {
        let hash = self.config_hash(deployment);
        let annotations = &mut deployment["spec"]["template"]["metadata"]["annotations"];
        if !hash.is_empty() {
            annotations[CONFIG_HASH] = json!(hash);
        }
        if let Some(stamp) = class_stamp(wirings, self.desired, self.inputs.refresh) {
            annotations[CLASS_STAMP] = json!(stamp);
        }
        let keys = wirings.iter().any(|wiring| is_key_plugin(&wiring.consumer));
        if let Some(hash) = self.encryption_hash().filter(|_| keys) {
            annotations[ENCRYPTION_CONFIG_HASH] = json!(format!("sha256:{hash}"));
        }
    }
}

/// The wiring of the component that the deployment runs; others may mount their credential there,
/// too.
fn own_wiring<'a>(wirings: &[&'a Wiring], name: &str) -> Option<&'a Wiring> {
    let is_own = |wiring: &&&Wiring| {
        wiring.component.consumers().first().is_some_and(|first| first.deployment == name)
    };
    wirings.iter().find(is_own).copied()
}

/// Whether the consumer is the plugin of a key, which runs beside the API server.
fn is_key_plugin(consumer: &Consumer) -> bool {
    consumer.container == KeyPart::Active.container()
}

/// The container in which a canary stands for the component.
fn main_container(consumer: &Consumer) -> &'static str {
    if is_key_plugin(consumer) { consumer.deployment } else { consumer.container }
}

/// The Secret with a consumer's cloud configuration, and where the consumer finds it.
pub(crate) fn cloud_config(consumer: &Consumer) -> Option<(&'static str, ConfigMount)> {
    match consumer.told {
        Told::CloudConfig { secret, mount } | Told::StorageOperator { secret, mount, .. } => {
            Some((secret, mount))
        }
        _ => None,
    }
}
