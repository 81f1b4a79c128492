//! Runs the infrastructure commands as processes against a served local Azure, also killed with SIGKILL at every
//! request.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;
#[path = "infra_commands/preflight.rs"]
mod preflight;
#[path = "infra_commands/removal.rs"]
mod removal;

use infra_workspace::{InfraWorkspace, KillPosition};
use serde_json::Value;

const CREATE_INFRA: [&str; 5] = ["create", "infra", "azure", "--base-domain", "hcp.example.com"];
const WORKLOAD_IDENTITIES: [&str; 2] = ["--workload-identities-file", "iam.json"];

#[test]
fn created_cluster_has_an_empty_plan_until_something_drifts() {
    let workspace = InfraWorkspace::start();
    let before = workspace.resource_ids();
    let summary = workspace.succeed_json(&[
        "apply",
        "azure",
        "-f",
        "cluster.yaml",
        "--iam-output-file",
        "iam.json",
        "--infra-output-file",
        "infra.yaml",
    ]);
    assert_eq!(results(&summary, "created"), 49, "{summary}");
    let plan = workspace.succeed_json(&["plan", "azure", "-f", "cluster.yaml", "--exit-code"]);
    assert_eq!(plan["changes"], 0, "{plan}");

    workspace.delete_vnet_link();
    let (code, _) = workspace.run(&["plan", "azure", "-f", "cluster.yaml", "--exit-code"]);
    assert_eq!(code, Some(1));
    let summary = workspace.succeed_json(&["apply", "azure", "-f", "cluster.yaml"]);
    assert_eq!((results(&summary, "created"), results(&summary, "unchanged")), (1, 48));

    let output: Value = serde_saphyr::from_str(&workspace.read_file("infra.yaml")).unwrap();
    assert_eq!(output["infraID"], "harbour2-x7k2p");
    assert_eq!(output["workloadIdentities"].as_object().unwrap().len(), 8);
    for stack in ["infra", "iam"] {
        workspace.succeed_json(&InfraWorkspace::cluster_arguments(&["destroy", stack, "azure"]));
    }
    assert_eq!(workspace.resource_ids(), before);
}

#[test]
fn configuration_that_renames_or_moves_resources_is_not_applied() {
    let workspace = InfraWorkspace::start();
    let put = |path: &str, location: &str| {
        let body = serde_json::json!({ "location": location });
        workspace.resource_request(reqwest::Method::PUT, path, Some(body))
    };
    let network = "/resourceGroups/lanyard-dns/providers/Microsoft.Network";
    put(&format!("{network}/dnsZones/other.example.com?api-version=2018-05-01"), "global");
    let own = format!("{network}/networkSecurityGroups/own?api-version=2023-11-01");
    let own = put(&own, "eastus")["id"].as_str().unwrap().to_owned();
    let apply = ["apply", "azure", "-f", "cluster.yaml"];
    workspace.succeed_json(&apply);
    let complete = workspace.resource_ids();
    let configuration = workspace.read_file("cluster.yaml");
    let vnet = complete.iter().find(|id| id.contains("/virtualnetworks/harbour2-")).unwrap();
    let own = format!("baseDomain: hcp.example.com\n  networkSecurityGroupId: {own}");
    let vnet_of_lanyard = format!("baseDomain: hcp.example.com\n  vnetId: {vnet}");
    for (from, to, expected) in [
        (
            "harbour2-identities",
            "elsewhere",
            ["identity/disk: the journal records", "restore the earlier setting"],
        ),
        (
            "hcp.example.com",
            "other.example.com",
            ["private-zone: the journal records", "harbour2.other.example.com"],
        ),
        (
            "infraId:",
            "location: westus\ninfraId:",
            ["group: Azure cannot change the location of", "restore the earlier location"],
        ),
        ("baseDomain: hcp.example.com", &own, ["nsg: the journal records", "/own`"]),
        // The network stays, and so its group must.
        (
            "baseDomain: hcp.example.com",
            &vnet_of_lanyard,
            [
                "error (resource groups): the plan deletes the resource group of",
                "/virtualNetworks/",
            ],
        ),
    ] {
        std::fs::write(workspace.files().join("cluster.yaml"), configuration.replace(from, to))
            .unwrap();
        let (code, error) = workspace.run(&apply);
        assert_eq!(code, Some(1), "{to}: {error}");
        for text in expected {
            assert!(error.contains(text), "{text}: {error}");
        }
        assert_eq!(workspace.resource_ids(), complete, "{to}");
    }
    std::fs::write(workspace.files().join("cluster.yaml"), &configuration).unwrap();
    let plan = workspace.succeed_json(&["plan", "azure", "-f", "cluster.yaml"]);
    assert_eq!(plan["changes"], 0, "{plan}");
}

