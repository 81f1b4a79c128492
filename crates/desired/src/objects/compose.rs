//! Putting the objects together.

use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::Component;
use serde::Serialize;
use serde_json::Value;

use super::inputs::{Inputs, Mode, Owner};
use super::marks::{mark, stamp};
use super::{DesiredObject, ObjectKey, Step, Writer, control_plane};
use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired::{Desired, desired};
use crate::hosted_cluster::encryption_config::{desired_encryption_config, with_key_roles};
use crate::hosted_cluster::names::Names;
use crate::hosted_cluster::network_secret::NETWORK_SECRET;
use crate::workload::desired_workloads;

/// The deployments that the writer of HostedClusters writes; the other one writes all others.
const HOSTED_CLUSTER_DEPLOYMENTS: [&str; 2] = ["control-plane-operator", "capi-provider"];
/// The Secrets that the writer of HostedClusters writes.
const HOSTED_CLUSTER_SECRETS: [&str; 2] = ["azure-kms-config", NETWORK_SECRET];

/// Everything that should be there for a hosted cluster, in the order in which it is written.
///
/// An object that both writers write is there twice, once for each: the same but for the mark of
/// its state, which the writer of control planes alone sets.
pub fn desired_objects(
    cluster: &ValidatedHostedCluster,
    inputs: &Inputs<'_>,
) -> Vec<DesiredObject> {
    if inputs.mode == Mode::IdentityOnly {
        return Vec::new();
    }
    let mut composition = Composition { cluster, objects: Vec::new() };
    composition.add(
        Writer::HostedCluster,
        Step::Namespace,
        control_plane::namespace(cluster, inputs),
    );
    composition.add(
        Writer::HostedCluster,
        Step::ControlPlane,
        control_plane::hosted_control_plane(cluster, inputs.wire),
    );
    if inputs.owner != Owner::NotYet {
        composition.owned(&with_key_roles(cluster, inputs.wire), inputs);
    }
    let mut objects = composition.objects;
    objects.sort_by(|one, other| {
        (one.step, &one.key, one.writer).cmp(&(other.step, &other.key, other.writer))
    });
    objects
}

/// Who writes a deployment.
pub(crate) fn deployment_writer(name: &str) -> Writer {
    if HOSTED_CLUSTER_DEPLOYMENTS.contains(&name) {
        Writer::HostedCluster
    } else {
        Writer::ControlPlane
    }
}

/// Who writes the class of a component: whoever writes a deployment that mounts it. That is both
/// for the key's identity, because the control plane operator tries the key, too.
pub(crate) fn class_writers(component: Component) -> Vec<Writer> {
    let mut writers: Vec<_> = component
        .consumers()
        .iter()
        .map(|consumer| deployment_writer(consumer.deployment))
        .collect();
    writers.sort_unstable();
    writers.dedup();
    writers
}

struct Composition<'a> {
    cluster: &'a ValidatedHostedCluster,
    objects: Vec<DesiredObject>,
}

impl Composition<'_> {
    /// What the control plane owns.
    fn owned(&mut self, cluster: &ValidatedHostedCluster, inputs: &Inputs<'_>) {
        let names =
            Names { vault_reader: inputs.vault_reader, owner: inputs.owner.reference(cluster) };
        let owners = to_value(&names.owner.iter().collect::<Vec<_>>());
        let desired = desired(cluster, &names);
        for mut value in
            [control_plane::canary_account(cluster), control_plane::canary_binding(cluster)]
        {
            value["metadata"]["ownerReferences"] = owners.clone();
            self.add(Writer::HostedCluster, Step::Access, value);
        }
        self.classes(&desired);
        for map in &desired.config_maps {
            self.add(Writer::ControlPlane, Step::Configuration, to_value(map));
        }
        let encryption_config = desired_encryption_config(cluster, &names);
        for secret in desired.secrets.iter().chain(&encryption_config) {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            let writer = if HOSTED_CLUSTER_SECRETS.contains(&name) {
                Writer::HostedCluster
            } else {
                Writer::ControlPlane
            };
            self.add(writer, Step::Configuration, to_value(secret));
        }
        if let Some(identity) = &desired.cluster_identity {
            self.add(Writer::HostedCluster, Step::Configuration, to_value(identity));
        }
        let workloads = desired_workloads(cluster, &desired, encryption_config.as_ref(), inputs);
        for (name, mut value) in workloads {
            value["metadata"]["ownerReferences"] = owners.clone();
            self.add(deployment_writer(&name), Step::Workload, value);
        }
    }

    fn classes(&mut self, desired: &Desired) {
        let cluster = self.cluster;
        let components = cluster.components().map(|(component, _)| component);
        for (component, class) in components.zip(&desired.secret_provider_classes) {
            self.class(component, class);
        }
    }

    fn class(&mut self, component: Component, class: &SecretProviderClass) {
        let writers = class_writers(component);
        let shared = writers.len() > 1;
        for writer in writers {
            let Some(mut object) = self.object(writer, Step::Configuration, to_value(class)) else {
                continue;
            };
            object.follows_reader = shared && writer == Writer::ControlPlane;
            if !shared || object.follows_reader {
                stamp(&mut object.value);
            }
            self.objects.push(object);
        }
    }

    fn add(&mut self, writer: Writer, step: Step, value: Value) {
        if let Some(mut object) = self.object(writer, step, value) {
            stamp(&mut object.value);
            self.objects.push(object);
        }
    }

    fn object(&self, writer: Writer, step: Step, mut value: Value) -> Option<DesiredObject> {
        mark(&mut value, self.cluster);
        let key = ObjectKey::of(&value)?;
        Some(DesiredObject { key, writer, step, value, follows_reader: false })
    }
}

/// Objects of these types have a JSON form.
fn to_value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
