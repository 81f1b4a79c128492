//! `lanyard create`: creates the Azure resources that hosted clusters need.

pub(crate) mod iam;
pub(crate) mod infra;

use clap::Subcommand;

use super::platform::PlatformCommand;

/// The subcommands of `lanyard create`.
#[derive(Debug, Subcommand)]
pub(crate) enum CreateCommand {
    /// Create the infrastructure of a hosted cluster
    Infra {
        #[command(subcommand)]
        platform: PlatformCommand<infra::Args>,
    },
    /// Create the identities of a self-managed hosted cluster
    Iam {
        #[command(subcommand)]
        platform: PlatformCommand<iam::Args>,
    },
}
