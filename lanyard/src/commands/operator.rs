//! `lanyard operator`: the controllers of hosted clusters.

mod flags;
mod run;
mod settings;
#[cfg(test)]
mod tests;

use self::flags::OperatorArgs;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

/// Bring the identities of hosted clusters to their components, and tell how each of them is
///
/// Watches HostedClusters of managed Azure and keeps what they should have: the namespace of the
/// control plane, its classes, configurations and workloads. How every identity is stands in
/// HostedClusterIdentities, in conditions, in metrics and in events. It holds no Azure identity.
/// Runs until SIGTERM.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Box<OperatorArgs>,
}

impl Args {
    /// What is logged unless the person asks for more.
    pub(crate) const fn default_log_filter(&self) -> &'static str {
        self.run.logs.log_filter()
    }

    /// Whether each line of the log is a JSON object.
    pub(crate) const fn logs_json(&self) -> bool {
        self.run.logs.log_format_json.0
    }
}

/// Runs the operator.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    run::run(*args.run, environment).await
}
