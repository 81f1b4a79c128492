//! The CronJob that runs `lanyard refresh identities azure` once a day.

use lanyard_changes::{JournalContainerUrl, JournalLocation};
use lanyard_infra::stacks;
use lanyard_vocabulary::EntraClientId;
use serde_json::{Value, json};

use super::RotationArgs;
use crate::commands::azure_resources::shared_stack::journal_name;
use crate::commands::service_principals::EnvironmentArgs;
use crate::exit::CommandError;
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

/// The flags of the CronJob.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "CronJob")]
pub(super) struct CronJobArgs {
    /// Print a ServiceAccount and a CronJob that runs this command once a day, and do nothing else
    #[arg(long, requires_all = ["image", "client_id", "subscription"])]
    pub(super) render_cron_job: bool,
    /// The container image with this command
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The client id of the identity that the CronJob uses, by workload identity
    #[arg(long, value_name = "ID")]
    client_id: Option<EntraClientId>,
    /// The namespace of the CronJob
    #[arg(long, default_value = "lanyard", value_name = "NAMESPACE")]
    namespace: String,
}

const NAME: &str = "lanyard-refresh-identities";

/// The manifests as YAML documents.
pub(super) fn refresh_cron_job(
    cron_job: &CronJobArgs,
    environment: &EnvironmentArgs,
    rotation: &RotationArgs,
    process: &ProcessEnvironment,
) -> Result<String, CommandError> {
    let vault = environment.vault()?;
    let journal = journal_container(environment, rotation, process)?;
    let account = &rotation.account;
    let mut arguments = vec![
        "refresh".to_owned(),
        "identities".to_owned(),
        "azure".to_owned(),
        format!("--prefix={}", environment.prefix),
        format!("--vault={vault}"),
        format!("--cloud={}", account.cloud.name()),
        format!("--state={journal}"),
        format!("--overlap={}s", rotation.overlap.as_secs()),
        format!("--timeout={}s", rotation.wait.timeout.as_secs()),
    ];
    let lock_timeout = rotation.lock.lock_timeout.iter();
    arguments.extend(lock_timeout.map(|it| format!("--lock-timeout={}s", it.as_secs())));
    arguments.extend(account.subscription.iter().map(|id| format!("--subscription={id}")));
    let metadata = json!({ "name": NAME, "namespace": cron_job.namespace });
    let documents = [service_account(cron_job, &metadata), job(cron_job, &metadata, &arguments)];
    let documents =
        documents.map(|document| output::serialize_document(&document, CliOutputFormat::Yaml));
    Ok(documents.join("---\n"))
}

/// The container of the environment's journal, whose lease the CronJob shares with commands on other machines.
fn journal_container(
    environment: &EnvironmentArgs,
    rotation: &RotationArgs,
    process: &ProcessEnvironment,
) -> Result<JournalContainerUrl, CommandError> {
    let RotationArgs { account, state, .. } = rotation;
    let (Some(endpoints), Some(subscription)) = (account.cloud.endpoints(), &account.subscription)
    else {
        return Err(CommandError::invalid_input(
            "--render-cron-job needs --cloud and --subscription",
        ));
    };
    let name = journal_name(&stacks::IDENTITIES, &environment.prefix.to_string());
    match state.location(process, endpoints, subscription, &name)? {
        JournalLocation::Container(url) => Ok(url),
        JournalLocation::Directory(path) => Err(CommandError::invalid_input(format!(
            "--render-cron-job: the journal of the environment is the directory {}, which a pod cannot lock",
            path.display()
        ))
        .with_hint("name a blob container with --state or LANYARD_STATE, for this command and for all others that change the identities")),
    }
}

fn service_account(cron_job: &CronJobArgs, metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["annotations"] = json!({ "azure.workload.identity/client-id": cron_job.client_id });
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })
}

fn job(cron_job: &CronJobArgs, metadata: &Value, arguments: &[String]) -> Value {
    let container = json!({
        "name": "refresh",
        "image": cron_job.image,
        "args": arguments,
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    });
    let pod = json!({
        "metadata": { "labels": { "azure.workload.identity/use": "true" } },
        "spec": {
            "serviceAccountName": NAME,
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [container],
        },
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata,
        "spec": {
            "schedule": "17 3 * * *",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": { "spec": { "backoffLimit": 3, "template": pod } },
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, CliCommand};
    use crate::commands::rotate::RefreshCommand;
    use crate::settings::ProcessEnvironment;

    #[test]
    fn cron_job_runs_the_command_with_workload_identity() {
        let line = "lanyard refresh identities azure --prefix dev --vault dev-vault --render-cron-job \
                    --image registry.example/lanyard:1 --subscription s \
                    --client-id 11111111-1111-1111-1111-111111111111";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let CliCommand::Refresh(command) = cli.command else { panic!("{line}") };
        let RefreshCommand::Identities(platform) = command;
        let args = platform.into_args();
        let render = |journals: &str| {
            let journals = Some(journals.to_owned());
            let process = ProcessEnvironment { journals, ..ProcessEnvironment::default() };
            super::refresh_cron_job(&args.cron_job, &args.environment, &args.rotation, &process)
        };
        let error = render("state").unwrap_err().to_string();
        assert!(error.contains("which a pod cannot lock"), "{error}");
        let text = render("https://harbourstate.blob.core.windows.net/lanyard");
        insta::assert_snapshot!(text.unwrap());
    }
}
