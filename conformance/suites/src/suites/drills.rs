//! Drills of the local Azure against unmodified clients: the Azure SDKs for Python and Go, and the Azure CLI.
//!
//! Each client program starts its drill with the control API and reports how the client's behavior differs
//! from that on Azure.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use tokio::runtime::Runtime;

use super::failed_with_causes;
use crate::azure_target::LocalAzureTarget;
use crate::client_program::{ClientProgram, EnvironmentVariables};
use crate::local_azure::LocalAzureError;
use crate::sign_in_method::SignInMethod;
use crate::toolbox::{MissingTool, Toolbox};

/// The drills could not be prepared.
#[derive(Debug, Error)]
pub(crate) enum DrillSuiteError {
    #[error(transparent)]
    Tool(#[from] MissingTool),
    #[error(transparent)]
    ControlApi(#[from] LocalAzureError),
    #[error("the directory of the Azure CLI could not be created")]
    Directory(#[source] std::io::Error),
}

/// The client of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrillClient {
    /// azcore, azidentity and armresources.
    Go,
    /// azure-identity, azure-keyvault-secrets and azure-mgmt-resource.
    Python,
    AzureCli,
}

/// The cases: the client, the case of its program, and the behavior as the name of the trial. Cases of Go run
/// first, because they use the clock of the machine: later cases advance that of the local Azure.
const CASES: [(DrillClient, &str, &str); 14] = [
    (DrillClient::Go, "throttled", "go::arm_client_honours_retry_after"),
    (DrillClient::Go, "long-running-operations", "go::poller_follows_operations_to_their_end"),
    (DrillClient::Go, "certificates", "go::invalid_server_certificate_is_rejected"),
    (DrillClient::Python, "paging", "python::list_follows_pages_of_one"),
    (
        DrillClient::Python,
        "long-running-operations",
        "python::poller_follows_operations_to_their_end",
    ),
    (DrillClient::Python, "kv-throttled-at-boot", "python::secret_client_honours_retry_after"),
    (DrillClient::Python, "entra-brownout", "python::credential_repeats_failed_token_requests"),
    (DrillClient::Python, "imds-starting", "python::managed_identity_waits_for_imds"),
    (DrillClient::Python, "arm-429-on-destroy", "python::throttled_deletions_leave_nothing_over"),
    (DrillClient::Python, "rotate-during-rollout", "python::rotated_credentials_sign_in"),
    (
        DrillClient::Python,
        "mi-renewal-missed",
        "python::renewed_credential_replaces_an_expired_one",
    ),
    (DrillClient::AzureCli, "rbac-five-minutes", "azcli::new_principal_and_role_need_time"),
    (DrillClient::AzureCli, "principal-not-found", "azcli::role_assignment_is_repeated"),
    // Last, because it advances the time by more than a day.
    (DrillClient::Python, "issuer-key-rollover", "python::tokens_survive_a_key_rollover"),
];

#[derive(Debug, Deserialize)]
struct DrillOutcome {
    problems: Vec<String>,
}

/// The trials, one for each case.
pub(crate) fn trials(
    target: &LocalAzureTarget,
    python: &ClientProgram,
    tools: &Toolbox,
    runtime: &Arc<Runtime>,
) -> Result<Vec<Trial>, DrillSuiteError> {
    let go = tools.program_path("go-drills")?.to_path_buf();
    let azure_cli = tools.program_path("azure-cli")?.to_path_buf();
    let inputs = Arc::new(runtime.block_on(client_inputs(target))?);
    let environment = client_environment(target)?;
    let python = python.with_environment(environment.clone());
    let program = |client| match client {
        DrillClient::Go => ClientProgram::new(PathBuf::clone(&go), None, environment.clone()),
        DrillClient::Python => python.clone(),
        DrillClient::AzureCli => python.with_interpreter(PathBuf::clone(&azure_cli)),
    };
    Ok(CASES
        .iter()
        .map(|(client, case, name)| {
            let (program, inputs) = (program(*client), Arc::clone(&inputs));
            Trial::test(format!("drills::{name}"), move || run_case(&program, case, &inputs))
        })
        .collect())
}

fn run_case(program: &ClientProgram, case: &str, inputs: &Value) -> Result<(), Failed> {
    let answer = program.run_case(case, inputs).map_err(failed_with_causes)?;
    let outcome: DrillOutcome = serde_json::from_value(answer).map_err(failed_with_causes)?;
    if outcome.problems.is_empty() { Ok(()) } else { Err(outcome.problems.join("\n").into()) }
}

/// The credentials of the test clients, and the vault secret of a component.
async fn client_inputs(target: &LocalAzureTarget) -> Result<Value, LocalAzureError> {
    let mut inputs = target.command_variables().await?;
    let component = target.inputs(SignInMethod::ManagedIdentity);
    inputs["vault"] = component.vault.into();
    inputs["secret_name"] = component.secret_name.into();
    inputs["resource_group"] = component.resource_group.into();
    Ok(inputs)
}

/// The variables that route a client to the local Azure, with a profile and settings of the Azure CLI.
fn client_environment(target: &LocalAzureTarget) -> Result<EnvironmentVariables, DrillSuiteError> {
    let profile = target.directory().join("drills-profile");
    std::fs::create_dir_all(&profile).map_err(DrillSuiteError::Directory)?;
    let mut environment = target.client_environment();
    environment.insert("LANYARD_AZURE_CONTROL", target.control_api().url().into());
    environment.insert("AZURE_CONFIG_DIR", profile.into());
    for (name, value) in super::azcli::CLI_SETTINGS {
        environment.insert(name, value.into());
    }
    Ok(environment)
}
