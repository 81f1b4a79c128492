//! `lanyard destroy`: removes the Azure resources that lanyard created or imported.

pub(crate) mod cluster_stack;
pub(crate) mod iam;
pub(crate) mod infra;

use clap::Subcommand;

use super::platform::PlatformCommand;

/// The subcommands of `lanyard destroy`.
#[derive(Debug, Subcommand)]
pub(crate) enum DestroyCommand {
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
}
