//! `lanyard refresh identities azure`: replaces the certificates of an environment that are due.

use lanyard_service_principals::service_principal_components;

use super::refresh_cron_job::{CronJobArgs, refresh_cron_job};
use super::{Rotation, RotationArgs};
use crate::commands::service_principals::EnvironmentArgs;
use crate::exit::{CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard refresh identities azure --prefix harbour-dev
  lanyard refresh identities azure --prefix harbour-dev --render-cron-job --image IMAGE \\
    --client-id 11111111-1111-1111-1111-111111111111 --subscription SUBSCRIPTION \\
    --state https://account.blob.core.windows.net/lanyard/harbour-dev | kubectl apply -f -";

/// Replace the certificates of an environment in Azure that are due
///
/// A certificate is due from its `renew_after`, 90 days before it expires, and when the vault renewed it, because
/// the vault does not tell the application and the component. The command also removes earlier certificates
/// from the applications when the overlap has passed, and adds the certificate in the secret again if an application
/// lacks it. The identity of KMS is included if it exists. Run the command once a day, for example as a CronJob.
///
/// One command at a time changes the identities of an environment: the command locks the journal of the environment.
/// Commands on several machines, such as a CronJob, need a journal in a blob container.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) environment: EnvironmentArgs,
    #[command(flatten)]
    pub(super) rotation: RotationArgs,
    #[command(flatten)]
    pub(super) cron_job: CronJobArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let names = args.environment.names(service_principal_components(true))?;
    if args.cron_job.render_cron_job {
        let manifest =
            refresh_cron_job(&args.cron_job, &args.environment, &args.rotation, &environment)?;
        output::print_stdout(&manifest)?;
        return Ok(CommandExit::Success);
    }
    let Args { environment: of, rotation, .. } = &args;
    let rotation = Rotation { environment: of, args: rotation, only_due: true, waits: false };
    rotation.run(&names, &environment).await
}
