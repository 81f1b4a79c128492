//! The HostedControlPlane and the objects that it refers to.

use std::collections::BTreeMap;

use super::super::*;
use super::find_object;
use crate::fixture::{
    OWNER_UID, desired_objects_of, example_json, example_with_changes,
    parse_hosted_cluster_json as wire_of, validated_cluster,
};
use crate::hash::DESIRED_STATE_HASH_ANNOTATION;
use serde_json::json;

fn control_plane_of(example: Value) -> Value {
    let objects = desired_objects_of(&wire_of(example));
    find_object(&objects, OwnedKind::HostedControlPlane, "harbour").value.clone()
}

#[test]
fn control_plane_has_every_required_field_of_a_cluster_without_optional_ones() {
    let mut example = example_json();
    let spec = example["spec"].as_object_mut().unwrap();
    for field in ["dns", "etcd", "issuerURL", "networking", "serviceAccountSigningKey", "sshKey"] {
        assert!(spec.remove(field).is_some(), "{field}");
    }
    let spec = control_plane_of(example)["spec"].clone();
    assert_eq!(spec["dns"], json!({"baseDomain": ""}));
    assert_eq!(spec["sshKey"], json!({}));
    assert_eq!(spec["issuerURL"], "https://kubernetes.default.svc");
    let storage = json!({"type": "PersistentVolume", "persistentVolume": {"size": "8Gi"}});
    assert_eq!(spec["etcd"], json!({"managementType": "Managed", "managed": {"storage": storage}}));
    assert_eq!(spec["networking"]["networkType"], "OVNKubernetes");
    assert_eq!(spec["infraID"], "harbour-7kq2m");
    assert_eq!(spec["pullSecret"], json!({"name": "pull-secret"}));
    assert!(spec["releaseImage"].is_string() && spec["services"].is_array());
}

#[test]
fn references_of_the_control_plane_are_those_to_the_copies() {
    let mut example = example_json();
    let spec = control_plane_of(example.clone())["spec"].clone();
    assert_eq!(spec["sshKey"], json!({"name": "ssh-key"}));
    assert_eq!(spec["additionalTrustBundle"], Value::Null);
    example["spec"]["additionalTrustBundle"] = json!({"name": "ours"});
    example["spec"]["sshKey"] = json!({"name": ""});
    let spec = control_plane_of(example)["spec"].clone();
    assert_eq!(spec["sshKey"], json!({}));
    assert_eq!(spec["additionalTrustBundle"], json!({"name": "user-ca-bundle"}));
}

#[test]
fn control_plane_has_the_mirrored_annotations_and_labels_of_its_cluster() {
    let mut example = example_json();
    let annotations = json!({
        "azure.microsoft.com/hcp-cluster-azure-resource-id": "/subscriptions/x",
        "hypershift.openshift.io/swift-pod-network-instance": "swift-1",
        "hypershift.openshift.io/topology": "",
        "hypershift.openshift.io/control-plane-operator-image": "not mirrored",
        "idpoverrides.hypershift.openshift.io/github": "x",
        "resource-request-override.hypershift.openshift.io/kube-apiserver.kube-apiserver": "cpu=1",
        "oauth.hypershift.openshift.io/login-url-override": "https://login.example",
    });
    example["metadata"]["annotations"] = annotations.clone();
    example["metadata"]["labels"] = json!({"api.openshift.com/limited-support": "true", "x": "y"});
    let metadata = control_plane_of(example)["metadata"].clone();
    let found = metadata["annotations"].as_object().unwrap();
    for (key, value) in annotations.as_object().unwrap() {
        let is_mirrored = !key.contains("azure") && !key.contains("operator-image");
        assert_eq!(found.get(key) == Some(value), is_mirrored, "{key}");
    }
    assert_eq!(found["hypershift.openshift.io/cluster"], "clusters/harbour");
    assert_eq!(metadata["labels"]["api.openshift.com/limited-support"], "true");
    assert_eq!(metadata["labels"]["x"], Value::Null);
}

