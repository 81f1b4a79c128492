//! `lanyard operator`: the controllers of hosted clusters.

mod flags;
mod run;
mod settings;
#[cfg(test)]
mod tests;

use self::flags::OperatorArgs;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard operator --vault-reader 7f1c6b0e-52d9-4a38-8e4f-b60d93a1c275
  lanyard operator --dry-run --exit-code --kubeconfig kubeconfig.yaml";

/// Deliver the identities of hosted clusters to their components, and report the status of each
///
/// Watches HostedClusters on managed Azure and reconciles the namespace of each control plane, its
/// SecretProviderClasses, configurations and workloads. Reports the status of every identity in
/// HostedClusterIdentities, conditions, metrics and events. The operator has no Azure identity. Runs until
/// SIGTERM.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Box<OperatorArgs>,
}

impl Args {
    /// The default log filter.
    pub(crate) const fn default_log_filter(&self) -> &'static str {
        self.run.logs.log_filter()
    }

    /// Whether log lines are JSON objects.
    pub(crate) const fn logs_json(&self) -> bool {
        self.run.logs.log_format_json.0
    }
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    run::run(*args.run, environment).await
}
