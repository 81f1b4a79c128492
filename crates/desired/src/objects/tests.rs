use lanyard_api::HostedControlPlane;
use lanyard_vocabulary::Component;
use serde_json::json;

use super::*;
use crate::fixture::{
    AZURE, KMS, OWNER_UID, desired_objects_of, example_inputs, example_json, example_with_changes,
    parse_hosted_cluster_json as wire_of, validated_cluster,
};
use crate::hash::DESIRED_STATE_HASH_ANNOTATION;
use crate::hosted_cluster::control_plane_endpoint::ControlPlaneEndpoint;
use crate::templates::WorkloadTemplates;

mod byte_exact;
mod golden;
mod hosted_control_plane;
mod properties;

fn key_texts(objects: &[DesiredObject]) -> Vec<String> {
    objects.iter().map(|object| object.key.to_string()).collect()
}

fn find_object<'a>(objects: &'a [DesiredObject], kind: OwnedKind, name: &str) -> &'a DesiredObject {
    objects.iter().find(|object| object.key.kind == kind && object.key.name == name).unwrap()
}

#[test]
fn every_object_of_the_example_with_its_writer_and_step() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let lines: Vec<_> = objects
        .iter()
        .map(|object| format!("{:?} {:?} {}", object.step, object.writer, object.key))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_object_leads_back_to_its_cluster_and_belongs_to_its_control_plane() {
    for object in desired_objects_of(&example_with_changes(&[])) {
        let metadata = &object.value["metadata"];
        assert_eq!(metadata["labels"][MANAGED_BY_LABEL], MANAGED_BY_VALUE, "{}", object.key);
        assert_eq!(metadata["labels"][CLUSTER_LABEL], "harbour");
        assert_eq!(metadata["annotations"]["hypershift.openshift.io/cluster"], "clusters/harbour");
        let owned =
            !matches!(object.key.kind, OwnedKind::Namespace | OwnedKind::HostedControlPlane);
        assert_eq!(metadata["ownerReferences"].is_array(), owned, "{}", object.key);
        if owned {
            let owner = json!([{
                "apiVersion": "hypershift.openshift.io/v1beta1",
                "kind": "HostedControlPlane",
                "name": "harbour",
                "uid": OWNER_UID,
                "controller": true,
                "blockOwnerDeletion": true,
            }]);
            assert_eq!(metadata["ownerReferences"], owner, "{}", object.key);
        }
        assert!(object.key.kind.info().writers.contains(&object.writer), "{}", object.key);
        assert_eq!(object.key.namespace.is_some(), object.key.kind.info().namespaced);
        assert_eq!(ObjectKey::from_json(&object.value), Some(object.key));
    }
}

#[test]
fn only_namespace_and_control_plane_are_desired_without_owner() {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    let waiting = DesiredObjectInputs {
        owner: ControlPlaneOwner::Absent,
        ..example_inputs(&wire, &templates)
    };
    let objects = desired_objects(&validated_cluster(&wire), &waiting);
    assert_eq!(
        key_texts(&objects),
        ["Namespace clusters-harbour", "HostedControlPlane clusters-harbour/harbour"]
    );
    let identities = DesiredObjectInputs {
        mode: OperatorMode::IdentityOnly,
        ..example_inputs(&wire, &templates)
    };
    assert_eq!(desired_objects(&validated_cluster(&wire), &identities), []);
}

#[test]
fn control_plane_copies_the_spec_with_unknown_fields() {
    let mut example = example_json();
    example["spec"]["future"] = json!({"kept": [1, 2]});
    example["spec"]["platform"]["azure"]["later"] = json!("x");
    let wire = wire_of(example.clone());
    let objects = desired_objects_of(&wire);
    let control_plane = find_object(&objects, OwnedKind::HostedControlPlane, "harbour");
    let mut expected = example["spec"].clone();
    let release = expected.as_object_mut().unwrap().remove("release").unwrap();
    expected["releaseImage"] = release["image"].clone();
    expected["pullSecret"] = json!({"name": "pull-secret"});
    expected["sshKey"] = json!({"name": "ssh-key"});
    assert_eq!(control_plane.value["spec"], expected);
    let annotations = control_plane.value["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(
        annotations["hypershift.openshift.io/azure-load-balancer-health-probe-mode"],
        "shared"
    );
    assert!(!annotations.contains_key("azure.microsoft.com/hcp-cluster-azure-resource-id"));
}

