//! The workloads of a control plane: one Deployment for each row of the table of consumers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use lanyard_api::{CanaryStatusReport, HostedControlPlane};
use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::Consumer;
use serde_json::{Value, json};

use crate::hash::CONFIG_HASH_ANNOTATION;
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::desired_state::DesiredState;
use crate::hosted_cluster::encryption_config::KeyRole;
use crate::objects::{
    CLUSTER_LABEL, DesiredObjectInputs, MANAGED_BY_LABEL, MANAGED_BY_VALUE, cluster_label,
};
use crate::rollout::{CLASS_STAMP_ANNOTATION, class_stamp};

mod additions;
mod canary;
mod canary_call;
mod config_hash;
mod key_plugin;
#[cfg(test)]
mod tests;

use additions::DeploymentAdditions;
pub use canary_call::CanaryCalls;
pub(crate) use config_hash::mounts_any;

/// The name of the canaries' ServiceAccount and of its RoleBinding.
pub const CANARY_SERVICE_ACCOUNT: &str = "lanyard-canary";
/// HyperShift's Service that routes the pods of a control plane to private vaults.
pub const PRIVATE_ROUTER_SERVICE: &str = "private-router";
/// The ClusterRole of the canaries: `get` of pods and `patch` of their status.
pub const CANARY_CLUSTER_ROLE: &str = "lanyard-canary";

/// Annotation of the API server's pods: SHA-256 of the `EncryptionConfiguration`.
const ENCRYPTION_CONFIG_HASH_ANNOTATION: &str =
    "kube-apiserver.hypershift.openshift.io/encryption-config-hash";

/// Annotation of pods: the local volumes that do not keep the cluster autoscaler from draining a node.
const EVICTABLE_VOLUMES_ANNOTATION: &str =
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

/// The inputs from which a deployment is rendered.
#[derive(Clone, Copy)]
struct WorkloadContext<'a> {
    cluster: &'a ValidatedHostedCluster,
    inputs: &'a DesiredObjectInputs<'a>,
    desired: &'a DesiredState,
    encryption_config: Option<&'a Secret>,
}

/// Renders the deployments, by name.
pub(crate) fn desired_workloads(
    cluster: &ValidatedHostedCluster,
    desired: &DesiredState,
    encryption_config: Option<&Secret>,
    inputs: &DesiredObjectInputs<'_>,
) -> BTreeMap<String, Value> {
    let location = WorkloadContext { cluster, inputs, desired, encryption_config };
    let mut deployments = BTreeMap::new();
    for wiring in &desired.credential_injections {
        let mut names = vec![wiring.consumer.deployment];
        // Operators that render consumers themselves run only if they have a template.
        let operators = wiring.variables.iter().map(|variable| variable.deployment);
        names.extend(operators.filter(|name| inputs.templates.deployment(name).is_some()));
        for name in names {
            if !inputs.templates.is_excluded(name) && !deployments.contains_key(name) {
                deployments.insert(name.to_owned(), location.deployment(name));
            }
        }
    }
    deployments
}