#[test]
fn role_with_another_scope_is_replaced_and_a_resource_that_is_gone_is_no_problem() {
    let workspace = InfraWorkspace::start();
    let vault = |name: &str| {
        let created = workspace.succeed_json(&["create", "keyvault", "azure", "--name", name]);
        assert_eq!(created["succeeded"], true);
        let is_it = |id: &&String| id.ends_with(&format!("/vaults/{name}"));
        workspace.resource_ids().iter().find(is_it).unwrap().clone()
    };
    let (first, second) = (vault("harbour-first"), vault("harbour-second"));
    let create = |vault: &str| {
        let cluster = ["create", "aks", "azure", "--prefix", "dev", "--key-vault-id", vault];
        workspace.succeed_json(&cluster)
    };
    create(&first);
    let roles_at = |vault: &str| {
        let ids = workspace.resource_ids();
        ids.iter().filter(|id| id.contains(vault) && id.contains("roleassignments")).count()
    };
    // The signed-in identity is an administrator of both vaults.
    assert_eq!((roles_at(&first), roles_at(&second)), (2, 1));
    create(&second);
    assert_eq!((roles_at(&first), roles_at(&second)), (1, 2));

    workspace.succeed_json(&["apply", "azure", "-f", "cluster.yaml"]);
    for stack in ["infra", "iam"] {
        let group =
            if stack == "infra" { "harbour2-harbour2-x7k2p" } else { "harbour2-identities" };
        let path = format!("/resourcegroups/{group}?api-version=2021-04-01");
        workspace.resource_request(reqwest::Method::DELETE, &path, None);
    }
    workspace.advance_clock(600);
    let configuration = workspace.read_file("cluster.yaml");
    let renamed = configuration.replace("harbour2-identities", "harbour2-workers");
    std::fs::write(workspace.files().join("cluster.yaml"), renamed).unwrap();
    workspace.succeed_json(&["apply", "azure", "-f", "cluster.yaml"]);
    assert_eq!(workspace.identities("harbour2-workers").len(), 8);
}

#[test]
fn cluster_without_a_journal_is_imported_and_removed() {
    let workspace = InfraWorkspace::start();
    let before = workspace.resource_ids();
    workspace.succeed_json(&["apply", "azure", "-f", "cluster.yaml"]);
    workspace.forget_journal();
    let destroy = InfraWorkspace::cluster_arguments(&["destroy", "infra", "azure"]);
    let (code, error) = workspace.run(&destroy);
    assert_eq!(code, Some(2));
    assert!(error.contains("lanyard import azure"), "{error}");
    let imported = workspace.succeed_json(&["import", "azure", "-f", "cluster.yaml"]);
    let results = imported.as_array().unwrap().iter().map(|it| it["result"].as_str().unwrap());
    assert_eq!(results.filter(|result| *result == "imported").count(), 49);
    workspace.succeed_json(&destroy);
    workspace.succeed_json(&InfraWorkspace::cluster_arguments(&["destroy", "iam", "azure"]));
    assert_eq!(workspace.resource_ids(), before);
}

#[test]
fn cluster_with_earlier_names_is_imported_completed_under_them_and_removed() {
    let workspace = InfraWorkspace::start();
    let before = workspace.resource_ids();
    let put = |path: &str, location: &str| {
        let body = serde_json::json!({ "location": location });
        workspace.resource_request(reqwest::Method::PUT, path, Some(body));
    };
    let main_group = "/resourceGroups/harbour2-harbour2-x7k2p";
    for suffix in ["", "-vnet", "-nsg"] {
        put(&format!("{main_group}{suffix}?api-version=2021-04-01"), "eastus");
    }
    let zone = "Microsoft.Network/privateDnsZones/harbour2-azurecluster.hcp.example.com";
    put(&format!("{main_group}/providers/{zone}?api-version=2024-06-01"), "global");
    let earlier: Vec<_> = workspace.resource_ids().difference(&before).cloned().collect();
    assert_eq!(earlier.len(), 4, "{earlier:?}");

    let imported = workspace.succeed_json(&["import", "azure", "-f", "cluster.yaml"]);
    let imported = imported.as_array().unwrap().iter().filter(|it| it["result"] == "imported");
    let mut imported: Vec<_> =
        imported.map(|it| it["id"].as_str().unwrap().to_ascii_lowercase()).collect();
    imported.sort();
    assert_eq!(imported, earlier);
    workspace.succeed_json(&["apply", "azure", "-f", "cluster.yaml"]);
    let complete = workspace.resource_ids();
    for id in [
        "-vnet/providers/microsoft.network/virtualnetworks/harbour2-harbour2-x7k2p",
        "-nsg/providers/microsoft.network/networksecuritygroups/harbour2-harbour2-x7k2p-nsg",
    ] {
        assert!(complete.iter().any(|it| it.ends_with(id)), "{id}: {complete:?}");
    }
    for name in ["harbour2-vnet-", "harbour2-nsg-", "/harbour2.hcp.example.com"] {
        assert!(!complete.iter().any(|it| it.contains(name)), "{name}: {complete:?}");
    }
    let plan = workspace.succeed_json(&["plan", "azure", "-f", "cluster.yaml", "--exit-code"]);
    assert_eq!(plan["changes"], 0, "{plan}");
    for stack in ["infra", "iam"] {
        workspace.succeed_json(&InfraWorkspace::cluster_arguments(&["destroy", stack, "azure"]));
    }
    assert_eq!(workspace.resource_ids(), before);
}

