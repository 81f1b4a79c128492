//! Signs in as the examples for Azure Pipelines and GitHub Actions do: with three variables and a file with a token of
//! the pipeline's issuer, which is valid for ten minutes.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;

use infra_workspace::InfraWorkspace;
use reqwest::Method;
use serde_json::json;

#[test]
fn token_file_of_a_pipeline_signs_in_and_is_read_again() {
    let workspace = InfraWorkspace::start();
    let clients = workspace.control(Method::GET, "test-clients", None);
    let client = workspace.variable("AZURE_CLIENT_ID");
    for subject in ["sc://harbour/platform/lanyard", "repo:harbour/platform:environment:production"]
    {
        let credential = json!({
            "clientId": client, "issuer": clients["federated"]["issuer"], "subject": subject,
        });
        workspace.control(Method::POST, "federated-credentials", Some(credential));
        let token_file = workspace.files().join("azure-token");
        let write_token = || {
            let wanted = json!({ "subject": subject, "audience": "api://AzureADTokenExchange" });
            let minted = workspace.control(Method::POST, "federated-token", Some(wanted));
            // `printf '%s'` in the examples writes no line feed.
            std::fs::write(&token_file, minted["token"].as_str().unwrap()).unwrap();
        };
        let plan = || {
            workspace.run_with(
                &["plan", "azure", "-f", "cluster.yaml"],
                &[
                    ("AZURE_CLIENT_SECRET", None),
                    ("AZURE_FEDERATED_TOKEN_FILE", token_file.to_str()),
                ],
            )
        };
        write_token();
        let (code, error) = plan();
        assert_eq!(code, Some(0), "{subject}: {error}");

        // A token of Azure Pipelines is valid for ten minutes, so a long job has to replace the file.
        workspace.control(Method::POST, "clock", Some(json!({ "advanceSeconds": 900 })));
        let (code, error) = plan();
        assert_eq!(code, Some(3), "{subject}: {error}");
        assert!(error.contains("signing in to Azure failed"), "{error}");
        write_token();
        let (code, error) = plan();
        assert_eq!(code, Some(0), "{subject}: {error}");
    }
}
