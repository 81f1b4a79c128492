//! Composition of all desired objects of a hosted cluster.

use std::collections::BTreeSet;

use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::Component;
use serde::Serialize;
use serde_json::Value;

use super::inputs::{ControlPlaneOwner, DesiredObjectInputs, OperatorMode};
use super::ownership_marks::{add_ownership_marks, set_desired_state_hash};
use super::{ApplyStep, DesiredObject, ObjectKey, ObjectWriter, control_plane};
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired_state::{DesiredState, desired_state};
use crate::hosted_cluster::encryption_config::{desired_encryption_config, with_key_roles};
use crate::hosted_cluster::network_secret::NETWORK_SECRET;
use crate::hosted_cluster::render_context::RenderContext;
use crate::workload::{desired_workloads, mounts_any};

/// The deployments of [`ObjectWriter::HostedCluster`]; [`ObjectWriter::ControlPlane`] writes all
/// others.
const HOSTED_CLUSTER_DEPLOYMENTS: [&str; 2] = ["control-plane-operator", "capi-provider"];
/// The Secrets of [`ObjectWriter::HostedCluster`].
const HOSTED_CLUSTER_SECRETS: [&str; 2] = ["azure-kms-config", NETWORK_SECRET];

/// Returns all desired objects of a hosted cluster, in the order in which they are applied, without
/// the [`unrendered_objects`].
///
/// An object that both writers apply appears twice, once per writer. The two differ only in the
/// desired-state hash, which only [`ObjectWriter::ControlPlane`] sets.
pub fn desired_objects(
    cluster: &ValidatedHostedCluster,
    inputs: &DesiredObjectInputs<'_>,
) -> Vec<DesiredObject> {
    let mut objects = compose(cluster, inputs).objects;
    objects.sort_by(|one, other| {
        (one.step, &one.key, one.writer).cmp(&(other.step, &other.key, other.writer))
    });
    objects
}

/// Returns the objects that are desired and cannot be rendered: objects that contain an unusable
/// value of the HostedCluster ([`ValidatedWithLints::object_errors`]), and deployments that mount
/// such an object. Existing ones stay as they are.
///
/// [`ValidatedWithLints::object_errors`]: crate::ValidatedWithLints::object_errors
pub fn unrendered_objects(
    cluster: &ValidatedHostedCluster,
    inputs: &DesiredObjectInputs<'_>,
) -> BTreeSet<ObjectKey> {
    let azure = &cluster.azure;
    let is_complete =
        azure.vnet.is_some() && azure.security_group.is_some() && azure.health_probe.is_some();
    if is_complete { BTreeSet::new() } else { compose(cluster, inputs).unrendered }
}

fn compose<'a>(
    cluster: &'a ValidatedHostedCluster,
    inputs: &DesiredObjectInputs<'_>,
) -> DesiredObjectsBuilder<'a> {
    let mut composition =
        DesiredObjectsBuilder { cluster, objects: Vec::new(), unrendered: BTreeSet::new() };
    if inputs.mode == OperatorMode::IdentityOnly {
        return composition;
    }
    composition.add_object(
        ObjectWriter::HostedCluster,
        ApplyStep::Namespace,
        control_plane::desired_namespace(cluster, inputs),
    );
    composition.add_object(
        ObjectWriter::HostedCluster,
        ApplyStep::ControlPlane,
        control_plane::desired_hosted_control_plane(cluster, inputs.wire),
    );
    if inputs.owner != ControlPlaneOwner::Absent {
        composition.add_owned_objects(&with_key_roles(cluster, inputs.wire), inputs);
    }
    composition
}

/// Returns the writer of a deployment.
pub(crate) fn deployment_writer(name: &str) -> ObjectWriter {
    if HOSTED_CLUSTER_DEPLOYMENTS.contains(&name) {
        ObjectWriter::HostedCluster
    } else {
        ObjectWriter::ControlPlane
    }
}

/// Returns the writers of a component's class: the writers of the deployments that mount it. The
/// class of the KMS identity has both writers, because the control plane operator probes the key,
/// too.
pub(crate) fn class_writers(component: Component) -> Vec<ObjectWriter> {
    let mut writers: Vec<_> = component
        .consumers()
        .iter()
        .map(|consumer| deployment_writer(consumer.deployment))
        .collect();
    writers.sort_unstable();
    writers.dedup();
    writers
}

