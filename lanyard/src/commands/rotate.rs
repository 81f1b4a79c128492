//! `lanyard rotate` and `lanyard refresh`: replace the certificates of service principals.

pub(crate) mod identity;
pub(crate) mod refresh;
mod refresh_cron_job;

use std::time::Duration;

use clap::Subcommand;
use lanyard_clock::SystemClock;
use lanyard_service_principals::{
    CreatedServicePrincipal, RotationOptions, ServicePrincipalClient, ServicePrincipalNames,
};
use serde::Serialize;

use super::azure_account::{AccountArgs, AzureAccount};
use super::azure_resources::journal_args::{LockArgs, StateArgs};
use super::platform::PlatformCommand;
use super::rotation_timing::parse_duration;
use super::service_principals::{
    EnvironmentArgs, EnvironmentRun, ServicePrincipalRow, WaitArgs, rows_text, run_for_each,
};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard rotate`.
#[derive(Debug, Subcommand)]
pub(crate) enum RotateCommand {
    /// Replace the certificate of a component now
    #[command(subcommand)]
    Identity(PlatformCommand<identity::Args>),
}

/// The subcommands of `lanyard refresh`.
#[derive(Debug, Subcommand)]
pub(crate) enum RefreshCommand {
    /// Replace the certificates of an environment that are due
    #[command(subcommand)]
    Identities(PlatformCommand<refresh::Args>),
}

/// Runs `lanyard rotate`.
pub(crate) async fn run_rotate(
    command: RotateCommand,
    environment: ProcessEnvironment,
) -> CommandResult {
    let RotateCommand::Identity(platform) = command;
    identity::run(platform.into_args(), environment).await
}

/// Runs `lanyard refresh`.
pub(crate) async fn run_refresh(
    command: RefreshCommand,
    environment: ProcessEnvironment,
) -> CommandResult {
    let RefreshCommand::Identities(platform) = command;
    refresh::run(platform.into_args(), environment).await
}

/// The last flags of `rotate` and `refresh`.
#[derive(Debug, clap::Args)]
pub(crate) struct RotationArgs {
    /// How long an application accepts both certificates: longer than 2.1 poll intervals of the mounted files
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = parse_duration)]
    overlap: Duration,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    lock: LockArgs,
    #[command(flatten)]
    account: AccountArgs,
}

/// The result of a rotation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RotationDocument {
    service_principals: Vec<ServicePrincipalRow>,
}

/// What `rotate` and `refresh` have in common.
struct Rotation<'a> {
    environment: &'a EnvironmentArgs,
    args: &'a RotationArgs,
    /// Whether only certificates are replaced that are due.
    only_due: bool,
    /// Whether the command waits for the overlap and then retires the earlier certificates.
    waits: bool,
}

impl Rotation<'_> {
    /// Rotates the certificates of these service principals, and prints the result.
    ///
    /// The journal of the environment is locked while service principals are changed, but not during the overlap.
    async fn run(
        &self,
        names: &[ServicePrincipalNames],
        environment: &ProcessEnvironment,
    ) -> CommandResult {
        let RotationArgs { overlap, output, wait, account, state, lock } = self.args;
        let clock = SystemClock::shared();
        let account = AzureAccount::sign_in(account, environment, &clock).await?;
        let tenant = account.caller().await?.tenant;
        let client = self.environment.client(&account, tenant, wait.timeout, &clock)?;
        let stack = self.environment.stack(&account, environment);
        let journal = stack.journal(state, lock, &clock)?;
        let options = RotationOptions { only_due: self.only_due, overlap: *overlap };
        let mut run = journal.with_lock(rotate(&client, names, options)).await?;
        let mut is_finished = true;
        if self.waits && run.successes().next().is_some() {
            clock.sleep(*overlap).await;
            // The new certificates are in use, so the result is printed in any case.
            if let Err(error) = journal.with_lock(finish(&client, &mut run, *overlap)).await {
                output::print_stderr(&format!("error: {error}"));
                output::print_stderr(
                    "hint: the next `lanyard refresh identities azure` removes the earlier certificates",
                );
                is_finished = false;
            }
        }
        let service_principals = run.rows(|it| Some(it));
        let document = RotationDocument { service_principals };
        output::print_value(&document, output.format, |line_width| {
            rows_text(&document.service_principals, line_width)
        })?;
        Ok(if is_finished { run.exit() } else { CommandExit::Failed })
    }
}

async fn rotate(
    client: &ServicePrincipalClient,
    names: &[ServicePrincipalNames],
    options: RotationOptions,
) -> EnvironmentRun<CreatedServicePrincipal> {
    let existing = if options.only_due { client.existing(names).await } else { names.to_vec() };
    run_for_each(&existing, async |names, observer| client.rotate(names, options, observer).await)
        .await
}

/// Retires the earlier certificates of the service principals whose rotation succeeded.
async fn finish(
    client: &ServicePrincipalClient,
    rotated: &mut EnvironmentRun<CreatedServicePrincipal>,
    overlap: Duration,
) {
    rotated
        .continue_each(async |names, rotated, observer| {
            client.finish_rotation(names, rotated, overlap, observer).await
        })
        .await;
}
