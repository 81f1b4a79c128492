//! Properties of every cluster, checked on the rendered objects only.

use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::component::{Consumer, CredentialPathSource};
use lanyard_vocabulary::{Component, EntraClientId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::find_object;
use crate::fixture::{
    CONTROL_PLANE, KMS, any_changes, desired_objects_of, example_inputs, example_with_changes,
    validated_cluster,
};
use crate::templates::WorkloadTemplates;

fn class_of_component(objects: &[DesiredObject], component: Component) -> SecretProviderClass {
    let name = component.definition().secret_provider_class;
    let object = find_object(objects, OwnedKind::SecretProviderClass, name);
    serde_json::from_value(object.value.clone()).unwrap()
}

fn pod_spec<'a>(objects: &'a [DesiredObject], consumer: &Consumer) -> &'a Value {
    let deployment = find_object(objects, OwnedKind::Deployment, consumer.deployment);
    &deployment.value["spec"]["template"]["spec"]
}

fn item_named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let items = list.as_array().unwrap();
    items.iter().find(|item| item["name"] == name).unwrap_or(&Value::Null)
}

fn argument_value(container: &Value, flag: &str) -> Option<String> {
    let arguments = container["args"].as_array()?.iter().filter_map(Value::as_str);
    let mut values =
        arguments.filter_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='));
    values.next().map(str::to_owned)
}

/// Returns the JSON in a Secret that the pod mounts.
fn mounted_secret_json(
    objects: &[DesiredObject],
    pod: &Value,
    container: &Value,
    path: &str,
) -> Value {
    let (directory, file) = path.rsplit_once('/').unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountPath"] == directory).unwrap();
    let source = &item_named(&pod["volumes"], mount["name"].as_str().unwrap())["secret"];
    let key = match source["items"].as_array() {
        Some(items) => {
            items.iter().find(|item| item["path"] == file).unwrap()["key"].as_str().unwrap()
        }
        None => file,
    };
    let secret = find_object(objects, OwnedKind::Secret, source["secretName"].as_str().unwrap());
    let bytes: k8s_openapi::ByteString =
        serde_json::from_value(secret.value["data"][key].clone()).unwrap();
    serde_json::from_slice(&bytes.0).unwrap()
}

/// Returns the credential path that the container is configured with, from any source.
fn configured_credential_path(
    objects: &[DesiredObject],
    component: Component,
    consumer: &Consumer,
) -> String {
    let pod = pod_spec(objects, consumer);
    let container = item_named(&pod["containers"], consumer.container);
    match consumer.path_source {
        CredentialPathSource::Computed if component == Component::Kms => {
            argument_value(container, "--encryption-credential-file").unwrap()
        }
        CredentialPathSource::Computed => argument_value(container, "--credential-file").unwrap(),
        CredentialPathSource::ClusterIdentity => {
            let mut identities = objects.iter();
            let identity =
                identities.find(|o| o.key.kind == OwnedKind::AzureClusterIdentity).unwrap();
            let path = &identity.value["spec"]["userAssignedIdentityCredentialsPath"];
            path.as_str().unwrap().to_owned()
        }
        CredentialPathSource::CloudConfig { .. } | CredentialPathSource::StorageOperator { .. } => {
            let flags = ["--cloud-config", "--config-file-path"];
            let path = flags.iter().find_map(|flag| argument_value(container, flag)).unwrap();
            let config = mounted_secret_json(objects, pod, container, &path);
            config["aadMSIDataPlaneIdentityPath"].as_str().unwrap().to_owned()
        }
        CredentialPathSource::Environment { name }
        | CredentialPathSource::Rendered { name, .. } => {
            let flag = argument_value(container, "--credential-file-from-env");
            assert_eq!(flag.as_deref(), Some(name));
            item_named(&container["env"], name)["value"].as_str().unwrap().to_owned()
        }
    }
}

/// Returns the path of the credential file in the consumer's container.
fn mounted_credential_path(objects: &[DesiredObject], consumer: &Consumer) -> String {
    let pod = pod_spec(objects, consumer);
    let container = item_named(&pod["containers"], consumer.container);
    let csi = &item_named(&pod["volumes"], consumer.volume)["csi"];
    assert_eq!(
        (&csi["driver"], &csi["readOnly"]),
        (&json!("secrets-store.csi.k8s.io"), &json!(true))
    );
    let name = csi["volumeAttributes"]["secretProviderClass"].as_str().unwrap();
    let class = find_object(objects, OwnedKind::SecretProviderClass, name);
    let class: SecretProviderClass = serde_json::from_value(class.value.clone()).unwrap();
    let file = class.parse_parameters().unwrap().objects[0].file_name().to_owned();
    let mount = item_named(&container["volumeMounts"], consumer.volume);
    assert_eq!(mount["readOnly"], true);
    format!("{}/{file}", mount["mountPath"].as_str().unwrap())
}

