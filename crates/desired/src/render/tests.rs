use k8s_openapi::ByteString;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixture::{
    AZURE, CONTROL_PLANE, EXAMPLE_YAML, desired_objects_of, desired_state_of, example_inputs,
    example_with_changes, validated_cluster,
};
use crate::hash::desired_state_hash;
use crate::objects::{
    ControlPlaneOwner, DesiredObjectInputs, desired_objects, without_ownership_marks,
};
use crate::templates::WorkloadTemplates;

fn rendered_files(objects: &[DesiredObject]) -> Vec<RenderedFile> {
    render_objects(objects).unwrap()
}

fn parsed_file(files: &[RenderedFile], name: &str) -> Value {
    let found = files.iter().find(|file| file.name == name).unwrap();
    serde_saphyr::from_str(&found.text).unwrap()
}

#[test]
fn the_example_as_files() {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    let inputs = DesiredObjectInputs {
        owner: ControlPlaneOwner::WithoutUid,
        ..example_inputs(&wire, &templates)
    };
    let files = rendered_files(&desired_objects(&validated_cluster(&wire), &inputs));
    let text: Vec<_> = files.iter().map(|file| format!("# {}\n{}", file.name, file.text)).collect();
    insta::assert_snapshot!(text.join("---\n"));
}

/// Returns a printed object in the form that an API server stores, without lanyard's marks.
fn stored_object(mut object: Value) -> Value {
    let texts = object.as_object_mut().unwrap().remove("stringData");
    if let Some(Value::Object(texts)) = texts {
        let bytes = |text: &Value| json!(ByteString(text.as_str().unwrap().as_bytes().to_vec()));
        let data = texts.iter().map(|(key, text)| (key.clone(), bytes(text)));
        object["data"] = Value::Object(data.collect());
    }
    without_ownership_marks(&object)
}

#[test]
fn printed_objects_hash_to_their_annotation() {
    let wire = example_with_changes(&[]);
    let templates = WorkloadTemplates::default();
    for owner in [ControlPlaneOwner::WithoutUid, ControlPlaneOwner::Known("u".to_owned())] {
        let inputs = DesiredObjectInputs { owner, ..example_inputs(&wire, &templates) };
        let files = rendered_files(&desired_objects(&validated_cluster(&wire), &inputs));
        for file in &files {
            let object = parsed_file(&files, &file.name);
            let printed = &object["metadata"]["annotations"][DESIRED_STATE_HASH_ANNOTATION];
            let expected = desired_state_hash(&stored_object(object.clone()));
            assert_eq!(*printed, expected, "{}", file.name);
        }
    }
}

#[test]
fn texts_that_look_like_something_else_stay_texts() {
    for name in ["true", "null", "123", "1e5", "0x1f", "0644", "-", "no", "on", "2026-11-21"] {
        let field = format!("{CONTROL_PLANE}/ingress/credentialsSecretName");
        let wire = example_with_changes(&[
            (field, json!(name)),
            (format!("{AZURE}/location"), json!("1e5")),
            (format!("{AZURE}/resourceGroup"), json!("0644")),
        ]);
        let (desired, files) =
            (desired_state_of(&wire), rendered_files(&desired_objects_of(&wire)));
        let class = parsed_file(&files, "secretproviderclass-managed-azure-ingress.yaml");
        let parameters = &class["spec"]["parameters"];
        assert_eq!(parameters["usePodIdentity"], "false");
        assert_eq!(parameters["useVMManagedIdentity"], "true");
        let wired = desired.secret_provider_class("managed-azure-ingress").unwrap();
        assert_eq!(parameters["objects"], wired.spec.parameters.as_ref().unwrap()["objects"]);
        let secret = parsed_file(&files, "secret-cloud-network-config-controller-creds.yaml");
        assert_eq!(secret["stringData"]["azure_region"], "1e5");
        assert_eq!(secret["stringData"]["azure_resourcegroup"], "0644");
        // YAML 1.1 parsers treat more words as booleans than this crate's parser.
        let text = &files.iter().find(|f| f.name.starts_with("secret-cloud-network")).unwrap().text;
        assert!(!text.contains(": 0644\n") && !text.contains(": 1e5\n"), "{text}");
    }
}

#[test]
fn every_file_parses_to_the_desired_object() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let files = rendered_files(&objects);
    let mut distinct: Vec<_> = objects.iter().map(|object| &object.key).collect();
    distinct.dedup();
    assert_eq!(files.len(), distinct.len());
    for object in &objects {
        let kind = object.key.kind.info().kind.to_lowercase();
        let read = parsed_file(&files, &format!("{kind}-{}.yaml", object.key.name));
        if object.key.kind == OwnedKind::Secret {
            assert_eq!(read["kind"], "Secret");
            assert!(read["stringData"].is_object() && read["data"].is_null(), "{}", object.key);
        } else if object.key.name != "managed-azure-kms" {
            assert_eq!(read, object.value, "{}", object.key);
        }
    }
    let config = parsed_file(&files, "secret-azure-kms-config.yaml");
    assert!(config["stringData"]["cloud.conf"].as_str().unwrap().ends_with("\n}"));
    let class = parsed_file(&files, "secretproviderclass-managed-azure-kms.yaml");
    let hash = &class["metadata"]["annotations"]["hypershift.openshift.io/desired-state-hash"];
    assert!(hash.is_string(), "the file is that of the writer with the mark");
}

#[test]
fn file_names_are_distinct_and_in_order() {
    let wire = example_with_changes(&[]);
    for files in [
        rendered_files(&desired_objects_of(&wire)),
        render_deployment_patches(&desired_state_of(&wire)).unwrap(),
    ] {
        assert!(files.is_sorted_by(|one, two| one.name < two.name));
        assert!(files.iter().all(|file| file.text.ends_with('\n')));
    }
}

#[test]
fn patches_for_unmanaged_deployments() {
    let files = render_deployment_patches(&desired_state_of(&example_with_changes(&[]))).unwrap();
    let text: Vec<_> = files.iter().map(|file| format!("# {}\n{}", file.name, file.text)).collect();
    insta::assert_snapshot!(text.join("---\n"));
}

/// Returns the document with the entries of every mapping in another order.
fn shuffled(value: &Value, seed: u64) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            let slot = usize::try_from(seed).unwrap() % entries.len().max(1);
            entries.rotate_left(slot);
            if seed % 2 == 1 {
                entries.reverse();
            }
            let entries: Vec<_> = entries
                .into_iter()
                .map(|(key, value)| format!("{}: {}", json!(key), shuffled(value, seed / 2 + 1)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| shuffled(item, seed)).collect();
            format!("[{}]", items.join(", "))
        }
        value => value.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_order_of_the_input_does_not_change_a_byte(seed in 0..1000_u64) {
        let value: Value = serde_saphyr::from_str(EXAMPLE_YAML).unwrap();
        let wire = lanyard_api::HostedCluster::parse_yaml(&shuffled(&value, seed)).unwrap();
        prop_assert_eq!(rendered_files(&desired_objects_of(&wire)), rendered_files(&desired_objects_of(&example_with_changes(&[]))));
    }
}