struct DesiredObjectsBuilder<'a> {
    cluster: &'a ValidatedHostedCluster,
    objects: Vec<DesiredObject>,
    unrendered: BTreeSet<ObjectKey>,
}

impl DesiredObjectsBuilder<'_> {
    /// Adds the objects that the HostedControlPlane owns.
    fn add_owned_objects(
        &mut self,
        cluster: &ValidatedHostedCluster,
        inputs: &DesiredObjectInputs<'_>,
    ) {
        let names = RenderContext {
            vault_reader: inputs.vault_reader,
            owner: inputs.owner.owner_reference(cluster),
            control_plane_endpoint: inputs.control_plane_endpoint.clone(),
            kms_api_version: inputs.kms_api_version,
        };
        let owners = to_value(&names.owner.iter().collect::<Vec<_>>());
        let desired = desired_state(cluster, &names);
        for mut value in [
            control_plane::canary_service_account(cluster),
            control_plane::canary_role_binding(cluster),
        ] {
            value["metadata"]["ownerReferences"] = owners.clone();
            self.add_object(ObjectWriter::HostedCluster, ApplyStep::Access, value);
        }
        self.add_classes(&desired);
        for map in &desired.config_maps {
            self.add_object(ObjectWriter::ControlPlane, ApplyStep::Configuration, to_value(map));
        }
        let encryption_config = desired_encryption_config(cluster, &names);
        for secret in desired.secrets.iter().chain(&encryption_config) {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            let writer = if HOSTED_CLUSTER_SECRETS.contains(&name) {
                ObjectWriter::HostedCluster
            } else {
                ObjectWriter::ControlPlane
            };
            self.add_object(writer, ApplyStep::Configuration, to_value(secret));
        }
        let cluster_api = [
            desired.cluster_identity.as_ref().map(to_value),
            desired.azure_cluster.as_ref().map(to_value),
        ];
        for value in cluster_api.into_iter().flatten() {
            self.add_object(ObjectWriter::HostedCluster, ApplyStep::Configuration, value);
        }
        self.unrendered.extend(desired.unrendered.iter().cloned());
        let workloads = desired_workloads(cluster, &desired, encryption_config.as_ref(), inputs);
        for (name, mut value) in workloads {
            value["metadata"]["ownerReferences"] = owners.clone();
            if mounts_any(&value, &desired.unrendered) {
                // Without its configuration, the pods would restart and not start again.
                self.unrendered.extend(ObjectKey::from_json(&value));
            } else {
                self.add_object(deployment_writer(&name), ApplyStep::Workload, value);
            }
        }
    }

    fn add_classes(&mut self, desired: &DesiredState) {
        let cluster = self.cluster;
        let components = cluster.running_components().map(|(component, _)| component);
        for (component, class) in components.zip(&desired.secret_provider_classes) {
            self.add_class(component, class);
        }
    }

    fn add_class(&mut self, component: Component, class: &SecretProviderClass) {
        let writers = class_writers(component);
        let shared = writers.len() > 1;
        for writer in writers {
            let Some(mut object) =
                self.build_object(writer, ApplyStep::Configuration, to_value(class))
            else {
                continue;
            };
            object.keeps_live_vault_reader = shared && writer == ObjectWriter::ControlPlane;
            if !shared || object.keeps_live_vault_reader {
                set_desired_state_hash(&mut object.value);
            }
            self.objects.push(object);
        }
    }

    fn add_object(&mut self, writer: ObjectWriter, step: ApplyStep, value: Value) {
        if let Some(mut object) = self.build_object(writer, step, value) {
            set_desired_state_hash(&mut object.value);
            self.objects.push(object);
        }
    }

    fn build_object(
        &self,
        writer: ObjectWriter,
        step: ApplyStep,
        mut value: Value,
    ) -> Option<DesiredObject> {
        add_ownership_marks(&mut value, self.cluster);
        let key = ObjectKey::from_json(&value)?;
        Some(DesiredObject { key, writer, step, value, keeps_live_vault_reader: false })
    }
}

/// Serializing these types to JSON cannot fail.
fn to_value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