#[test]
fn the_namespace_has_the_resource_id_and_keeps_the_standard_that_its_pods_keep() {
    let standard = |annotations: Option<&str>, templates: &str| {
        let mut example = example_json();
        if let Some(standard) = annotations {
            let key = "hypershift.openshift.io/pod-security-admission-label-override";
            example["metadata"]["annotations"][key] = json!(standard);
        }
        let wire = wire_of(example);
        let templates = WorkloadTemplates::parse(templates).unwrap();
        let objects =
            desired_objects(&validated_cluster(&wire), &example_inputs(&wire, &templates));
        let namespace =
            find_object(&objects, OwnedKind::Namespace, "clusters-harbour").value.clone();
        let id = &namespace["metadata"]["annotations"]["azure.microsoft.com/hcp-cluster-azure-resource-id"];
        assert!(id.as_str().unwrap().ends_with("/hcpOpenShiftClusters/harbour"));
        let synced = "security.openshift.io/scc.podSecurityLabelSync";
        assert_eq!(namespace["metadata"]["labels"][synced], "false");
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].clone()
    };
    assert_eq!(standard(None, ""), "restricted");
    assert_eq!(standard(None, "canary: {hostNetwork: true}"), "privileged");
    assert_eq!(standard(None, "podSecurity: baseline"), "baseline");
    assert_eq!(standard(Some("privileged"), ""), "privileged");
}

#[test]
fn class_is_written_by_the_writers_of_its_deployments() {
    for component in Component::ALL {
        let expected: &[ObjectWriter] = match component {
            Component::Kms => &ObjectWriter::ALL,
            Component::ControlPlaneOperator | Component::NodePoolManagement => {
                &[ObjectWriter::HostedCluster]
            }
            _ => &[ObjectWriter::ControlPlane],
        };
        assert_eq!(compose::class_writers(component), expected, "{component}");
    }
}

#[test]
fn kms_class_is_equal_for_both_writers_and_hashed_once() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let classes: Vec<_> =
        objects.iter().filter(|object| object.key.name == "managed-azure-kms").collect();
    let [one, other] = classes.as_slice() else { panic!("{} classes", classes.len()) };
    assert_eq!(
        (one.writer, other.writer),
        (ObjectWriter::HostedCluster, ObjectWriter::ControlPlane)
    );
    let mut marked = other.value.clone();
    let annotations = marked["metadata"]["annotations"].as_object_mut().unwrap();
    assert!(annotations.remove(DESIRED_STATE_HASH_ANNOTATION).is_some());
    assert_eq!(one.value, marked);
    assert!(other.keeps_live_vault_reader && !one.keeps_live_vault_reader);
}

#[test]
fn the_pods_of_every_deployment_bear_the_label_by_which_they_are_found() {
    let wire = example_with_changes(&[]);
    let deployments: Vec<_> = desired_objects_of(&wire)
        .into_iter()
        .filter(|object| object.key.kind == OwnedKind::Deployment)
        .collect();
    assert!(deployments.len() >= 9);
    for deployment in deployments {
        let labels = &deployment.value["spec"]["template"]["metadata"]["labels"];
        let room = &labels[HostedControlPlane::CONTROL_PLANE_LABEL];
        assert_eq!(room, "clusters-harbour", "{}", deployment.key);
    }
}

#[test]
fn a_label_is_the_name_or_the_start_of_a_long_one() {
    assert_eq!(cluster_label("harbour"), "harbour");
    assert_eq!(cluster_label(&"a".repeat(63)), "a".repeat(63));
    let long = cluster_label(&format!("{}.{}", "a".repeat(53), "b".repeat(60)));
    assert_eq!(long.len(), 53 + 9);
    assert_ne!(long, cluster_label(&format!("{}.{}", "a".repeat(53), "b".repeat(61))));
}

#[test]
fn a_private_vault_is_reached_through_the_router_where_there_is_one() {
    // During a rotation to another vault, there are keys in both.
    let pod = |vaults: [&str; 2], router: Option<&str>| {
        let [active, target] = vaults;
        let key = |vault: &str, version: &str| {
            let key = json!({"keyVaultName": vault, "keyName": "etcd", "keyVersion": version});
            json!({"provider": "Azure", "azure": key})
        };
        let status = json!({"activeKey": key(active, "1"), "targetKey": key(target, "2")});
        let wire = example_with_changes(&[
            (format!("{KMS}/keyVaultAccess"), json!("Private")),
            ("/status".to_owned(), json!({"secretEncryption": status})),
        ]);
        let templates = WorkloadTemplates::default();
        let private_router = router.map(|text| text.parse().unwrap());
        let inputs = DesiredObjectInputs { private_router, ..example_inputs(&wire, &templates) };
        let objects = desired_objects(&validated_cluster(&wire), &inputs);
        let deployment = find_object(&objects, OwnedKind::Deployment, "kube-apiserver");
        deployment.value["spec"]["template"]["spec"].clone()
    };
    let asks = |pod: &Value| {
        let arguments = pod["containers"][0]["args"].to_string();
        [arguments.contains("--call="), arguments.contains("--probe=encryption")]
    };
    let unreached = pod(["harbour-keys", "harbour-keys"], None);
    assert_eq!(unreached["hostAliases"], Value::Null);
    // The vault denies public access, which says nothing about the identity.
    assert_eq!(asks(&unreached), [false, false]);
    // The router knows only the vault of the spec's active key, whatever the roles of the keys.
    for vaults in [["harbour-keys", "harbour-keys"], ["one-keys", "harbour-keys"]] {
        let reached = pod(vaults, Some("172.30.0.100"));
        let host = "harbour-keys.vault.azure.net";
        let expected = json!([{"ip": "172.30.0.100", "hostnames": [host]}]);
        assert_eq!(reached["hostAliases"], expected, "{vaults:?}");
        assert_eq!(asks(&reached), [true, true]);
    }
}