#[test]
fn resource_of_another_owner_in_a_group_stops_the_removal() {
    let workspace = InfraWorkspace::start();
    workspace.write_identities();
    workspace.succeed_json(&InfraWorkspace::cluster_arguments(
        &[&CREATE_INFRA[..], &WORKLOAD_IDENTITIES].concat(),
    ));
    workspace.put_foreign_address();
    let destroy = InfraWorkspace::cluster_arguments(&["destroy", "infra", "azure"]);
    let complete = workspace.resource_ids();
    let (code, error) = workspace.run(&destroy);
    assert_eq!(code, Some(2));
    assert!(error.contains("publicIPAddresses/foreign"), "{error}");
    assert_eq!(workspace.resource_ids(), complete);
    workspace.succeed_json(&[&destroy[..], &["--include-unrecorded".to_owned()]].concat());
}

#[test]
fn command_that_is_killed_at_any_request_is_continued() {
    let workspace = InfraWorkspace::start();
    workspace.write_identities();
    let create =
        InfraWorkspace::cluster_arguments(&[&CREATE_INFRA[..], &WORKLOAD_IDENTITIES].concat());
    let destroy = InfraWorkspace::cluster_arguments(&["destroy", "infra", "azure"]);
    let before = workspace.resource_ids();
    workspace.succeed_json(&create);
    let complete = workspace.resource_ids();
    workspace.succeed_json(&destroy);
    assert_eq!(workspace.resource_ids(), before);
    let mut kills = [0, 0];
    for position in [KillPosition::BeforeRequest, KillPosition::AfterRequest] {
        for request in 0.. {
            let created = workspace.kill_at(&create, "arm", request, position);
            workspace.succeed_json(&create);
            assert_eq!(workspace.resource_ids(), complete, "{request} {position:?}");
            let destroyed = workspace.kill_at(&destroy, "arm", request, position);
            workspace.succeed_json(&destroy);
            assert_eq!(workspace.resource_ids(), before, "{request} {position:?}");
            kills[0] += usize::from(created);
            kills[1] += usize::from(destroyed);
            if !created && !destroyed {
                break;
            }
        }
    }
    println!("killed create {} times and destroy {} times", kills[0], kills[1]);
    assert!(kills[0] >= 2 * 20 && kills[1] >= 2 * 5, "{kills:?}");
}

#[test]
fn killed_command_is_rolled_back() {
    let workspace = InfraWorkspace::start();
    workspace.write_identities();
    let create =
        InfraWorkspace::cluster_arguments(&[&CREATE_INFRA[..], &WORKLOAD_IDENTITIES].concat());
    let roll_back = [&create[..], &["--roll-back".to_owned()]].concat();
    let destroy = InfraWorkspace::cluster_arguments(&["destroy", "infra", "azure"]);
    let before = workspace.resource_ids();
    let mut kills = 0;
    for position in [KillPosition::BeforeRequest, KillPosition::AfterRequest] {
        for request in (9..).step_by(3) {
            if !workspace.kill_at(&create, "arm", request, position) {
                workspace.succeed_json(&destroy);
                break;
            }
            // The roll-back is killed, too, if it sends that many requests.
            workspace.kill_at(&roll_back, "arm", 6, position);
            let (code, error) = workspace.run(&roll_back);
            let is_rolled_back = error.contains("nothing to roll back");
            assert!(code == Some(0) || (code == Some(2) && is_rolled_back), "{code:?} {error}");
            assert_eq!(workspace.resource_ids(), before, "{request} {position:?}");
            kills += 1;
        }
    }
    assert!(kills >= 4, "{kills}");
    workspace.succeed_json(&create);
    let complete = workspace.resource_ids();
    let (code, error) = workspace.run(&roll_back);
    assert_eq!(code, Some(2));
    assert!(error.contains("nothing to roll back"), "{error}");
    assert!(error.contains("lanyard destroy"), "{error}");
    assert_eq!(workspace.resource_ids(), complete);
}

