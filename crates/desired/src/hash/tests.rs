use proptest::prelude::*;
use serde_json::json;

use super::*;

fn class_json(extra: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "n", "namespace": "m", "ownerReferences": [{"name": "o", "uid": ""}]},
        "data": {"text": extra},
    })
}

#[test]
fn html_characters_are_escaped_as_in_go() {
    let object = json!({"b": "<a href=\"x\">&\u{2028}\u{2029}\n\t\u{1}é", "a": [1, true, null]});
    let expected = "{\"a\":[1,true,null],\"b\":\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\u2028\\u2029\\n\\t\\u0001é\"}";
    let mut text = String::new();
    write_go_json(&object, &mut text);
    assert_eq!(text, expected);
}

/// A class from an earlier HyperShift fixture, whose object had no name.
#[test]
fn reference_fixture_has_its_recorded_hash() {
    let class = json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": {
            "annotations": {DESIRED_STATE_HASH_ANNOTATION: "dropped with its map"},
            "creationTimestamp": null,
            "name": "managed-azure-kms",
            "namespace": "hcp-namespace",
            "ownerReferences": [{
                "apiVersion": "hypershift.openshift.io/v1beta1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "HostedControlPlane",
                "name": "hcp",
                "uid": "",
            }],
            "resourceVersion": "1",
        },
        "spec": {
            "parameters": {
                "keyvaultName": "test-keyvault",
                "objects": "\narray:\n  - |\n    objectName: \n    objectEncoding: \n    objectType: secret\n",
                "tenantId": "00000000-0000-0000-0000-000000000000",
                "usePodIdentity": "false",
                "useVMManagedIdentity": "true",
                "userAssignedIdentityID": "",
            },
            "provider": "azure",
        },
        "status": {},
    });
    assert_eq!(
        desired_state_hash(&class),
        "15b4a4a9b93edd31c926e34075d73501bc978dbbeb5c5070647eeba0fcae8143"
    );
}

#[test]
fn server_written_metadata_is_not_hashed() {
    let mut live = class_json("x");
    let hash = desired_state_hash(&live);
    live["metadata"]["uid"] = json!("u");
    live["metadata"]["generation"] = json!(3);
    live["metadata"]["creationTimestamp"] = Value::Null;
    live["metadata"]["resourceVersion"] = json!("1");
    live["metadata"]["managedFields"] = json!([{}]);
    live["metadata"]["annotations"] = json!({DESIRED_STATE_HASH_ANNOTATION: "old"});
    live["status"] = json!({});
    assert_eq!(desired_state_hash(&live), hash);
}

#[test]
fn an_empty_uid_of_an_owner_and_every_other_annotation_count() {
    let hash = desired_state_hash(&class_json("x"));
    let mut other = class_json("x");
    other["metadata"]["ownerReferences"][0].as_object_mut().unwrap().remove("uid");
    assert_ne!(desired_state_hash(&other), hash);
    let mut other = class_json("x");
    other["metadata"]["annotations"] = json!({"a": "b", DESIRED_STATE_HASH_ANNOTATION: "old"});
    assert_ne!(desired_state_hash(&other), hash);
}

#[test]
fn the_check_values_of_the_reference() {
    let hash = |bytes: &[u8]| config_hash([MountedValue::Bytes(bytes)]);
    assert_eq!(hash(b""), "741638a5");
    assert_eq!(hash(b"fake"), "87ecf31a");
    assert_eq!(config_hash([MountedValue::Text("")]), "811c9dc5");
    assert_eq!(config_hash([]), "");
}

#[test]
fn the_order_of_mounted_values_does_not_count_and_their_kind_does() {
    let (one, two) = (MountedValue::Text("a"), MountedValue::Bytes(b"b"));
    assert_eq!(config_hash([one, two]), config_hash([two, one]));
    assert_ne!(config_hash([MountedValue::Text("b")]), config_hash([two]));
}

/// Returns the value as JSON with the entries of each map in reverse order.
fn reversed_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<_> = map
                .iter()
                .rev()
                .map(|(key, value)| format!("{}:{}", json!(key), reversed_json(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(reversed_json).collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

proptest! {
    #[test]
    fn the_hash_ignores_the_order_of_keys_and_sees_every_byte(
        one in "\\PC{0,20}", other in "\\PC{0,20}", version in "[0-9]{1,9}",
    ) {
        let object = class_json(&one);
        let hash = desired_state_hash(&object);
        let turned: Value = serde_json::from_str(&reversed_json(&object)).unwrap();
        prop_assert_eq!(&desired_state_hash(&turned), &hash);
        let mut live = object;
        live["metadata"]["resourceVersion"] = json!(version);
        prop_assert_eq!(&desired_state_hash(&live), &hash);
        prop_assert_eq!(desired_state_hash(&class_json(&other)) == hash, one == other);
    }
}