#[test]
fn the_azure_cluster_has_the_endpoint_of_the_hosted_api_server() {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    let endpoint = ControlPlaneEndpoint { host: "api.harbour.example".to_owned(), port: 443 };
    for (given, expected) in
        [(None, Value::Null), (Some(endpoint), json!({"host": "api.harbour.example", "port": 443}))]
    {
        let inputs = DesiredObjectInputs {
            control_plane_endpoint: given,
            ..example_inputs(&wire, &templates)
        };
        let objects = desired_objects(&validated_cluster(&wire), &inputs);
        let cluster = &find_object(&objects, OwnedKind::AzureCluster, "harbour").value;
        assert_eq!(cluster["spec"]["controlPlaneEndpoint"], expected);
    }
}

#[test]
fn an_unusable_value_costs_only_the_objects_that_contain_it() {
    let expected: [(&str, Value, &[&str]); 3] = [
        (
            "/metadata/annotations",
            json!({(lanyard_api::HostedCluster::HEALTH_PROBE_PORT_ANNOTATION): ""}),
            &[
                "ConfigMap clusters-harbour/azure-cloud-config",
                "Secret clusters-harbour/azure-cloud-config",
                "Deployment clusters-harbour/azure-cloud-controller-manager",
            ],
        ),
        (
            "/spec/platform/azure/securityGroupID",
            json!("default"),
            &[
                "ConfigMap clusters-harbour/azure-cloud-config",
                "Secret clusters-harbour/azure-cloud-config",
                "Deployment clusters-harbour/azure-cloud-controller-manager",
            ],
        ),
        (
            "/spec/platform/azure/vnetID",
            json!("default"),
            &[
                "ConfigMap clusters-harbour/azure-cloud-config",
                "Secret clusters-harbour/azure-cloud-config",
                "Secret clusters-harbour/azure-disk-csi-config",
                "Secret clusters-harbour/azure-file-csi-config",
                "AzureCluster clusters-harbour/harbour",
                "Deployment clusters-harbour/azure-cloud-controller-manager",
                "Deployment clusters-harbour/azure-disk-csi-driver-controller",
                "Deployment clusters-harbour/azure-file-csi-driver-controller",
            ],
        ),
    ];
    let all = key_texts(&desired_objects_of(&example_with_changes(&[])));
    for (pointer, value, missing) in expected {
        let wire = example_with_changes(&[(pointer.to_owned(), value)]);
        let (cluster, templates) = (validated_cluster(&wire), WorkloadTemplates::default());
        let inputs = example_inputs(&wire, &templates);
        let found: Vec<_> =
            unrendered_objects(&cluster, &inputs).iter().map(ToString::to_string).collect();
        assert_eq!(found, missing, "{pointer}");
        let rendered = key_texts(&desired_objects(&cluster, &inputs));
        let others: Vec<_> =
            all.iter().filter(|key| !missing.contains(&key.as_str())).cloned().collect();
        assert_eq!(rendered, others, "{pointer}");
    }
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    let none = unrendered_objects(&validated_cluster(&wire), &example_inputs(&wire, &templates));
    assert!(none.is_empty());
}

#[test]
fn a_cloud_without_endpoints_has_canaries_without_calls() {
    let wire = example_with_changes(&[(format!("{AZURE}/cloud"), json!("AzureStackCloud"))]);
    let objects = desired_objects_of(&wire);
    let deployment =
        &find_object(&objects, OwnedKind::Deployment, "azure-disk-csi-driver-controller").value;
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<_> =
        arguments.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(arguments.contains(&"--cloud=AzureStackCloud"));
    assert!(!arguments.iter().any(|argument| argument.starts_with("--call")));
}