#[test]
fn restart_date_is_copied_with_a_record_of_the_copy() {
    let dates = |date: Value| {
        let mut example = example_json();
        example["metadata"]["annotations"]["hypershift.openshift.io/restart-date"] = date;
        let annotations = control_plane_of(example)["metadata"]["annotations"].clone();
        [RESTART_DATE_ANNOTATION, COPIED_RESTART_DATE_ANNOTATION]
            .map(|name| annotations[name].clone())
    };
    assert_eq!(dates(json!("2026-01-01")), [json!("2026-01-01"), json!("2026-01-01")]);
    assert_eq!(dates(json!("")), [Value::Null, Value::Null]);
}

#[test]
fn copies_have_fixed_names_and_only_the_needed_key() {
    let wire = example_with_changes(&[]);
    let source = json!({"data": {
        ".dockerconfigjson": "e30=", "id_rsa.pub": "c3No", "ca-bundle.crt": "PEM", "more": "x",
    }});
    let values: ReferencedValues = ReferencedObject::ALL
        .into_iter()
        .map(|object| (object, ReferencedValue::from_json(object, &source).unwrap()))
        .collect();
    let owner = ControlPlaneOwner::Known(OWNER_UID.to_owned());
    let mut desired = desired_objects_of(&wire);
    add_reference_copies(&mut desired, &validated_cluster(&wire), &owner, &values);
    assert!(desired.is_sorted_by_key(|object| (object.step, object.key.clone(), object.writer)));
    let cases = [
        (
            OwnedKind::Secret,
            "pull-secret",
            json!("kubernetes.io/dockerconfigjson"),
            json!({".dockerconfigjson": "e30="}),
        ),
        (OwnedKind::Secret, "ssh-key", json!("Opaque"), json!({"id_rsa.pub": "c3No"})),
        (OwnedKind::ConfigMap, "user-ca-bundle", Value::Null, json!({"ca-bundle.crt": "PEM"})),
    ];
    for (kind, name, secret_type, data) in cases {
        let object = find_object(&desired, kind, name);
        assert_eq!(object.value["type"], secret_type, "{name}");
        assert_eq!(object.value["data"], data, "{name}");
        assert_eq!(object.value["metadata"]["ownerReferences"][0]["uid"], OWNER_UID, "{name}");
        assert_eq!(object.value["metadata"]["labels"][MANAGED_BY_LABEL], MANAGED_BY_VALUE);
        // A digest of a credential would be readable in the metadata.
        let annotations = &object.value["metadata"]["annotations"];
        assert_eq!(annotations[DESIRED_STATE_HASH_ANNOTATION], Value::Null, "{name}");
        assert!(object.key.kind.info().writers.contains(&object.writer), "{name}");
    }
    let mut waiting = Vec::new();
    let absent = ControlPlaneOwner::Absent;
    add_reference_copies(&mut waiting, &validated_cluster(&wire), &absent, &values);
    assert_eq!(waiting, []);
}

#[test]
fn debug_output_has_no_copied_value() {
    let wire = example_with_changes(&[]);
    let source = json!({"data": {".dockerconfigjson": "planted"}});
    let object = ReferencedObject::PullSecret;
    let value = ReferencedValue::from_json(object, &source).unwrap();
    let values = BTreeMap::from([(object, value)]);
    let mut desired = Vec::new();
    add_reference_copies(
        &mut desired,
        &validated_cluster(&wire),
        &ControlPlaneOwner::WithoutUid,
        &values,
    );
    let mut live = desired[0].value.clone();
    live["metadata"]["resourceVersion"] = json!("1");
    live["metadata"]["uid"] = json!("u");
    let observed = ObservedObject::from_json(live).unwrap();
    let text = format!("{values:?} {desired:?} {observed:?}");
    assert!(!text.contains("planted") && text.contains("pull-secret"), "{text}");
    assert_eq!(ReferencedValue::from_json(ReferencedObject::SshKey, &source), None);
}
