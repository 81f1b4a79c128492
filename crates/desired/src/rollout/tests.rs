use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{CONTROL_PLANE, KMS, example_inputs, example_with_changes, validated_cluster};
use crate::objects::{DesiredObjectInputs, OwnedKind, desired_objects};
use crate::templates::WorkloadTemplates;

/// Returns the deployments whose pod template changes with the cluster.
fn restarted_deployments(
    changes: &[(String, Value)],
    reader: bool,
    refresh: VolumeRefresh,
) -> Vec<String> {
    let templates = WorkloadTemplates::default();
    let pods = |changes: &[(String, Value)], reader: bool| {
        let wire = example_with_changes(changes);
        let mut inputs = DesiredObjectInputs { refresh, ..example_inputs(&wire, &templates) };
        if reader {
            inputs.vault_reader = "0b1e5a3c-7d24-4f69-8e0a-c5d9f1b37a62".parse().ok();
        }
        let objects = desired_objects(&validated_cluster(&wire), &inputs);
        let deployments =
            objects.into_iter().filter(|object| object.key.kind == OwnedKind::Deployment);
        deployments
            .map(|object| (object.key.name, object.value["spec"]["template"].clone()))
            .collect::<Vec<_>>()
    };
    let (before, after) = (pods(&[], false), pods(changes, reader));
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
    changed.map(|((name, _), _)| name.clone()).collect()
}

fn identity_change(component: Component, field: &str, value: &str) -> Vec<(String, Value)> {
    let parent = if component == Component::Kms { KMS } else { CONTROL_PLANE };
    vec![(format!("{parent}/{component}/{field}"), json!(value))]
}

fn consumer_deployments(component: Component) -> Vec<String> {
    let mut names: Vec<_> = component.consumers().iter().map(|c| c.deployment.to_owned()).collect();
    names.sort();
    names
}

const NO_DEPLOYMENTS: [&str; 0] = [];

#[test]
fn changed_secret_name_restarts_only_its_consumers() {
    for component in Component::ALL {
        let changes = identity_change(component, "credentialsSecretName", "another");
        let rolled = restarted_deployments(&changes, false, VolumeRefresh::Polled);
        assert_eq!(rolled, consumer_deployments(component), "{component}");
    }
}

#[test]
fn changes_without_a_new_path_restart_no_pod() {
    for component in Component::ALL {
        let changes = identity_change(component, "objectEncoding", "hex");
        assert_eq!(
            restarted_deployments(&changes, false, VolumeRefresh::Polled),
            NO_DEPLOYMENTS,
            "{component}"
        );
    }
    let vault = format!("{CONTROL_PLANE}/managedIdentitiesKeyVault");
    for field in ["name", "tenantID"] {
        let changes = vec![(format!("{vault}/{field}"), json!("another"))];
        assert_eq!(
            restarted_deployments(&changes, false, VolumeRefresh::Polled),
            NO_DEPLOYMENTS,
            "{field}"
        );
    }
    assert_eq!(restarted_deployments(&[], true, VolumeRefresh::Polled), NO_DEPLOYMENTS);
}

#[test]
fn any_class_change_restarts_consumers_without_rotation() {
    let changes = identity_change(Component::Disk, "objectEncoding", "utf-8");
    let expected = ["azure-disk-csi-driver-controller"];
    assert_eq!(restarted_deployments(&changes, false, VolumeRefresh::AtMount), expected);
    assert_eq!(restarted_deployments(&[], true, VolumeRefresh::AtMount).len(), 9);
}
