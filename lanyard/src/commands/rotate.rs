//! `lanyard rotate` and `lanyard refresh`: replace the certificates of service principals.

pub(crate) mod identity;
pub(crate) mod refresh;
mod refresh_cron_job;

use clap::Subcommand;
use lanyard_service_principals::RotationOutcome;
use serde::Serialize;

use super::platform::PlatformCommand;
use super::service_principals::{EnvironmentRun, ServicePrincipalRow, rows_text};
use crate::exit::{CommandError, CommandResult};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard rotate`.
#[derive(Debug, Subcommand)]
pub(crate) enum RotateCommand {
    /// Replace the certificate of a component now
    Identity {
        #[command(subcommand)]
        platform: PlatformCommand<identity::Args>,
    },
}

/// The subcommands of `lanyard refresh`.
#[derive(Debug, Subcommand)]
pub(crate) enum RefreshCommand {
    /// Replace the certificates of an environment that are due
    Identities {
        #[command(subcommand)]
        platform: PlatformCommand<refresh::Args>,
    },
}

/// Runs `lanyard rotate`.
pub(crate) async fn run_rotate(
    command: RotateCommand,
    environment: ProcessEnvironment,
) -> CommandResult {
    let RotateCommand::Identity { platform } = command;
    identity::run(platform.into_args(), environment).await
}

/// Runs `lanyard refresh`.
pub(crate) async fn run_refresh(
    command: RefreshCommand,
    environment: ProcessEnvironment,
) -> CommandResult {
    let RefreshCommand::Identities { platform } = command;
    refresh::run(platform.into_args(), environment).await
}

/// The result of a rotation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RotationDocument {
    service_principals: Vec<ServicePrincipalRow>,
}

/// Prints the result of a rotation; returns the exit code.
fn print_result(run: &EnvironmentRun<RotationOutcome>, format: CliOutputFormat) -> CommandResult {
    let service_principals = run.rows(|outcome| Some(&outcome.service_principal));
    let text = match format {
        CliOutputFormat::Table => rows_text(&service_principals),
        format => output::serialize_document(&RotationDocument { service_principals }, format),
    };
    output::print_stdout(&text)?;
    Ok(run.exit())
}

/// The overlap of a rotation as the time type of its client.
fn signed_overlap(overlap: std::time::Duration) -> Result<jiff::SignedDuration, CommandError> {
    overlap.try_into().map_err(|error: jiff::Error| {
        CommandError::invalid_input("--overlap is too long").with_cause(&error)
    })
}
