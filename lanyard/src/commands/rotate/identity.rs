//! `lanyard rotate identity azure`: replaces the certificate of a component now.

use std::time::Duration;

use lanyard_service_principals::RotationOptions;
use lanyard_vocabulary::Component;

use super::Rotation;
use crate::commands::azure_account::AccountArgs;
use crate::commands::rotation_timing::parse_duration;
use crate::commands::service_principals::{EnvironmentArgs, WaitArgs};
use crate::exit::CommandResult;
use crate::output::OutputArgs;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard rotate identity azure --prefix harbour-dev --component controlPlaneOperator";

/// Replace the certificate of a component in Azure now
///
/// Creates a certificate in the vault, adds it to the application, requests a token with it, and writes the secret
/// that the component reads. After the overlap, the application no longer accepts the earlier certificate. The
/// overlap must be longer than the rotation interval of the secrets provider, which is 2 minutes by default.
///
/// An interrupted rotation leaves a working credential. The next rotation or refresh continues it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// The component, such as `disk` or `controlPlaneOperator`; can be repeated
    #[arg(long, required = true, value_name = "COMPONENT")]
    component: Vec<Component>,
    /// How long the application accepts both certificates
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = parse_duration)]
    overlap: Duration,
    /// Do not wait for the overlap; `lanyard refresh identities azure` removes the earlier certificate later
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    account: AccountArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let names = args.environment.names(args.component.iter().copied())?;
    let options = RotationOptions { only_due: false, overlap: args.overlap, wait: !args.no_wait };
    let Args { environment: of, account, wait, output, .. } = &args;
    let rotation = Rotation { environment: of, account, wait, options, output: output.format };
    rotation.run(&names, &environment).await
}
