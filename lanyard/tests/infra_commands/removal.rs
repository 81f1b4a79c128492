//! Tests of removal: shared groups, locks, deleted vaults.

use reqwest::Method;
use serde_json::json;

use crate::infra_workspace::InfraWorkspace;

/// A command on a vault, whose create command creates the group `os4-common`.
fn vault(command: &str) -> [&str; 5] {
    [command, "keyvault", "azure", "--name", "harbour-dev"]
}

/// A command on a zone in the group `os4-common`.
fn zone(command: &str) -> [&str; 5] {
    [command, "dns", "azure", "--zone", "dev.hcp.example.com"]
}

/// A command on the identities of a cluster in the group `identities`.
fn identities(command: &str, cluster: &str) -> Vec<String> {
    let (infra_id, file) = (format!("{cluster}-x7k2p"), format!("{cluster}.json"));
    let mut arguments = vec![command, "iam", "azure", "--name", cluster, "--infra-id", &infra_id];
    if command == "create" {
        let issuer = "https://issuer.example.com/x";
        arguments.extend(["--resource-group-name", "identities", "--oidc-issuer-url", issuer]);
        arguments.extend(["--output-file", &file]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

/// The path of a lock below the subscription.
fn lock(scope: &str) -> String {
    format!("{scope}/providers/Microsoft.Authorization/locks/frozen?api-version=2020-05-01")
}

fn put_lock(workspace: &InfraWorkspace, scope: &str, level: &str) {
    let body = json!({ "properties": { "level": level } });
    workspace.resource_request(Method::PUT, &lock(scope), Some(body));
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn group_with_resources_of_another_stack_stays() {
    let workspace = InfraWorkspace::start();
    let before = workspace.resource_ids();
    workspace.succeed_json(&vault("create"));
    workspace.succeed_json(&zone("create"));
    let planned = workspace.succeed_json(&[&vault("destroy")[..], &["--dry-run"]].concat());
    let [group] = &planned["keptGroups"].as_array().unwrap()[..] else { panic!("{planned}") };
    let [other] = &group["otherResources"].as_array().unwrap()[..] else { panic!("{planned}") };
    assert_eq!(group["key"], "group");
    let other = other.as_str().unwrap();
    assert!(other.ends_with("/dev.hcp.example.com"), "{other}");

    // The flag does not delete what other stacks have in the group.
    let destroy = [&vault("destroy")[..], &["--include-unrecorded"]].concat();
    let (code, error) = workspace.run(&destroy);
    assert_eq!(code, Some(0), "{error}");
    let delete = "run `az group delete --subscription ";
    assert_contains(&error, &["the resource group `os4-common` stays", other, delete]);
    let ids = workspace.resource_ids();
    assert!(ids.contains(&other.to_ascii_lowercase()), "{ids:?}");
    assert!(!ids.iter().any(|id| id.contains("/vaults/harbour-dev")), "{ids:?}");

    // The journal does not record the group any more.
    let removed = workspace.succeed_json(&vault("destroy"));
    assert_eq!(removed["resources"], json!([]));
    workspace.succeed_json(&zone("destroy"));
    let ids = workspace.resource_ids();
    let left: Vec<_> = ids.difference(&before).collect();
    assert!(matches!(&left[..], [id] if id.ends_with("/resourcegroups/os4-common")), "{left:?}");
}

#[test]
fn identities_of_another_cluster_stay() {
    let workspace = InfraWorkspace::start();
    for cluster in ["harbour2", "lagoon"] {
        workspace.succeed_json(&identities("create", cluster));
    }
    let count = |cluster: &str| {
        workspace.identities("identities").iter().filter(|id| id.contains(cluster)).count()
    };
    let created = count("lagoon");
    assert!(created > 0);
    let removed = workspace.succeed_json(&identities("destroy", "harbour2"));
    assert_eq!(super::results(&removed, "unchanged"), 1, "{removed}");
    assert_eq!((count("harbour2"), count("lagoon")), (0, created));
    workspace.succeed_json(&identities("destroy", "lagoon"));
    assert_eq!(workspace.identities("identities"), Vec::<String>::new());
}

#[test]
fn group_is_removed_with_the_last_identities_if_the_cluster_created_it() {
    let workspace = InfraWorkspace::start();
    let before = workspace.resource_ids();
    for cluster in ["harbour2", "lagoon"] {
        workspace.succeed_json(&identities("create", cluster));
    }
    for cluster in ["lagoon", "harbour2"] {
        workspace.succeed_json(&identities("destroy", cluster));
    }
    assert_eq!(workspace.resource_ids(), before);
}

#[test]
fn lock_prevents_a_removal_before_its_first_write() {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&vault("create"));
    let group = "/resourceGroups/os4-common";
    let id = format!("{group}/providers/Microsoft.KeyVault/vaults/harbour-dev");
    for (scope, resource) in [("", ""), (group, group), (&*id, &*id)] {
        put_lock(&workspace, scope, "CanNotDelete");
        let position = workspace.request_count();
        for flags in [&[][..], &["--dry-run"]] {
            let (code, error) = workspace.run(&[&vault("destroy")[..], flags].concat());
            assert_eq!(code, Some(3), "{error}");
            let reason = "/locks/frozen` prevents the deletion of `/subscriptions/";
            let end = format!("{resource}`; nothing in Azure was removed");
            assert_contains(&error, &[reason, &end, "hint: remove the lock"]);
        }
        assert_eq!(workspace.writes_since(position), Vec::<String>::new());
        workspace.resource_request(Method::DELETE, &lock(scope), None);
    }
    workspace.succeed_json(&vault("destroy"));
}

#[test]
fn lock_of_the_subscription_prevents_a_creation() {
    let workspace = InfraWorkspace::start();
    put_lock(&workspace, "", "ReadOnly");
    let position = workspace.request_count();
    let (code, error) = workspace.run(&vault("create"));
    assert_eq!(code, Some(1), "{error}");
    assert_contains(&error, &["error (locks): ", "/locks/frozen` prevents the change of `group`"]);
    assert_eq!(workspace.writes_since(position), Vec::<String>::new());
    // This lock prevents deletions only.
    put_lock(&workspace, "", "CanNotDelete");
    workspace.succeed_json(&vault("create"));
}

#[test]
fn deleted_vault_keeps_its_name_until_it_is_purged() {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&vault("create"));
    let (code, error) = workspace.run(&vault("destroy"));
    assert_eq!(code, Some(0), "{error}");
    let restore = "--name harbour-dev --resource-group-name os4-common --location eastus --recover";
    assert_contains(&error, &["the name `harbour-dev` stays taken until 2", "--purge", restore]);

    // The journal does not record the vault any more.
    let purge = [&vault("destroy")[..], &["--purge"]].concat();
    let position = workspace.request_count();
    let (code, error) = workspace.run(&purge);
    assert_eq!(code, Some(0), "{error}");
    assert_contains(&error, &["The deleted vault `harbour-dev` is purged"]);
    let writes = workspace.writes_since(position);
    let path = "/locations/eastus/deletedVaults/harbour-dev/purge";
    assert!(matches!(&writes[..], [write] if write.contains(path)), "{writes:?}");
    let (code, error) = workspace.run(&purge);
    assert_eq!(code, Some(0), "{error}");
    assert_contains(&error, &["There is no deleted vault `harbour-dev` to purge"]);

    // A new vault has the name, and is deleted and purged in one run.
    workspace.succeed_json(&vault("create"));
    let (code, error) = workspace.run(&[&purge[..], &["--dry-run"]].concat());
    assert_eq!(code, Some(0), "{error}");
    assert_contains(&error, &["would be purged, unless it has purge protection"]);
    let (code, error) = workspace.run(&purge);
    assert_eq!(code, Some(0), "{error}");
    assert_contains(&error, &["The deleted vault `harbour-dev` is purged"]);
    workspace.succeed_json(&vault("create"));
}

#[test]
fn deleted_vault_that_lanyard_did_not_create_is_not_purged() {
    let workspace = InfraWorkspace::start();
    let group = "/resourceGroups/other";
    let location = json!({ "location": "eastus" });
    let path = format!("{group}?api-version=2021-04-01");
    workspace.resource_request(Method::PUT, &path, Some(location));
    let path =
        format!("{group}/providers/Microsoft.KeyVault/vaults/harbour-dev?api-version=2023-07-01");
    let body = json!({ "location": "eastus", "properties": {
        "tenantId": workspace.variable("AZURE_TENANT_ID"),
        "sku": { "family": "A", "name": "standard" },
        "enableRbacAuthorization": true,
    } });
    workspace.resource_request(Method::PUT, &path, Some(body));
    workspace.resource_request(Method::DELETE, &path, None);

    let (code, error) = workspace.run(&vault("create"));
    assert_eq!(code, Some(1), "{error}");
    let purge = "`az keyvault purge --name harbour-dev`";
    let own = "`lanyard destroy keyvault azure --name harbour-dev --purge`";
    assert_contains(&error, &["a deleted vault has the name `harbour-dev`", own, purge]);
    let position = workspace.request_count();
    for flags in [&["--purge"][..], &["--purge", "--dry-run"]] {
        let (code, error) = workspace.run(&[&vault("destroy")[..], flags].concat());
        assert_eq!(code, Some(2), "{error}");
        let reason = "lanyard did not create the deleted vault `harbour-dev`";
        assert_contains(&error, &[reason, purge]);
    }
    assert_eq!(workspace.writes_since(position), Vec::<String>::new());
}

#[test]
fn vault_with_purge_protection_is_not_purged() {
    let workspace = InfraWorkspace::start();
    let before = workspace.resource_ids();
    let create = [&vault("create")[..], &["--enable-purge-protection"]].concat();
    workspace.succeed_json(&create);
    let (code, error) = workspace.run(&[&vault("destroy")[..], &["--purge"]].concat());
    assert_eq!(code, Some(3), "{error}");
    let reason = "the deleted vault `harbour-dev` has purge protection, so Azure keeps it";
    assert_contains(&error, &[reason, "hint: restore it with `lanyard create keyvault azure "]);
    assert_eq!(workspace.resource_ids(), before);
}
