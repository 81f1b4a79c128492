//! `lanyard refresh identities azure`: replaces the certificates of an environment that are due.

use std::time::Duration;

use lanyard_service_principals::{RotationOptions, service_principal_components};

use super::Rotation;
use super::refresh_cron_job::{CronJobArgs, refresh_cron_job};
use crate::commands::azure_account::AccountArgs;
use crate::commands::rotation_timing::parse_duration;
use crate::commands::service_principals::{EnvironmentArgs, WaitArgs};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard refresh identities azure --prefix harbour-dev
  lanyard refresh identities azure --prefix harbour-dev --render-cron-job --image IMAGE \\
    --client-id 11111111-1111-1111-1111-111111111111 \\
    --subscription SUBSCRIPTION | kubectl apply -f -";

/// Replace the certificates of an environment in Azure that are due
///
/// A certificate is due from its `renew_after`, 90 days before it expires, and when the vault renewed it, because
/// the vault does not tell the application and the component. The command also removes earlier certificates
/// from the applications when the overlap has passed. The identity of KMS is included if it exists. Run the command
/// once a day, for example as a CronJob.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) environment: EnvironmentArgs,
    /// How long an application accepts both certificates
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = parse_duration)]
    overlap: Duration,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    pub(super) account: AccountArgs,
    #[command(flatten)]
    pub(super) cron_job: CronJobArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let names = args.environment.names(service_principal_components(true))?;
    if args.cron_job.render_cron_job {
        let manifest = refresh_cron_job(&args.cron_job, &args.environment, &args.account)?;
        output::print_stdout(&manifest)?;
        return Ok(CommandExit::Success);
    }
    let options = RotationOptions { only_due: true, overlap: args.overlap, wait: false };
    let Args { environment: of, account, wait, output, .. } = &args;
    let rotation = Rotation { environment: of, account, wait, options, output: output.format };
    rotation.run(&names, &environment).await
}
