use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::{HostedCluster, HostedClusterIdentities, HostedControlPlane};

fn definition_of(plural: &str) -> Value {
    let found = crd_manifests().into_iter().find(|it| it.plural() == plural);
    found.unwrap_or_else(|| panic!("no `{plural}`")).value
}

fn openapi_schema_of(plural: &str) -> Value {
    definition_of(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Calls `visitor` for every nested schema, with its path.
fn visit_subschemas(schema: &Value, path: &str, visitor: &mut impl FnMut(&str, &Value)) {
    visitor(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        visit_subschemas(field, &format!("{path}.{name}"), visitor);
    }
    if schema["items"].is_object() {
        visit_subschemas(&schema["items"], &format!("{path}[]"), visitor);
    }
}

#[test]
fn definitions_are_named_as_the_wire_types_are() {
    let cases = [
        ("hostedclusters", HostedCluster::API_VERSION, HostedCluster::KIND),
        ("hostedcontrolplanes", HostedControlPlane::API_VERSION, HostedControlPlane::KIND),
        (
            "hostedclusteridentities",
            HostedClusterIdentities::API_VERSION,
            HostedClusterIdentities::KIND,
        ),
    ];
    for (plural, api_version, kind) in cases {
        let spec = definition_of(plural)["spec"].clone();
        let version = format!(
            "{}/{}",
            spec["group"].as_str().unwrap(),
            spec["versions"][0]["name"].as_str().unwrap()
        );
        assert_eq!(version, api_version);
        assert_eq!(spec["names"]["kind"], kind);
        assert_eq!(spec["scope"], "Namespaced");
        assert!(spec["versions"][0]["subresources"]["status"].is_object(), "{plural}");
    }
}

#[test]
fn only_fields_without_cel_rules_are_unbounded() {
    let mut free = BTreeSet::new();
    for definition in crd_manifests() {
        let schema = &definition.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        visit_subschemas(schema, definition.plural(), &mut |path, schema| {
            let has = |keys: &[&str]| keys.iter().any(|key| !schema[*key].is_null());
            let bounded = match schema["type"].as_str() {
                Some("string") => has(&["maxLength", "enum", "format"]),
                Some("array") => has(&["maxItems"]),
                Some("object" | "integer" | "boolean") => true,
                other => panic!("{path}: {other:?}"),
            };
            if !bounded {
                free.insert(path.split_once('.').unwrap().1.to_owned());
            }
        });
    }
    let expected = [
        "apiVersion",
        "kind",
        "spec.additionalTrustBundle.name",
        "spec.pullSecret.name",
        "spec.secretEncryption.aescbc.activeKey.name",
        "spec.secretEncryption.aescbc.backupKey.name",
        "spec.secretEncryption.kms.ibmcloud.auth.unmanaged.credentials.name",
        "spec.serviceAccountSigningKey.name",
        "spec.sshKey.name",
    ];
    assert_eq!(free.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn every_required_field_is_described_by_the_schema() {
    for definition in crd_manifests() {
        let schema = &definition.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        visit_subschemas(schema, definition.plural(), &mut |path, schema| {
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(schema["properties"][name.as_str().unwrap()].is_object(), "{path}.{name}");
            }
        });
    }
}

#[test]
fn hosted_cluster_identities_schema_has_exactly_the_fields_of_the_type() {
    let time = "2026-01-01T00:00:00Z";
    let condition = json!({
        "type": "x", "status": "True", "reason": "x", "message": "x",
        "lastTransitionTime": time, "observedGeneration": 1,
    });
    let whole: HostedClusterIdentities = serde_json::from_value(json!({
        "status": {
            "observedGeneration": 1,
            "conditions": [condition],
            "drift": [{"kind": "x", "subject": "x", "message": "x", "since": time}],
            "identities": [{
                "component": "x", "clientID": "x", "secretProviderClass": "x", "ready": "True",
                "reason": "x", "message": "x", "lastGoodHop": "x", "failedHop": "x",
                "loadedVersion": "x", "notBefore": time, "notAfter": time, "renewAfter": time,
                "cannotRenewAfter": time, "since": time,
            }],
        },
    }))
    .unwrap();
    let whole = serde_json::to_value(whole.status).unwrap();
    let status = openapi_schema_of("hostedclusteridentities")["properties"]["status"].clone();
    let keys = |value: &Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&whole), keys(&status["properties"]));
    for list in ["identities", "conditions", "drift"] {
        let of_schema = keys(&status["properties"][list]["items"]["properties"]);
        assert_eq!(keys(&whole[list][0]), of_schema, "{list}");
    }
}

#[test]
fn only_listed_objects_preserve_unknown_fields() {
    let schema = openapi_schema_of("hostedclusters");
    let mut open = BTreeSet::new();
    visit_subschemas(&schema, "", &mut |path, schema| {
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            open.insert(path.to_owned());
        }
    });
    let expected = [".spec", ".spec.etcd", ".spec.networking", ".spec.platform", ".status"];
    assert_eq!(open.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn both_kinds_carry_the_same_platform_and_encryption() {
    let (cluster, control_plane) =
        (openapi_schema_of("hostedclusters"), openapi_schema_of("hostedcontrolplanes"));
    let fields =
        ["platform", "secretEncryption", "infraID", "serviceAccountSigningKey", "dns", "services"];
    for field in fields {
        let of = |schema: &Value| schema["properties"]["spec"]["properties"][field].clone();
        assert!(of(&cluster).is_object(), "{field}");
        assert_eq!(of(&cluster), of(&control_plane), "{field}");
    }
}

#[test]
fn control_plane_requires_what_the_control_plane_of_hypershift_requires() {
    let schema = openapi_schema_of("hostedcontrolplanes");
    let names = |pointer: &str| -> BTreeSet<String> {
        let names = schema.pointer(pointer).unwrap().as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let expected = [
        "dns",
        "etcd",
        "infraID",
        "issuerURL",
        "platform",
        "pullSecret",
        "releaseImage",
        "services",
        "sshKey",
    ];
    assert_eq!(names("/properties/spec/required"), expected.map(str::to_owned).into());
    assert_eq!(
        names("/properties/status/required"),
        ["initialized", "ready"].map(str::to_owned).into()
    );
    for name in ["initialized", "ready"] {
        assert_eq!(schema["properties"]["status"]["properties"][name]["default"], false);
    }
    let rules = schema["properties"]["spec"]["x-kubernetes-validations"].as_array().unwrap();
    let messages: Vec<_> = rules.iter().filter_map(|rule| rule["message"].as_str()).collect();
    assert_eq!(
        messages,
        [
            "secretEncryption cannot be removed once configured",
            "spec.services in body should have at least 4 items or 3 for IBMCloud"
        ]
    );
}

#[test]
fn an_encoding_has_no_default_and_its_absence_is_refused() {
    let identities = openapi_schema_of("hostedclusters");
    let mut observed = 0;
    visit_subschemas(&identities, "", &mut |path, schema| {
        if !schema["properties"]["objectEncoding"].is_null() {
            observed += 1;
            assert!(schema["properties"]["objectEncoding"]["default"].is_null(), "{path}");
            let required = schema["required"].as_array().unwrap();
            assert!(required.contains(&Value::from("objectEncoding")), "{path}");
        }
    });
    assert_eq!(observed, lanyard_vocabulary::Component::ALL.len());
}
