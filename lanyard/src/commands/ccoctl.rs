//! `lanyard ccoctl azure`: the commands, flags and files of ccoctl, the credential utility of OpenShift.
//!
//! The program also accepts these commands when it is called `ccoctl`. What differs from ccoctl is in
//! `docs/reference/ccoctl.md`.

mod all;
mod delete;
mod flags;
mod key_pair;
mod managed_identities;
mod oidc_issuer;
mod report;

use clap::Subcommand;

use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

/// The platforms of ccoctl that lanyard implements.
#[derive(Debug, Subcommand)]
pub(crate) enum CcoctlPlatform {
    /// Create and remove the token issuer and the managed identities of a cluster
    #[command(subcommand)]
    Azure(CcoctlCommand),
}

/// The subcommands of `lanyard ccoctl azure`.
#[derive(Debug, Subcommand)]
pub(crate) enum CcoctlCommand {
    CreateKeyPair(key_pair::Args),
    CreateOidcIssuer(Box<oidc_issuer::Args>),
    CreateManagedIdentities(Box<managed_identities::Args>),
    CreateAll(Box<all::Args>),
    Delete(Box<delete::Args>),
}

/// Runs the command.
pub(crate) async fn run(
    platform: CcoctlPlatform,
    environment: ProcessEnvironment,
) -> CommandResult {
    let CcoctlPlatform::Azure(command) = platform;
    match command {
        CcoctlCommand::CreateKeyPair(args) => key_pair::run(&args),
        CcoctlCommand::CreateOidcIssuer(args) => oidc_issuer::run(*args, environment).await,
        CcoctlCommand::CreateManagedIdentities(args) => {
            managed_identities::run(*args, environment).await
        }
        CcoctlCommand::CreateAll(args) => all::run(*args, environment).await,
        CcoctlCommand::Delete(args) => delete::run(*args, environment).await,
    }
}
