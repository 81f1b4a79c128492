//! `lanyard rotate` and `lanyard refresh`: replace the certificates of service principals.

pub(crate) mod identity;
pub(crate) mod refresh;
mod refresh_cron_job;

use clap::Subcommand;
use lanyard_clock::SystemClock;
use lanyard_service_principals::{RotationOptions, ServicePrincipalNames};
use serde::Serialize;

use super::azure_account::{AccountArgs, AzureAccount};
use super::platform::PlatformCommand;
use super::service_principals::{
    EnvironmentArgs, ServicePrincipalRow, WaitArgs, rows_text, run_for_each,
};
use crate::exit::CommandResult;
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

/// What `rotate` and `refresh` have in common.
struct Rotation<'a> {
    environment: &'a EnvironmentArgs,
    account: &'a AccountArgs,
    wait: &'a WaitArgs,
    options: RotationOptions,
    output: CliOutputFormat,
}

/// The result of a rotation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RotationDocument {
    service_principals: Vec<ServicePrincipalRow>,
}

impl Rotation<'_> {
    /// Rotates the certificates of these service principals, and prints the result.
    async fn run(
        &self,
        names: &[ServicePrincipalNames],
        environment: &ProcessEnvironment,
    ) -> CommandResult {
        let clock = SystemClock::shared();
        let account = AzureAccount::sign_in(self.account, environment, &clock).await?;
        let tenant = account.caller().await?.tenant;
        let client = self.environment.client(&account, tenant, self.wait.timeout(), &clock)?;
        let existing =
            if self.options.only_due { client.existing(names).await } else { names.to_vec() };
        let run = run_for_each(&existing, async |names, observer| {
            client.rotate(names, self.options, observer).await
        })
        .await;
        let service_principals = run.rows(|it| Some(it));
        let document = RotationDocument { service_principals };
        output::print_value(&document, self.output, |line_width| {
            rows_text(&document.service_principals, line_width)
        })?;
        Ok(run.exit())
    }
}
