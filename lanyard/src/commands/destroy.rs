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
    #[command(subcommand)]
    Cluster(PlatformCommand<cluster::Args>),
    /// Remove the infrastructure of a hosted cluster
    #[command(subcommand)]
    Infra(PlatformCommand<infra::Args>),
    /// Remove the identities of a self-managed hosted cluster
    #[command(subcommand)]
    Iam(PlatformCommand<iam::Args>),
    /// Remove a token issuer
    #[command(subcommand)]
    Oidc(PlatformCommand<oidc::Args>),
    /// Remove the identities of an ARO HCP development environment
    #[command(subcommand)]
    Identities(PlatformCommand<identities::Args>),
    /// Remove a Key Vault
    #[command(subcommand)]
    Keyvault(PlatformCommand<keyvault::Args>),
    /// Remove a management cluster
    #[command(subcommand)]
    Aks(PlatformCommand<aks::Args>),
    /// Remove a public DNS zone
    #[command(subcommand)]
    Dns(PlatformCommand<dns::Args>),
}

/// Runs the command.
pub(crate) async fn run(command: DestroyCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        DestroyCommand::Cluster(it) => cluster::run(it.into_args(), environment).await,
        DestroyCommand::Infra(it) => infra::run(it.into_args(), environment).await,
        DestroyCommand::Iam(it) => iam::run(it.into_args(), environment).await,
        DestroyCommand::Oidc(it) => oidc::run(it.into_args(), environment).await,
        DestroyCommand::Identities(it) => identities::run(it.into_args(), environment).await,
        DestroyCommand::Keyvault(it) => keyvault::run(it.into_args(), environment).await,
        DestroyCommand::Aks(it) => aks::run(it.into_args(), environment).await,
        DestroyCommand::Dns(it) => dns::run(it.into_args(), environment).await,
    }
}
