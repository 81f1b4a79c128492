use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{CONTROL_PLANE, KMS, changed, inputs, valid};
use crate::objects::{Inputs, OwnedKind, desired_objects};
use crate::templates::WorkloadTemplates;

/// The pods that start anew when a cluster changes, by what is rendered.
fn rolled(changes: &[(String, Value)], reader: bool, refresh: VolumeRefresh) -> Vec<String> {
    let templates = WorkloadTemplates::default();
    let pods = |changes: &[(String, Value)], reader: bool| {
        let wire = changed(changes);
        let mut inputs = Inputs { refresh, ..inputs(&wire, &templates) };
        if reader {
            inputs.vault_reader = "0b1e5a3c-7d24-4f69-8e0a-c5d9f1b37a62".parse().ok();
        }
        let objects = desired_objects(&valid(&wire), &inputs);
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

fn identity(component: Component, field: &str, value: &str) -> Vec<(String, Value)> {
    let parent = if component == Component::Kms { KMS } else { CONTROL_PLANE };
    vec![(format!("{parent}/{component}/{field}"), json!(value))]
}

fn deployments(component: Component) -> Vec<String> {
    let mut names: Vec<_> = component.consumers().iter().map(|c| c.deployment.to_owned()).collect();
    names.sort();
    names
}

const NOTHING: [&str; 0] = [];

#[test]
fn another_secret_name_starts_every_consumer_anew_and_nobody_else() {
    for component in Component::ALL {
        let changes = identity(component, "credentialsSecretName", "another");
        let rolled = rolled(&changes, false, VolumeRefresh::Polled);
        assert_eq!(rolled, deployments(component), "{component}");
    }
}

#[test]
fn nothing_starts_anew_where_a_reload_is_enough() {
    for component in Component::ALL {
        let changes = identity(component, "objectEncoding", "hex");
        assert_eq!(rolled(&changes, false, VolumeRefresh::Polled), NOTHING, "{component}");
    }
    let vault = format!("{CONTROL_PLANE}/managedIdentitiesKeyVault");
    for field in ["name", "tenantID"] {
        let changes = vec![(format!("{vault}/{field}"), json!("another"))];
        assert_eq!(rolled(&changes, false, VolumeRefresh::Polled), NOTHING, "{field}");
    }
    assert_eq!(rolled(&[], true, VolumeRefresh::Polled), NOTHING);
}

#[test]
fn everything_that_a_class_says_starts_its_consumers_anew_where_volumes_stay_as_they_are() {
    let changes = identity(Component::Disk, "objectEncoding", "utf-8");
    let expected = ["azure-disk-csi-driver-controller"];
    assert_eq!(rolled(&changes, false, VolumeRefresh::AtMount), expected);
    assert_eq!(rolled(&[], true, VolumeRefresh::AtMount).len(), 9);
}