impl<'a> WorkloadContext<'a> {
    fn canary_calls(self) -> CanaryCalls<'a> {
        let DesiredObjectInputs { templates, private_router, .. } = self.inputs;
        CanaryCalls { templates, private_router: *private_router }
    }

    /// Renders the deployment of this name: a template or a canary, with the credential injections.
    fn deployment(self, name: &str) -> Value {
        let wirings: Vec<_> = self
            .desired
            .credential_injections
            .iter()
            .filter(|wiring| wiring.consumer.deployment == name)
            .collect();
        let own = own_injection(&wirings, name);
        let template = self.inputs.templates.deployment(name);
        let mut additions = DeploymentAdditions::default();
        for wiring in &wirings {
            additions.add_injection(wiring);
        }
        additions.add_injected_variables(&self.desired.credential_injections, name);
        let mut deployment = match (template, own) {
            (Some(template), _) => {
                additions.add_component_variables(&wirings, self.inputs.vault_reader);
                template.clone()
            }
            (None, Some(own)) => self.canary_deployment(own, &wirings),
            (None, None) => json!({}),
        };
        if let Some(own) = own.filter(|own| own.component == Component::Kms) {
            self.add_key_plugins(&mut additions, own, template);
        }
        self.set_metadata(&mut deployment, name, own);
        let local_volumes = additions.apply_to(&mut deployment);
        allow_eviction(&mut deployment, &local_volumes);
        self.set_rollout_annotations(&mut deployment, &wirings);
        deployment
    }

    /// Sets name, namespace and labels.
    fn set_metadata(self, deployment: &mut Value, name: &str, own: Option<&CredentialInjection>) {
        deployment["apiVersion"] = json!("apps/v1");
        deployment["kind"] = json!("Deployment");
        deployment["metadata"]["name"] = json!(name);
        deployment["metadata"]["namespace"] = json!(self.desired.namespace);
        let labels = &mut deployment["spec"]["template"]["metadata"]["labels"];
        labels[MANAGED_BY_LABEL] = json!(MANAGED_BY_VALUE);
        labels[CLUSTER_LABEL] = json!(cluster_label(&self.cluster.name));
        labels[HostedControlPlane::CONTROL_PLANE_LABEL] = json!(self.desired.namespace);
        if let Some(own) = own {
            labels[CanaryStatusReport::COMPONENT_LABEL] = json!(own.component.name());
        }
    }

    /// Sets the annotations whose change restarts the pods.
    fn set_rollout_annotations(self, deployment: &mut Value, wirings: &[&CredentialInjection]) {
        let hash = self.config_hash(deployment);
        let annotations = &mut deployment["spec"]["template"]["metadata"]["annotations"];
        if !hash.is_empty() {
            annotations[CONFIG_HASH_ANNOTATION] = json!(hash);
        }
        if let Some(stamp) = class_stamp(wirings, self.desired, self.inputs.refresh) {
            annotations[CLASS_STAMP_ANNOTATION] = json!(stamp);
        }
        let keys = wirings.iter().any(|wiring| is_key_plugin(&wiring.consumer));
        if let Some(hash) = self.encryption_config_hash().filter(|_| keys) {
            annotations[ENCRYPTION_CONFIG_HASH_ANNOTATION] = json!(format!("sha256:{hash}"));
        }
    }
}

/// Adds the local volumes that lanyard has added to the volumes that the cluster autoscaler may drain.
/// The annotation of the template lists the template's own volumes.
fn allow_eviction(deployment: &mut Value, local_volumes: &[String]) {
    if local_volumes.is_empty() {
        return;
    }
    let annotations = &mut deployment["spec"]["template"]["metadata"]["annotations"];
    let annotation = &mut annotations[EVICTABLE_VOLUMES_ANNOTATION];
    let mut listed = annotation.as_str().unwrap_or_default().to_owned();
    for volume in local_volumes {
        if listed.split(',').any(|name| name.trim() == volume) {
            continue;
        }
        if !listed.is_empty() {
            listed.push(',');
        }
        listed.push_str(volume);
    }
    *annotation = json!(listed);
}

/// Returns the credential injection of the component that the deployment runs. Other components'
/// credentials may be mounted in the deployment, too.
fn own_injection<'a>(
    wirings: &[&'a CredentialInjection],
    name: &str,
) -> Option<&'a CredentialInjection> {
    let is_own = |wiring: &&&CredentialInjection| {
        wiring.component.consumers().first().is_some_and(|first| first.deployment == name)
    };
    wirings.iter().find(is_own).copied()
}

/// Returns whether the consumer is a KMS plugin, which runs as a sidecar of the API server.
fn is_key_plugin(consumer: &Consumer) -> bool {
    consumer.container == KeyRole::Active.container_name()
}

/// Returns the container that a canary replaces.
fn main_container(consumer: &Consumer) -> &'static str {
    if is_key_plugin(consumer) { consumer.deployment } else { consumer.container }
}
