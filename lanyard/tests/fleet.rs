//! Runs `lanyard fleet` as processes against a served local Azure.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "fleet/fleet_workspace.rs"]
mod fleet_workspace;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;

use fleet_workspace::FleetWorkspace;
use serde_json::json;

#[test]
fn each_cluster_gets_its_issuer_and_each_application_an_identity_that_reads_only_its_secrets() {
    let fleet = FleetWorkspace::start(&["weu-1", "weu-2"], "enable");
    let (code, _) = fleet.azure.run(&["fleet", "plan", "--exit-code"]);
    assert_eq!(code, Some(1));
    let run = fleet.azure.succeed_json(&["fleet", "apply"]);
    assert_eq!(run["succeeded"], true, "{run}");

    for name in ["weu-1", "weu-2"] {
        let cluster = fleet.cluster(name);
        let properties = &cluster["properties"];
        let issuer = properties["oidcIssuerProfile"]["issuerURL"].as_str().unwrap();
        assert_eq!(properties["securityProfile"]["workloadIdentity"]["enabled"], true);
        // What another tool set stays.
        assert_eq!(properties["autoUpgradeProfile"]["upgradeChannel"], "stable", "{cluster}");
        assert_eq!(cluster["tags"], json!({ "owner": "platform" }));
        let credentials = fleet.credentials("web", name);
        let [credential] = &credentials[..] else { panic!("{credentials:?}") };
        assert_eq!(credential["properties"]["issuer"], issuer);
        assert_eq!(credential["properties"]["subject"], "system:serviceaccount:shop:web");
        assert_eq!(fleet.readers_of("db-password").len(), 2);
        assert!(fleet.readers_of("other").is_empty());
    }
    let sequence = fleet.azure.request_count();
    let run = fleet.azure.succeed_json(&["fleet", "apply"]);
    assert_eq!(run["succeeded"], true);
    assert_eq!(fleet.azure.writes_since(sequence), Vec::<String>::new());
    let (code, error) = fleet.azure.run(&["fleet", "plan", "--exit-code"]);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn selected_cluster_is_changed_and_the_others_are_not() {
    let fleet = FleetWorkspace::start(&["weu-1", "weu-2"], "enable");
    fleet.azure.succeed_json(&["fleet", "apply", "--cluster", "weu-2"]);
    assert_eq!(fleet.credentials("web", "weu-2").len(), 1);
    assert!(fleet.cluster("weu-1")["properties"]["oidcIssuerProfile"]["issuerURL"].is_null());
    assert_eq!(fleet.azure.identities("shop-identities").len(), 1);
    let (code, error) = fleet.azure.run(&["fleet", "plan", "--cluster", "weu-3"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("its clusters are weu-1, weu-2"), "{error}");
}

#[test]
fn cluster_without_an_issuer_stops_the_run_before_its_first_write() {
    let fleet = FleetWorkspace::start(&["weu-1", "weu-2"], "require");
    let sequence = fleet.azure.request_count();
    let (code, error) = fleet.azure.run(&["fleet", "apply"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("`weu-1` does not have an OIDC issuer and workload identity"),
        "{error}"
    );
    assert_eq!(fleet.azure.writes_since(sequence), Vec::<String>::new());
}

#[test]
fn drift_of_each_kind_is_repaired() {
    let fleet = FleetWorkspace::start(&["weu-1"], "enable");
    fleet.azure.succeed_json(&["fleet", "apply"]);
    let drifts: [&dyn Fn(); 4] = [
        &|| fleet.change_subject("web", "weu-1", "system:serviceaccount:shop:other"),
        &|| fleet.delete_credential("web", "weu-1"),
        &|| fleet.delete_readers_of("db-password"),
        &|| fleet.delete_identity("web", "weu-1"),
    ];
    for (number, drift) in drifts.into_iter().enumerate() {
        drift();
        let (code, error) = fleet.azure.run(&["fleet", "plan", "--exit-code"]);
        assert_eq!(code, Some(1), "{number}: {error}");
        fleet.azure.succeed_json(&["fleet", "apply"]);
        let (code, error) = fleet.azure.run(&["fleet", "plan", "--exit-code"]);
        assert_eq!(code, Some(0), "{number}: {error}");
        assert_eq!(fleet.credentials("web", "weu-1").len(), 1);
        assert_eq!(fleet.readers_of("db-password").len(), 1);
    }
}

#[test]
fn cluster_that_is_created_again_gets_a_credential_beside_the_earlier_one() {
    let fleet = FleetWorkspace::start(&["weu-1"], "enable");
    fleet.azure.succeed_json(&["fleet", "apply"]);
    let before = fleet.credentials("web", "weu-1");
    fleet.create_cluster_again("weu-1");
    fleet.azure.succeed_json(&["fleet", "apply"]);
    let after = fleet.credentials("web", "weu-1");
    assert_eq!(after.len(), 2, "{after:?}");
    assert!(after.contains(&before[0]));
    let cluster = fleet.cluster("weu-1");
    let issuer = &cluster["properties"]["oidcIssuerProfile"]["issuerURL"];
    assert!(after.iter().any(|it| it["properties"]["issuer"] == *issuer), "{after:?}");
    let (code, _) = fleet.azure.run(&["fleet", "plan", "--exit-code"]);
    assert_eq!(code, Some(0));
}

#[test]
fn failed_wave_leaves_the_clusters_of_later_waves_as_they_are() {
    let fleet = FleetWorkspace::start(&["weu-1", "weu-2", "weu-3"], "enable");
    let waves =
        "[{ name: first, matchLabels: { name: weu-2 } }, { name: rest, maxConcurrency: 2 }]";
    fleet.add_to_file(&format!("rollout: {{ waves: {waves} }}\n"));
    fleet.deny_identities_of("weu-2", true);
    let (code, run) = fleet.run_json(&["fleet", "apply"]);
    assert_eq!(code, Some(1), "{run}");
    assert_eq!(run["clusters"][0]["cluster"], "weu-2", "{run}");
    assert_eq!(run["notStarted"], json!(["weu-1", "weu-3"]));
    assert!(fleet.cluster("weu-1")["properties"]["oidcIssuerProfile"]["issuerURL"].is_null());

    fleet.deny_identities_of("weu-2", false);
    let run = fleet.azure.succeed_json(&["fleet", "apply", "--wave", "first"]);
    assert_eq!(run["clusters"].as_array().unwrap().len(), 1, "{run}");
    let run = fleet.azure.succeed_json(&["fleet", "apply"]);
    assert_eq!(run["clusters"].as_array().unwrap().len(), 3, "{run}");
    assert_eq!(fleet.readers_of("db-password").len(), 3);
}

#[test]
fn identity_of_somebody_else_gets_no_access() {
    let fleet = FleetWorkspace::start(&["weu-1"], "enable");
    fleet.create_identity("web", "weu-1");
    let sequence = fleet.azure.request_count();
    let (code, error) = fleet.azure.run(&["fleet", "apply"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("set `identityName` of the application to another name"), "{error}");
    assert_eq!(fleet.azure.writes_since(sequence), Vec::<String>::new());
}

#[test]
fn cluster_that_cannot_be_read_does_not_hide_the_plans_of_the_others() {
    let fleet = FleetWorkspace::start(&["weu-1", "weu-2"], "enable");
    fleet.delete_cluster("weu-1");
    let (code, plan) = fleet.run_json(&["fleet", "plan"]);
    assert_eq!(code, Some(1), "{plan}");
    let error = plan["clusters"][0]["error"].as_str().unwrap();
    assert!(error.contains("the cluster `weu-1` does not exist"), "{error}");
    assert_eq!(plan["clusters"][1]["changes"], 5, "{plan}");
}