fn parse_vault_reader(text: Option<&str>) -> Option<EntraClientId> {
    text.map(|text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn configured_path_equals_mounted_path_for_every_consumer(changes in any_changes()) {
        let wire = example_with_changes(&changes);
        let cluster = validated_cluster(&wire);
        let objects = desired_objects_of(&wire);
        let private = cluster.encryption.as_ref().is_some_and(|encryption| encryption.is_private_access);
        for (component, identity) in cluster.running_components() {
            for consumer in component.consumers() {
                let provided = mounted_credential_path(&objects, consumer);
                prop_assert_eq!(&provided, &format!("{}/{}", consumer.mount_path, identity.secret_name));
                let unknown = cluster.azure.cloud.cluster_identity_type().is_none()
                    && consumer.path_source == CredentialPathSource::ClusterIdentity;
                // Only the API server probes a private key.
                let unconfigured = private && component == Component::Kms && consumer.path_source == CredentialPathSource::Computed;
                if !unknown && !unconfigured {
                    prop_assert_eq!(configured_credential_path(&objects, component, consumer), provided);
                }
            }
        }
    }

    #[test]
    fn there_is_a_class_for_every_component_that_runs_and_no_other(changes in any_changes()) {
        let wire = example_with_changes(&changes);
        let objects = desired_objects_of(&wire);
        let mut classes: Vec<_> = objects
            .iter()
            .filter(|object| object.key.kind == OwnedKind::SecretProviderClass)
            .map(|object| object.key.name.clone())
            .collect();
        classes.dedup();
        let spec = wire.spec.as_ref().unwrap();
        let off = spec.capabilities.as_ref().and_then(|c| c.disabled.clone()).unwrap_or_default();
        // `Console` has no component of the control plane.
        let off = off.iter().filter(|capability| *capability != "Console").count();
        let expected = 9 - off - usize::from(spec.secret_encryption.is_none());
        prop_assert_eq!(classes.len(), expected);
        let deployments =
            objects.iter().filter(|object| object.key.kind == OwnedKind::Deployment).count();
        prop_assert_eq!(deployments, expected);
    }

    #[test]
    fn class_parameters_survive_a_round_trip(changes in any_changes()) {
        let wire = example_with_changes(&changes);
        let cluster = validated_cluster(&wire);
        let objects = desired_objects_of(&wire);
        for (component, identity) in cluster.running_components() {
            let class = class_of_component(&objects, component);
            let parameters = class.parse_parameters().unwrap();
            let [entry] = parameters.objects.as_slice() else { panic!("one object") };
            prop_assert_eq!(&entry.name, &identity.secret_name);
            prop_assert_eq!(entry.encoding, Some(identity.encoding));
            prop_assert_eq!(entry.kind, lanyard_api::VaultObjectKind::Secret);
            prop_assert_eq!(Some(parameters.to_parameters()), class.spec.parameters);
        }
    }

    #[test]
    fn class_depends_only_on_its_six_inputs(
        one in any_changes(), other in any_changes(), location in "[a-z]{3,10}",
    ) {
        // The second cluster gets only these values of the first.
        let facts = ["credentialsSecretName", "objectEncoding", "managedIdentitiesKeyVault", "/cloud"];
        let is_fact = |pointer: &str| facts.iter().any(|fact| pointer.contains(fact));
        let mut mixed: Vec<_> = other.into_iter().filter(|(pointer, _)| !is_fact(pointer)).collect();
        mixed.insert(0, (format!("{}/location", crate::fixture::AZURE), json!(location)));
        let facts = one.iter().filter(|(pointer, _)| is_fact(pointer)).cloned();
        let mixed: Vec<_> = facts.chain(mixed).collect();
        let (one, other) = (desired_objects_of(&example_with_changes(&one)), desired_objects_of(&example_with_changes(&mixed)));
        for object in one.iter().filter(|object| object.key.kind == OwnedKind::SecretProviderClass) {
            let twin = other.iter().find(|twin| twin.key == object.key && twin.writer == object.writer);
            if let Some(twin) = twin {
                prop_assert_eq!(twin, object);
            }
        }
    }

    #[test]
    fn a_change_of_one_identity_changes_its_own_objects_alone(
        changes in any_changes(),
        name in "[a-z]{1,20}",
        component in prop::sample::select(Component::ALL.to_vec()),
    ) {
        let parent = if component == Component::Kms { KMS } else { CONTROL_PLANE };
        let before = example_with_changes(&changes);
        if !validated_cluster(&before).identities.contains_key(&component) {
            return Ok(());
        }
        let mut after = changes;
        after.push((format!("{parent}/{component}/credentialsSecretName"), json!(name)));
        let after = example_with_changes(&after);
        let mut allowed = vec![component.definition().secret_provider_class, "harbour"];
        for consumer in component.consumers() {
            allowed.push(consumer.deployment);
            match consumer.path_source {
                CredentialPathSource::CloudConfig { secret, .. } | CredentialPathSource::StorageOperator { secret, .. } => {
                    allowed.push(secret);
                }
                _ => {}
            }
        }
        let (one, other) = (desired_objects_of(&before), desired_objects_of(&after));
        prop_assert_eq!(one.len(), other.len());
        for (one, other) in one.iter().zip(&other) {
            prop_assert_eq!(&one.key, &other.key);
            if one.value != other.value {
                prop_assert!(allowed.contains(&one.key.name.as_str()), "{} changed", one.key);
            }
        }
    }

    #[test]
    fn the_order_and_bytes_of_the_objects_are_always_the_same(changes in any_changes()) {
        let wire = example_with_changes(&changes);
        let text = serde_json::to_string(&wire).unwrap();
        let repeated: lanyard_api::HostedCluster = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(desired_objects_of(&wire), desired_objects_of(&repeated));
        let steps: Vec<_> = desired_objects_of(&wire).iter().map(|object| object.step).collect();
        prop_assert!(steps.is_sorted());
    }
}

#[test]
fn the_reader_is_in_every_class_or_in_none() {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    let id = "0b1e5a3c-7d24-4f69-8e0a-c5d9f1b37a62";
    for text in [None, Some(id)] {
        let inputs = DesiredObjectInputs {
            vault_reader: parse_vault_reader(text),
            ..example_inputs(&wire, &templates)
        };
        let objects = desired_objects(&validated_cluster(&wire), &inputs);
        for component in Component::ALL {
            let parameters = class_of_component(&objects, component).spec.parameters.unwrap();
            assert_eq!(parameters["userAssignedIdentityID"], text.unwrap_or_default());
        }
    }
}
