//! `lanyard create`: creates hosted clusters and the Azure resources that they need.

pub(crate) mod aks;
pub(crate) mod cluster;
pub(crate) mod dns;
pub(crate) mod iam;
pub(crate) mod identities;
pub(crate) mod infra;
pub(crate) mod keyvault;
mod kms_identity;
pub(crate) mod oidc;

use clap::Subcommand;

use super::platform::PlatformCommand;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard create`.
#[derive(Debug, Subcommand)]
pub(crate) enum CreateCommand {
    /// Create a hosted cluster and its infrastructure
    Cluster {
        #[command(subcommand)]
        platform: PlatformCommand<cluster::Args>,
    },
    /// Create or change the infrastructure of a hosted cluster
    Infra {
        #[command(subcommand)]
        platform: PlatformCommand<infra::Args>,
    },
    /// Create or change the identities of a self-managed hosted cluster
    Iam {
        #[command(subcommand)]
        platform: PlatformCommand<iam::Args>,
    },
    /// Create or change a token issuer for clusters
    Oidc {
        #[command(subcommand)]
        platform: PlatformCommand<oidc::Args>,
    },
    /// Create the identities of an ARO HCP development environment
    Identities {
        #[command(subcommand)]
        platform: PlatformCommand<identities::Args>,
    },
    /// Create or change a Key Vault for the credentials of clusters
    Keyvault {
        #[command(subcommand)]
        platform: PlatformCommand<keyvault::Args>,
    },
    /// Create or change a management cluster for hosted control planes
    Aks {
        #[command(subcommand)]
        platform: PlatformCommand<aks::Args>,
    },
    /// Create or change a public DNS zone for clusters
    Dns {
        #[command(subcommand)]
        platform: PlatformCommand<dns::Args>,
    },
}

/// Runs the command.
pub(crate) async fn run(command: CreateCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        CreateCommand::Cluster { platform } => {
            // The future contains those of all steps, so it does not fit on the stack of the caller.
            Box::pin(cluster::run(platform.into_args(), environment)).await
        }
        CreateCommand::Infra { platform } => infra::run(platform.into_args(), environment).await,
        CreateCommand::Iam { platform } => iam::run(platform.into_args(), environment).await,
        CreateCommand::Oidc { platform } => oidc::run(platform.into_args(), environment).await,
        CreateCommand::Identities { platform } => {
            identities::run(platform.into_args(), environment).await
        }
        CreateCommand::Keyvault { platform } => {
            keyvault::run(platform.into_args(), environment).await
        }
        CreateCommand::Aks { platform } => aks::run(platform.into_args(), environment).await,
        CreateCommand::Dns { platform } => dns::run(platform.into_args(), environment).await,
    }
}
