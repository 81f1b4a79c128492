use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::{HostedCluster, HostedClusterIdentities, HostedControlPlane};

fn definition_of(plural: &str) -> Value {
    let found = all().into_iter().find(|it| it.plural() == plural);
    found.unwrap_or_else(|| panic!("no `{plural}`")).value
}

fn schema_of(plural: &str) -> Value {
    definition_of(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every schema below a schema, with its path.
fn visit(schema: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        visit(field, &format!("{path}.{name}"), look);
    }
    if schema["items"].is_object() {
        visit(&schema["items"], &format!("{path}[]"), look);
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
fn every_text_and_list_is_bounded_and_every_requirement_has_its_field() {
    for definition in all() {
        let schema = &definition.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        visit(schema, definition.plural(), &mut |path, schema| {
            match schema["type"].as_str() {
                Some("string") => {
                    let bounded =
                        ["maxLength", "enum", "format"].iter().any(|key| !schema[*key].is_null());
                    assert!(bounded, "{path}");
                }
                Some("array") => assert!(schema["maxItems"].is_u64(), "{path}"),
                Some("object" | "integer") => {}
                other => panic!("{path}: {other:?}"),
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(schema["properties"][name.as_str().unwrap()].is_object(), "{path}.{name}");
            }
        });
    }
}

#[test]
fn what_is_of_others_is_kept_and_what_is_of_the_slice_is_not_guessed_at() {
    let schema = schema_of("hostedclusters");
    let mut open = BTreeSet::new();
    visit(&schema, "", &mut |path, schema| {
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            open.insert(path.to_owned());
        }
    });
    let expected = [
        ".spec",
        ".spec.capabilities",
        ".spec.dns",
        ".spec.platform",
        ".spec.secretEncryption",
        ".spec.secretEncryption.kms",
        ".spec.services[]",
        ".spec.services[].servicePublishingStrategy",
        ".status",
    ];
    assert_eq!(open.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn both_kinds_carry_the_same_platform_and_encryption() {
    let (cluster, control_plane) = (schema_of("hostedclusters"), schema_of("hostedcontrolplanes"));
    for field in ["platform", "secretEncryption", "infraID", "serviceAccountSigningKey"] {
        let of = |schema: &Value| schema["properties"]["spec"]["properties"][field].clone();
        assert!(of(&cluster).is_object(), "{field}");
        assert_eq!(of(&cluster), of(&control_plane), "{field}");
    }
}

#[test]
fn an_encoding_has_no_default_and_its_absence_is_refused() {
    let identities = schema_of("hostedclusters");
    let mut seen = 0;
    visit(&identities, "", &mut |path, schema| {
        if !schema["properties"]["objectEncoding"].is_null() {
            seen += 1;
            assert!(schema["properties"]["objectEncoding"]["default"].is_null(), "{path}");
            let required = schema["required"].as_array().unwrap();
            assert!(required.contains(&Value::from("objectEncoding")), "{path}");
        }
    });
    assert_eq!(seen, lanyard_vocabulary::Component::ALL.len());
}
