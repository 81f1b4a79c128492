use serde_json::{Value, json};

use super::*;

/// A graph of the given workspace members; `foreign` contains external packages.
fn test_graph(members: &[Value], foreign: &[Value]) -> CrateGraph {
    let named = |package: &Value| {
        let name = package["name"].as_str().expect("every package is named");
        json!({
            "id": name,
            "name": name,
            "publish": package.get("publish").cloned().unwrap_or_else(|| json!([])),
            "targets": [],
            "dependencies": package["needs"].as_array().into_iter().flatten().map(|it| json!({
                "name": it["name"],
                "kind": it["kind"],
                "features": it.get("features").cloned().unwrap_or_else(|| json!([])),
            })).collect::<Vec<_>>(),
        })
    };
    let node = |package: &Value| {
        json!({
            "id": package["name"],
            "deps": package["needs"].as_array().into_iter().flatten().map(|it| json!({
                "pkg": it["name"], "dep_kinds": [{ "kind": it["kind"] }],
            })).collect::<Vec<_>>(),
        })
    };
    let all: Vec<&Value> = members.iter().chain(foreign).collect();
    let metadata = json!({
        "packages": all.iter().map(|it| named(it)).collect::<Vec<_>>(),
        "workspace_members": members.iter().map(|it| it["name"].clone()).collect::<Vec<_>>(),
        "resolve": { "nodes": all.iter().map(|it| node(it)).collect::<Vec<_>>() },
    });
    CrateGraph::parse(metadata.to_string().as_bytes()).expect("the metadata is well formed")
}

fn findings_of_dependency(from: &str, to: &Value) -> Vec<String> {
    let mut members = vec![json!({ "name": from, "needs": [to] })];
    let target = to["name"].as_str().expect("every dependency is named");
    let mut foreign = Vec::new();
    if layer_of(target).is_some() {
        members.push(json!({ "name": target, "needs": [] }));
    } else {
        foreign.push(json!({ "name": target, "needs": [] }));
    }
    layer_findings(&test_graph(&members, &foreign))
}

#[test]
fn dependencies_on_lower_layers_are_allowed() {
    for (from, to) in [
        ("lanyard", "lanyard-up"),
        ("lanyard-up", "lanyard-emulator"),
        ("lanyard", "lanyard-emulator-session"),
        ("lanyard-keyvault", "lanyard-api"),
        ("lanyard-emulator", "lanyard-vocabulary"),
        ("lanyard-conformance", "lanyard-node"),
    ] {
        assert_eq!(
            findings_of_dependency(from, &json!({ "name": to })),
            Vec::<String>::new(),
            "{from} -> {to}"
        );
    }
}

#[test]
fn dependencies_on_same_or_higher_layers_are_found() {
    for (from, to) in [
        ("lanyard-vocabulary", "lanyard-api"),
        ("lanyard-clock", "lanyard-vocabulary"),
        ("lanyard-desired", "lanyard-azure"),
        ("lanyard-keyvault", "lanyard-node"),
        ("lanyard-node", "xtask"),
    ] {
        for kind in [json!(null), json!("dev"), json!("build")] {
            let found = findings_of_dependency(from, &json!({ "name": to, "kind": kind }));
            assert_eq!(found.len(), 1, "{from} -> {to} as {kind}: {found:?}");
        }
    }
}

#[test]
fn only_node_tests_may_use_the_kubelet_fake() {
    let kubelet =
        |kind| json!({ "name": "lanyard-kubelet", "kind": kind, "features": Vec::<String>::new() });
    assert_eq!(
        findings_of_dependency("lanyard-node", &kubelet(json!("dev"))),
        Vec::<String>::new()
    );
    for (from, kind) in [
        ("lanyard-node", json!(null)),
        ("lanyard-node", json!("build")),
        ("lanyard-operator", json!("dev")),
        ("lanyard-up", json!(null)),
    ] {
        let found = findings_of_dependency(from, &kubelet(kind.clone()));
        assert_eq!(found.len(), 1, "{from} as {kind}: {found:?}");
    }
}

