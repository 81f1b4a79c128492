use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use lanyard_api::HostedCluster;
use lanyard_vocabulary::component::CredentialPathSource;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{
    AZURE, CONTROL_PLANE, KMS, desired_state_of, example_render_context, example_with_changes,
    validated_cluster,
};

fn join_pointer(base: &str, rest: &str) -> String {
    format!("{base}/{rest}")
}

fn object_texts(desired: &DesiredState) -> Vec<String> {
    let texts = |objects: Vec<Value>| objects.into_iter().map(|object| object.to_string());
    let list = |objects: Value| match objects {
        Value::Array(items) => texts(items),
        other => panic!("{other}"),
    };
    let wirings = desired.credential_injections.iter().map(|wiring| format!("{wiring:?}"));
    list(json!(desired.secret_provider_classes))
        .chain(list(json!(desired.config_maps)))
        .chain(list(json!(desired.secrets)))
        .chain(list(json!([desired.cluster_identity, desired.azure_cluster])))
        .chain(wirings)
        .collect()
}

fn cloud_config_text<'a>(desired: &'a DesiredState, name: &str) -> &'a str {
    let found = desired.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(name)).unwrap();
    std::str::from_utf8(&found.data.as_ref().unwrap()[CLOUD_CONFIG_KEY].0).unwrap()
}

#[test]
fn the_cloud_configuration_of_the_workers() {
    let desired = desired_state_of(&example_with_changes(&[]));
    insta::assert_snapshot!(desired.config_maps[0].data.as_ref().unwrap()[CLOUD_CONFIG_KEY]);
}

#[test]
fn the_cloud_configuration_of_the_controller_manager() {
    insta::assert_snapshot!(cloud_config_text(
        &desired_state_of(&example_with_changes(&[])),
        "azure-cloud-config"
    ));
}

#[test]
fn the_cloud_configuration_of_the_disk_driver() {
    insta::assert_snapshot!(cloud_config_text(
        &desired_state_of(&example_with_changes(&[])),
        "azure-disk-csi-config"
    ));
}

#[test]
fn the_cloud_configuration_of_the_kms_plugin() {
    insta::assert_snapshot!(cloud_config_text(
        &desired_state_of(&example_with_changes(&[])),
        "azure-kms-config"
    ));
}

#[test]
fn layouts_have_their_number_of_keys_and_no_newline_at_the_end() {
    let desired = desired_state_of(&example_with_changes(&[]));
    let cases = [
        ("azure-cloud-config", 25),
        ("azure-disk-csi-config", 25),
        ("azure-file-csi-config", 25),
        ("azure-kms-config", 22),
    ];
    for (name, keys) in cases {
        let text = cloud_config_text(&desired, name);
        assert!(text.starts_with("{\n  \"cloud\": ") && text.ends_with("\n}"), "{name}");
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value.as_object().unwrap().len(), keys, "{name}");
    }
}

#[test]
fn optional_keys_go_where_they_belong() {
    let id = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourcegroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/pulls-images";
    let registry =
        json!({"credentials": {"type": "ManagedIdentity", "managedIdentity": {"resourceID": id}}});
    let annotations = json!({
        HostedCluster::HEALTH_PROBE_PATH_ANNOTATION: "/ok?a=1&b=<2>",
        HostedCluster::HEALTH_PROBE_PORT_ANNOTATION: "30000",
    });
    let desired = desired_state_of(&example_with_changes(&[
        (join_pointer(AZURE, "containerRegistry"), registry),
        ("/metadata/annotations".to_owned(), annotations),
    ]));
    let workers = &desired.config_maps[0].data.as_ref().unwrap()[CLOUD_CONFIG_KEY];
    let tail = "  \"clusterServiceLoadBalancerHealthProbeMode\": \"shared\",\n  \"clusterServiceSharedLoadBalancerHealthProbePath\": \"/ok?a=1\\u0026b=\\u003c2\\u003e\",\n  \"clusterServiceSharedLoadBalancerHealthProbePort\": 30000";
    assert!(
        workers.ends_with(&format!("{tail},\n  \"userAssignedIdentityID\": \"{id}\"\n}}")),
        "{workers}"
    );
    assert!(cloud_config_text(&desired, "azure-cloud-config").ends_with(&format!("{tail}\n}}")));
    assert!(
        cloud_config_text(&desired, "azure-disk-csi-config")
            .ends_with("HealthProbeMode\": \"\"\n}")
    );
}

