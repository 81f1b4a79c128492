//! The CRDs in the chart and the Rust API types have the same fields.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::Resource;
use lanyard_api::pod_status::{SecretProviderClassObject, SecretProviderClassPodStatusStatus};
use lanyard_api::secret_provider_class::{SecretObject, SecretObjectData, SecretProviderClassSpec};
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use serde_json::{Value, json};

fn read_crd(file: &str) -> Value {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/lanyard-node/files/crds");
    let text = std::fs::read_to_string(chart.join(file)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn schema_of_version<'a>(definition: &'a Value, version: &str) -> &'a Value {
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|it| it["name"] == version).unwrap();
    &found["schema"]["openAPIV3Schema"]
}

/// Collects the paths of all leaves of a value; a list or a free-form map counts as one leaf.
fn collect_value_paths(value: &Value, at: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                collect_value_paths(inner, &format!("{at}.{name}"), paths);
            }
        }
        Value::Array(items) => items.iter().for_each(|it| collect_value_paths(it, at, paths)),
        _ => {
            paths.insert(at.to_owned());
        }
    }
}

fn collect_schema_paths(schema: &Value, at: &str, paths: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, inner) in properties {
            collect_schema_paths(inner, &format!("{at}.{name}"), paths);
        }
    } else if schema["type"] == "array" {
        collect_schema_paths(&schema["items"], at, paths);
    } else if schema["additionalProperties"].is_object() {
        paths.insert(format!("{at}.any"));
    } else {
        paths.insert(at.to_owned());
    }
}

/// An object with every field of the type set; free-form maps contain the key `any`.
fn class_with_all_fields() -> Value {
    let map = || BTreeMap::from([("any".to_owned(), "x".to_owned())]);
    let data = SecretObjectData {
        object_name: Some("x".to_owned()),
        key: Some("x".to_owned()),
        ..SecretObjectData::default()
    };
    let secret_object = SecretObject {
        secret_name: Some("x".to_owned()),
        secret_type: Some("x".to_owned()),
        labels: map(),
        annotations: map(),
        data: vec![data],
        ..SecretObject::default()
    };
    let spec = SecretProviderClassSpec {
        provider: Some("x".to_owned()),
        parameters: Some(map()),
        secret_objects: vec![secret_object],
        ..SecretProviderClassSpec::default()
    };
    json!({"spec": spec})
}

fn pod_status_with_all_fields() -> Value {
    let object = SecretProviderClassObject {
        id: Some("x".to_owned()),
        version: Some("x".to_owned()),
        ..SecretProviderClassObject::default()
    };
    let status = SecretProviderClassPodStatusStatus {
        pod_name: Some("x".to_owned()),
        secret_provider_class_name: Some("x".to_owned()),
        target_path: Some("x".to_owned()),
        mounted: Some(true),
        objects: vec![object],
        ..SecretProviderClassPodStatusStatus::default()
    };
    json!({"status": status})
}

fn assert_crd_matches<K: Resource>(definition: &Value) {
    let spec = &definition["spec"];
    assert_eq!(definition["metadata"]["name"], format!("{}.{}", K::URL_PATH_SEGMENT, K::GROUP));
    assert_eq!(spec["group"], K::GROUP);
    assert_eq!(spec["scope"], "Namespaced");
    assert_eq!(spec["names"]["kind"], K::KIND);
    assert_eq!(spec["names"]["plural"], K::URL_PATH_SEGMENT);
    let versions: Vec<_> = spec["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["storage"] == true, it["deprecated"] == true))
        .collect();
    assert_eq!(versions, [("v1", true, false), ("v1alpha1", false, true)]);
    assert_eq!(K::VERSION, "v1");
    let text = definition.to_string();
    for absent in ["required", "subresources", "additionalPrinterColumns", "conversion", "preserve"]
    {
        assert!(!text.contains(&format!("\"{absent}")), "{absent}");
    }
}

#[test]
fn class_schema_has_exactly_the_fields_of_the_type() {
    let definition = read_crd("secretproviderclasses.yaml");
    assert_crd_matches::<SecretProviderClass>(&definition);
    let mut of_type = BTreeSet::new();
    collect_value_paths(&class_with_all_fields(), "", &mut of_type);
    for version in ["v1", "v1alpha1"] {
        let mut of_schema = BTreeSet::new();
        let properties = &schema_of_version(&definition, version)["properties"];
        collect_schema_paths(&properties["spec"], ".spec", &mut of_schema);
        assert_eq!(of_schema, of_type, "{version}");
    }
}

#[test]
fn pod_status_schema_has_exactly_the_fields_of_the_type() {
    let definition = read_crd("secretproviderclasspodstatuses.yaml");
    assert_crd_matches::<SecretProviderClassPodStatus>(&definition);
    let mut of_type = BTreeSet::new();
    collect_value_paths(&pod_status_with_all_fields(), "", &mut of_type);
    for version in ["v1", "v1alpha1"] {
        let mut of_schema = BTreeSet::new();
        let properties = &schema_of_version(&definition, version)["properties"];
        collect_schema_paths(&properties["status"], ".status", &mut of_schema);
        assert_eq!(of_schema, of_type, "{version}");
    }
}
