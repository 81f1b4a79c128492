//! The applications of an environment in the journal, and those that it does not record.

use reqwest::Method;
use serde_json::{Value, json};

use crate::infra_workspace::{InfraWorkspace, KillPosition};
use crate::{arguments, block_on, changes};

const GRAPH: &str = "https://graph.microsoft.com";

fn workspace_with_vault() -> InfraWorkspace {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&["create", "keyvault", "azure", "--name", "dev-credentials"]);
    workspace
}

fn graph_request(
    workspace: &InfraWorkspace,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Value {
    let (scope, url) = (format!("{GRAPH}/.default"), format!("{GRAPH}/v1.0/{path}"));
    block_on(workspace.azure_request(&scope, method, &url, body))
}

/// The object ids of the environment's applications.
fn applications(workspace: &InfraWorkspace) -> Vec<String> {
    let listed =
        graph_request(workspace, Method::GET, "applications?$select=id,uniqueName&$top=500", None);
    let listed = listed["value"].as_array().unwrap().iter();
    let ours = listed.filter(|it| it["uniqueName"].as_str().is_some_and(|it| it.ends_with("-dev")));
    ours.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

/// The command with the journal in a directory of its own.
fn with_journal(command: &str, journal: &str, more: &[&str]) -> Vec<String> {
    arguments(&[command, "identities", "azure"], &[&["--state", journal], more].concat())
}

#[test]
fn applications_of_an_interrupted_creation_are_rolled_back_or_completed() {
    let workspace = workspace_with_vault();
    let create = with_journal("create", "journal", &[]);
    let mut counts = Vec::new();
    for request in [35, 39, 43] {
        assert!(workspace.kill_at(&create, "graph", request, KillPosition::AfterRequest));
        counts.push(applications(&workspace).len());
        let rolled_back =
            workspace.succeed_json(&with_journal("create", "journal", &["--roll-back"]));
        assert_eq!(rolled_back["succeeded"], true, "{rolled_back}");
        assert_eq!(applications(&workspace), [""; 0], "{request}");
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(workspace.kill_at(&create, "graph", 39, KillPosition::AfterRequest));
    let created = workspace.succeed_json(&create);
    assert!(changes(&created).iter().all(|count| *count >= 4), "{created}");
    let destroyed = workspace.succeed_json(&with_journal("destroy", "journal", &[]));
    assert_eq!(destroyed["dataPlane"]["succeeded"], true, "{destroyed}");
    assert_eq!(applications(&workspace), [""; 0]);
}

#[test]
fn applications_without_a_record_are_removed_by_their_unique_names() {
    let workspace = workspace_with_vault();
    workspace.succeed_json(&with_journal("create", "journal", &[]));
    let destroyed = workspace.succeed_json(&with_journal("destroy", "other", &[]));
    assert_eq!(changes(&destroyed)[..8], [3; 8], "{destroyed}");
    assert_eq!(applications(&workspace), [""; 0]);
}

#[test]
fn applications_that_nothing_shows_to_be_lanyard_s_stay_until_they_are_imported() {
    let workspace = workspace_with_vault();
    workspace.succeed_json(&with_journal("create", "journal", &[]));
    let created = applications(&workspace);
    assert_eq!(created.len(), 8);
    for id in &created {
        let path = format!("applications/{id}");
        graph_request(&workspace, Method::PATCH, &path, Some(json!({ "tags": [] })));
    }
    let second_run = workspace.succeed_json(&with_journal("create", "other", &[]));
    assert_eq!(changes(&second_run), [0; 8], "{second_run}");
    for purge in [&[][..], &["--purge"]] {
        workspace.succeed_json(&with_journal("destroy", "other", purge));
        assert_eq!(applications(&workspace), created);
    }
    workspace.succeed_json(&with_journal("create", "other", &["--import"]));
    assert_eq!(applications(&workspace), created);
    workspace.succeed_json(&with_journal("destroy", "other", &[]));
    assert_eq!(applications(&workspace), [""; 0]);
}