#[test]
fn the_extension_is_off_wherever_there_is_a_path() {
    let desired = desired_state_of(&example_with_changes(&[]));
    let workers = &desired.config_maps[0].data.as_ref().unwrap()[CLOUD_CONFIG_KEY];
    let others =
        desired.secrets.iter().filter_map(|secret| secret.data.as_ref()?.get(CLOUD_CONFIG_KEY));
    let texts = others.map(|bytes| String::from_utf8(bytes.0.clone()).unwrap());
    for text in texts.chain([workers.clone()]) {
        let value: Value = serde_json::from_str(&text).unwrap();
        let path = value["aadMSIDataPlaneIdentityPath"].as_str().unwrap();
        assert_eq!(value["useManagedIdentityExtension"], path.is_empty(), "{text}");
    }
}

#[test]
fn a_backup_key_has_a_container_that_mounts_the_same_volume() {
    let containers = |changes: &[(String, Value)]| -> Vec<String> {
        let desired = desired_state_of(&example_with_changes(changes));
        let kms = &Component::Kms.consumers()[0];
        desired.injection_for(Component::Kms, kms).unwrap().containers.clone()
    };
    assert_eq!(containers(&[]), ["azure-kms-provider-active"]);
    let key = json!({"keyVaultName": "harbour-keys", "keyName": "old", "keyVersion": "1"});
    assert_eq!(
        containers(&[(join_pointer(KMS, "backupKey"), key)]),
        ["azure-kms-provider-active", "azure-kms-provider-backup"]
    );
}

/// Returns the variants of the example with other sets of components.
fn component_set_variants() -> Vec<(Vec<(String, Value)>, usize)> {
    let off = |names: Value| ("/spec/capabilities".to_owned(), json!({ "disabled": names }));
    let no_kms = || ("/spec/secretEncryption".to_owned(), Value::Null);
    vec![
        (vec![], 9),
        (vec![no_kms()], 8),
        (vec![off(json!(["ImageRegistry"]))], 8),
        (vec![off(json!(["Console", "Ingress"]))], 8),
        (vec![off(json!(["ImageRegistry", "Console", "Ingress"])), no_kms()], 6),
        (vec![(join_pointer(CONTROL_PLANE, "imageRegistry"), Value::Null)], 8),
        (vec![(join_pointer(AZURE, "cloud"), json!("AzureUSGovernmentCloud"))], 9),
        (vec![(join_pointer(KMS, "keyVaultType"), json!("ManagedHSM"))], 9),
    ]
}

#[test]
fn there_is_one_class_for_every_component_that_runs() {
    for (changes, classes) in component_set_variants() {
        let desired = desired_state_of(&example_with_changes(&changes));
        assert_eq!(desired.secret_provider_classes.len(), classes, "{changes:?}");
    }
}

#[test]
fn configured_path_equals_mounted_path_for_every_consumer() {
    for (changes, _) in component_set_variants() {
        let wire = example_with_changes(&changes);
        let desired = desired_state_of(&wire);
        let cluster = validated_cluster(&wire);
        for component in Component::ALL {
            for consumer in component.consumers() {
                let configured = desired.configured_credential_path(component, consumer);
                assert_eq!(
                    configured,
                    desired.mounted_credential_path(component, consumer),
                    "{component}"
                );
                assert_eq!(
                    configured.is_some(),
                    cluster.identities.contains_key(&component),
                    "{component}"
                );
            }
        }
    }
}

#[test]
fn unsupported_cloud_omits_only_the_cluster_identity() {
    let desired = desired_state_of(&example_with_changes(&[(
        join_pointer(AZURE, "cloud"),
        json!("AzureGermanCloud"),
    )]));
    assert_eq!((desired.cluster_identity.as_ref(), desired.azure_cluster.as_ref()), (None, None));
    assert_eq!(desired.unrendered, []);
    assert_eq!(desired.secret_provider_classes.len(), 9);
    for component in Component::ALL {
        for consumer in component.consumers() {
            let configured = desired.configured_credential_path(component, consumer);
            let by_identity = consumer.path_source == CredentialPathSource::ClusterIdentity;
            assert_eq!(configured.is_none(), by_identity, "{component}");
            assert!(desired.mounted_credential_path(component, consumer).is_some(), "{component}");
        }
    }
}

