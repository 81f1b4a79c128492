//! `lanyard rotate identity azure`: replaces the certificate of a component now.

use lanyard_vocabulary::Component;

use super::{Rotation, RotationArgs};
use crate::commands::service_principals::EnvironmentArgs;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard rotate identity azure --prefix harbour-dev --component controlPlaneOperator";

/// Replace the certificate of a component in Azure now
///
/// Creates a certificate in the vault, adds it to the application, requests a token with it, and writes the secret
/// that the component reads. After the overlap, the application no longer accepts the earlier certificate. The
/// overlap must be longer than 2.1 poll intervals of each volume with the secret. The interval is 2 minutes by default,
/// so the overlap must exceed 4.2 minutes.
///
/// An interrupted rotation leaves a working credential. The next rotation or refresh continues it.
///
/// One command at a time changes the identities of an environment: the command locks the journal of the environment,
/// except during the overlap. Commands on several machines need a journal in a blob container.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// The component, such as `disk` or `controlPlaneOperator`; can be repeated
    #[arg(long, required = true, value_name = "COMPONENT")]
    component: Vec<Component>,
    /// Do not wait for the overlap; `lanyard refresh identities azure` removes the earlier certificate later
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    rotation: RotationArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let names = args.environment.names(args.component.iter().copied())?;
    let Args { environment: of, no_wait, rotation, .. } = &args;
    let rotation = Rotation { environment: of, args: rotation, only_due: false, waits: !no_wait };
    rotation.run(&names, &environment).await
}
