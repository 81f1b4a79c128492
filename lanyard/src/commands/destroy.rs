//! `lanyard destroy`: removes hosted clusters and the Azure resources that lanyard created or imported.

pub(crate) mod aks;
pub(crate) mod cluster;
pub(crate) mod dns;
pub(crate) mod iam;
pub(crate) mod identities;
pub(crate) mod infra;
pub(crate) mod keyvault;
pub(crate) mod oidc;

use clap::Subcommand;

use super::platform::PlatformCommand;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard destroy`.
#[derive(Debug, Subcommand)]
pub(crate) enum DestroyCommand {
    /// Remove a hosted cluster and its infrastructure
    Cluster {
        #[command(subcommand)]
        platform: PlatformCommand<cluster::Args>,
    },
    /// Remove the infrastructure of a hosted cluster
    Infra {
        #[command(subcommand)]
        platform: PlatformCommand<infra::Args>,
    },
    /// Remove the identities of a self-managed hosted cluster
    Iam {
        #[command(subcommand)]
        platform: PlatformCommand<iam::Args>,
    },
    /// Remove a token issuer
    Oidc {
        #[command(subcommand)]
        platform: PlatformCommand<oidc::Args>,
    },
    /// Remove the identities of an ARO HCP development environment
    Identities {
        #[command(subcommand)]
        platform: PlatformCommand<identities::Args>,
    },
    /// Remove a Key Vault
    Keyvault {
        #[command(subcommand)]
        platform: PlatformCommand<keyvault::Args>,
    },
    /// Remove a management cluster
    Aks {
        #[command(subcommand)]
        platform: PlatformCommand<aks::Args>,
    },
    /// Remove a public DNS zone
    Dns {
        #[command(subcommand)]
        platform: PlatformCommand<dns::Args>,
    },
}

/// Runs the command.
pub(crate) async fn run(command: DestroyCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        DestroyCommand::Cluster { platform } => {
            cluster::run(platform.into_args(), environment).await
        }
        DestroyCommand::Infra { platform } => infra::run(platform.into_args(), environment).await,
        DestroyCommand::Iam { platform } => iam::run(platform.into_args(), environment).await,
        DestroyCommand::Oidc { platform } => oidc::run(platform.into_args(), environment).await,
        DestroyCommand::Identities { platform } => {
            identities::run(platform.into_args(), environment).await
        }
        DestroyCommand::Keyvault { platform } => {
            keyvault::run(platform.into_args(), environment).await
        }
        DestroyCommand::Aks { platform } => aks::run(platform.into_args(), environment).await,
        DestroyCommand::Dns { platform } => dns::run(platform.into_args(), environment).await,
    }
}