#[test]
fn classes_name_only_clouds_that_every_provider_knows() {
    for (cloud, expected) in [
        ("AzurePublicCloud", None),
        ("AzureUSGovernmentCloud", Some("AzureUSGovernmentCloud")),
        ("AzureBleuCloud", None),
    ] {
        let desired = desired_state_of(&example_with_changes(&[(
            join_pointer(AZURE, "cloud"),
            json!(cloud),
        )]));
        for class in desired.secret_provider_classes {
            let parameters = class.spec.parameters.unwrap();
            assert_eq!(parameters.get("cloudName").map(String::as_str), expected, "{cloud}");
            assert_eq!(parameters.len(), if expected.is_some() { 7 } else { 6 }, "{cloud}");
        }
    }
}

#[test]
fn an_unusable_network_id_costs_only_the_objects_that_contain_it() {
    // ConfigMap and Secret of the cloud provider; with the network also the two storage drivers and
    // the AzureCluster.
    let bad = [("vnetID", 5), ("securityGroupID", 2)];
    for (field, unrendered) in bad {
        let changes = [(join_pointer(AZURE, field), json!("default"))];
        let desired = desired_state_of(&example_with_changes(&changes));
        assert_eq!(desired.secret_provider_classes.len(), 9);
        assert_eq!(desired.unrendered.len(), unrendered, "{:?}", desired.unrendered);
        assert!(
            desired
                .secrets
                .iter()
                .any(|it| it.metadata.name.as_deref() == Some("azure-kms-config"))
        );
    }
}

#[test]
fn credential_variable_is_path_or_bare_name() {
    let desired = desired_state_of(&example_with_changes(&[]));
    let variable = "MANAGED_AZURE_HCP_CREDENTIALS_FILE_PATH";
    let values: Vec<_> = desired
        .credential_injections
        .iter()
        .flat_map(|wiring| &wiring.variables)
        .filter(|found| found.variable.name == variable)
        .map(|found| (found.deployment, found.variable.value.as_deref().unwrap()))
        .collect();
    let network =
        desired.credential_injections.iter().find(|wiring| wiring.component == Component::Network);
    let configured = network.unwrap().variable_value("ARO_HCP_CLIENT_CREDENTIALS_PATH");
    assert_eq!(configured.as_deref(), Some("/var/run/secrets/azure/harbour-network"));
    assert_eq!(
        values,
        [
            ("cluster-image-registry-operator", "/mnt/certs/harbour-image-registry"),
            ("ingress-operator", "/mnt/certs/harbour-ingress"),
            ("cluster-network-operator", "harbour-network"),
        ]
    );
}

#[test]
fn the_cloud_is_named_outside_the_public_cloud_only() {
    let parameters = |cloud: &str| {
        let desired = desired_state_of(&example_with_changes(&[(
            join_pointer(AZURE, "cloud"),
            json!(cloud),
        )]));
        desired.secret_provider_classes[0].spec.parameters.clone().unwrap()
    };
    assert_eq!(parameters("AzurePublicCloud").len(), 6);
    let abroad = parameters("AzureUSGovernmentCloud");
    assert_eq!(abroad.len(), 7);
    assert_eq!(abroad["cloudName"], "AzureUSGovernmentCloud");
}

#[test]
fn objects_lead_back_to_their_cluster_and_carry_their_owner() {
    let wire = example_with_changes(&[("/metadata/name".to_owned(), json!("a.b"))]);
    let owner = OwnerReference { name: "a.b".to_owned(), ..OwnerReference::default() };
    let names = RenderContext { owner: Some(owner.clone()), ..example_render_context() };
    let desired = desired_state(&validated_cluster(&wire), &names);
    assert_eq!(desired.namespace, "clusters-a-b");
    let classes = desired.secret_provider_classes.iter().map(|class| &class.metadata);
    let secrets = desired.secrets.iter().map(|secret| &secret.metadata);
    let maps = desired.config_maps.iter().map(|map| &map.metadata);
    let identity = desired.cluster_identity.iter().map(|identity| &identity.metadata);
    for metadata in classes.chain(secrets).chain(maps).chain(identity) {
        assert_eq!(metadata.namespace.as_deref(), Some("clusters-a-b"));
        let annotations = metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[HostedCluster::CLUSTER_ANNOTATION], "clusters/a.b");
        assert_eq!(metadata.owner_references.as_deref(), Some([owner.clone()].as_slice()));
    }
}