#[test]
fn only_allowed_crates_link_the_emulator() {
    for from in ["lanyard-keyvault", "lanyard-node", "lanyard-conformance"] {
        let found =
            findings_of_dependency(from, &json!({ "name": "lanyard-emulator", "kind": "dev" }));
        assert!(found.concat().contains("over a socket"), "{from}: {found:?}");
    }
    let found =
        findings_of_dependency("lanyard-up", &json!({ "name": "lanyard-emulator-session" }));
    assert!(found.concat().contains("over a socket"), "{found:?}");
    let found =
        findings_of_dependency("lanyard-emulator", &json!({ "name": "lanyard-credential" }));
    assert!(found.concat().contains("only the vocabulary and the clock"), "{found:?}");
}

#[test]
fn crate_without_layer_is_found() {
    let found = layer_findings(&test_graph(&[json!({ "name": "lanyard-new", "needs": [] })], &[]));
    assert_eq!(found, ["lanyard-new is not in the table of layers"]);
}

#[test]
fn a_row_without_a_crate_is_found() {
    let (retained, gone) = (&LAYERS[1..], LAYERS[0].0);
    let members: Vec<Value> = retained.iter().map(|(name, ..)| json!({ "name": name })).collect();
    let expected = format!("{gone} is in the table of layers and no crate");
    assert_eq!(rows_without_crate(&test_graph(&members, &[])), [expected]);
}

#[test]
fn runtime_free_crates_have_no_indirect_runtime_dependency() {
    let found = layer_findings(&test_graph(
        &[json!({ "name": "lanyard-desired", "needs": [{ "name": "between" }] })],
        &[
            json!({ "name": "between", "needs": [{ "name": "tokio" }] }),
            json!({ "name": "tokio", "needs": [] }),
        ],
    ));
    assert_eq!(found, ["lanyard-desired must not depend on tokio"]);
}

#[test]
fn tests_of_runtime_free_crates_may_use_a_runtime() {
    let found =
        findings_of_dependency("lanyard-desired", &json!({ "name": "tokio", "kind": "dev" }));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn clock_uses_only_the_time_feature_of_tokio() {
    let time = json!({ "name": "tokio", "features": ["time"] });
    assert_eq!(findings_of_dependency("lanyard-clock", &time), Vec::<String>::new());
    let more = json!({ "name": "tokio", "features": ["time", "net"] });
    assert_eq!(findings_of_dependency("lanyard-clock", &more).len(), 1);
}

#[test]
fn kubernetes_client_is_allowed_from_layer_four() {
    assert_eq!(findings_of_dependency("lanyard-azure", &json!({ "name": "kube" })).len(), 1);
    assert_eq!(
        findings_of_dependency("lanyard-operator", &json!({ "name": "kube" })),
        Vec::<String>::new()
    );
}

#[test]
fn published_crates_need_only_published_ones() {
    let members = |publish: Value| {
        [
            json!({ "name": "lanyard-credential", "publish": null, "needs": [{ "name": "lanyard-clock" }] }),
            json!({ "name": "lanyard-clock", "publish": publish, "needs": [] }),
        ]
    };
    assert_eq!(layer_findings(&test_graph(&members(json!(null)), &[])), Vec::<String>::new());
    let found = layer_findings(&test_graph(&members(json!([])), &[]));
    assert!(found.concat().contains("published"), "{found:?}");
}

#[test]
fn banned_crates_are_found_in_manifests() {
    for name in BANNED_CRATES {
        assert_eq!(
            findings_of_dependency("lanyard-node", &json!({ "name": name })).len(),
            1,
            "{name}"
        );
    }
}

#[test]
fn every_layer_of_the_table_is_listed_once() {
    let names: BTreeSet<&str> = LAYERS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), LAYERS.len());
}