#[test]
fn command_with_its_journal_in_a_container_is_killed_and_continued() {
    let workspace = InfraWorkspace::start();
    workspace.write_identities();
    let state = ["--state".to_owned(), workspace.create_container()];
    let with_state =
        |arguments: &[&str]| [&InfraWorkspace::cluster_arguments(arguments)[..], &state].concat();
    let create = with_state(&[&CREATE_INFRA[..], &WORKLOAD_IDENTITIES].concat());
    let destroy = with_state(&["destroy", "infra", "azure"]);
    let before = workspace.resource_ids();
    workspace.succeed_json(&create);
    let complete = workspace.resource_ids();
    workspace.succeed_json(&destroy);
    let requests = [("blob", 1), ("blob", 6), ("blob", 11), ("blob", 20), ("arm", 12), ("arm", 18)];
    let mut kills = [0, 0];
    for position in [KillPosition::BeforeRequest, KillPosition::AfterRequest] {
        for (service, request) in requests {
            let runs = [(&create, &complete), (&destroy, &before)];
            for (kills, (arguments, expected)) in kills.iter_mut().zip(runs) {
                *kills += usize::from(workspace.kill_at(arguments, service, request, position));
                // The lease of the killed command ends.
                workspace.advance_clock(61);
                workspace.succeed_json(arguments);
                assert_eq!(&workspace.resource_ids(), expected, "{service} {request} {position:?}");
            }
        }
    }
    assert!(kills[0] >= 10 && kills[1] >= 6, "{kills:?}");
}

#[test]
fn second_command_says_which_one_uses_the_container() {
    let workspace = InfraWorkspace::start();
    let state = workspace.create_container();
    let apply = ["apply", "azure", "-f", "cluster.yaml", "--state", &state];
    workspace.while_held_at(&apply, ("blob", 8), |process| {
        let (code, error) = workspace.run(&[&apply[..], &["--lock-timeout", "0s"]].concat());
        assert_eq!(code, Some(3), "{error}");
        assert!(error.contains("another command holds the lease of `https://"), "{error}");
        assert!(error.contains(&format!("`lanyard apply azure`, process {process} on")), "{error}");
        // Reading needs no lease.
        workspace.succeed_json(&["plan", "azure", "-f", "cluster.yaml", "--state", &state]);
    });
    workspace.advance_clock(61);
    workspace.succeed_json(&apply);
}

#[test]
fn journal_on_a_host_that_is_no_storage_account_is_rejected() {
    const JOURNAL: &str = "https://evil.example/journals";
    let workspace = InfraWorkspace::start();
    let position = workspace.request_count();
    for command in [
        &["create", "keyvault", "azure", "--name", "harbour-dev"][..],
        &["destroy", "keyvault", "azure", "--name", "harbour-dev"],
        &["apply", "azure", "-f", "cluster.yaml"],
        &["plan", "azure", "-f", "cluster.yaml"],
    ] {
        let with_flag = [command, &["--state", JOURNAL]].concat();
        for (arguments, variable) in [(&with_flag[..], None), (command, Some(JOURNAL))] {
            let (code, error) = workspace.run_with(arguments, &[("LANYARD_STATE", variable)]);
            assert_eq!(code, Some(2), "{arguments:?}: {error}");
            let expected = "the journal: `evil.example` is not the host of a storage account";
            assert!(error.contains(expected), "{arguments:?}: {error}");
            assert!(error.contains("correct --state or LANYARD_STATE"), "{error}");
        }
    }
    let path = format!("request-log?since={position}");
    let log = workspace.control(reqwest::Method::GET, &path, None).to_string();
    assert!(!log.contains("evil.example"), "{log}");
    assert_eq!(workspace.writes_since(position), Vec::<String>::new());
}

/// The number of resources with this result in the summary of a run.
fn results(summary: &Value, result: &str) -> usize {
    let resources = summary["resources"].as_array().unwrap();
    resources.iter().filter(|it| it["result"] == result).count()
}