/// Generates changes that must not affect the classes.
fn any_irrelevant_changes() -> impl Strategy<Value = Vec<(String, Value)>> {
    let group = "[a-z0-9]{2,20}";
    (group, group, "[a-z]{3,12}", "[a-f0-9]{8}", any::<bool>()).prop_map(
        |(group, vnet, location, id, probe)| {
            let uuid = format!("{id}-6b47-4e0a-9d53-7c1f6a2b8e40");
            let network =
                format!("/subscriptions/{uuid}/resourceGroups/{group}/providers/Microsoft.Network");
            let mode = if probe { "shared" } else { "servicenodeport" };
            vec![
                (join_pointer(AZURE, "resourceGroup"), json!(group)),
                (join_pointer(AZURE, "location"), json!(location)),
                (join_pointer(AZURE, "subscriptionID"), json!(uuid)),
                (join_pointer(AZURE, "tenantID"), json!(uuid)),
                (join_pointer(AZURE, "vnetID"), json!(format!("{network}/virtualNetworks/{vnet}"))),
                (
                    join_pointer(AZURE, "subnetID"),
                    json!(format!("{network}/virtualNetworks/{vnet}/subnets/s")),
                ),
                (
                    join_pointer(AZURE, "securityGroupID"),
                    json!(format!("{network}/networkSecurityGroups/{vnet}")),
                ),
                (join_pointer(CONTROL_PLANE, "disk/clientID"), json!(uuid)),
                ("/spec/infraID".to_owned(), json!(format!("i-{id}"))),
                (
                    "/metadata/annotations".to_owned(),
                    json!({HostedCluster::HEALTH_PROBE_MODE_ANNOTATION: mode}),
                ),
            ]
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn classes_depend_on_vault_secret_encoding_reader_and_cloud_alone(changes in any_irrelevant_changes()) {
        let one = desired_state_of(&example_with_changes(&[]));
        let other = desired_state_of(&example_with_changes(&changes));
        prop_assert_eq!(one.secret_provider_classes, other.secret_provider_classes);
    }

    #[test]
    fn paths_agree_for_every_name_and_encoding(
        name in "[a-zA-Z0-9-]{1,127}",
        encoding in prop::sample::select(vec!["utf-8", "hex", "base64"]),
        component in prop::sample::select(Component::ALL.to_vec()),
    ) {
        let base = if component == Component::Kms { KMS } else { CONTROL_PLANE };
        let field = join_pointer(base, component.name());
        let desired = desired_state_of(&example_with_changes(&[
            (join_pointer(&field, "credentialsSecretName"), json!(name)),
            (join_pointer(&field, "objectEncoding"), json!(encoding)),
        ]));
        let facts = component.definition();
        let parameters =
            desired.secret_provider_class(facts.secret_provider_class).unwrap().parse_parameters().unwrap();
        prop_assert_eq!(parameters.objects[0].name.as_str(), name.as_str());
        prop_assert_eq!(parameters.objects[0].encoding.unwrap().name(), encoding);
        for consumer in facts.consumers {
            let expected = Some(format!("{}/{name}", consumer.mount_path));
            prop_assert_eq!(desired.configured_credential_path(component, consumer), expected.clone());
            prop_assert_eq!(desired.mounted_credential_path(component, consumer), expected);
        }
    }

    #[test]
    fn a_change_of_one_identity_leaves_the_objects_of_the_others_alone(
        name in "[a-z]{1,20}",
        component in prop::sample::select(Component::ALL[..8].to_vec()),
    ) {
        let field = join_pointer(CONTROL_PLANE, &format!("{component}/credentialsSecretName"));
        let one = desired_state_of(&example_with_changes(&[]));
        let other = desired_state_of(&example_with_changes(&[(field, json!(name))]));
        for (before, after) in one.credential_injections.iter().zip(&other.credential_injections) {
            prop_assert_eq!(before == after, before.component != component || before.secret_name.as_str() == name);
        }
        let untouched = object_texts(&one).iter().zip(&object_texts(&other)).filter(|(a, b)| a == b).count();
        prop_assert!(untouched >= object_texts(&one).len() - 4);
    }
}
