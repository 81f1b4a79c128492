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
    #[command(subcommand)]
    Cluster(PlatformCommand<cluster::Args>),
    /// Create or change the infrastructure of a hosted cluster
    #[command(subcommand)]
    Infra(PlatformCommand<infra::Args>),
    /// Create or change the identities of a self-managed hosted cluster
    #[command(subcommand)]
    Iam(PlatformCommand<iam::Args>),
    /// Create or change a token issuer for clusters
    #[command(subcommand)]
    Oidc(PlatformCommand<oidc::Args>),
    /// Create the identities of an ARO HCP development environment
    #[command(subcommand)]
    Identities(PlatformCommand<identities::Args>),
    /// Create or change a Key Vault for the credentials of clusters
    #[command(subcommand)]
    Keyvault(PlatformCommand<keyvault::Args>),
    /// Create or change a management cluster for hosted control planes
    #[command(subcommand)]
    Aks(PlatformCommand<aks::Args>),
    /// Create or change a public DNS zone for clusters
    #[command(subcommand)]
    Dns(PlatformCommand<dns::Args>),
}

/// Runs the command.
pub(crate) async fn run(command: CreateCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        CreateCommand::Cluster(it) => {
            // The future contains those of all steps, so it does not fit on the stack of the caller.
            Box::pin(cluster::run(it.into_args(), environment)).await
        }
        CreateCommand::Infra(it) => infra::run(it.into_args(), environment).await,
        CreateCommand::Iam(it) => iam::run(it.into_args(), environment).await,
        CreateCommand::Oidc(it) => oidc::run(it.into_args(), environment).await,
        CreateCommand::Identities(it) => identities::run(it.into_args(), environment).await,
        CreateCommand::Keyvault(it) => keyvault::run(it.into_args(), environment).await,
        CreateCommand::Aks(it) => aks::run(it.into_args(), environment).await,
        CreateCommand::Dns(it) => dns::run(it.into_args(), environment).await,
    }
}
