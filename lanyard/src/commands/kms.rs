//! `lanyard kms`: the KMS plugin of an API server.

mod flags;
mod go_arguments;
#[cfg(test)]
mod rendered_container_tests;
mod run;
mod settings;

use self::flags::KmsArgs;
pub(crate) use self::go_arguments::normalize_single_dash_flags;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

/// Encrypt the secrets of an API server with a key in a vault
///
/// The Kubernetes KMS plugin (versions 2 and 1) under the flags of Azure/kubernetes-kms and of its
/// OpenShift fork: it reads what either wrote, and writes as `--ciphertext-layout` says. Flags may
/// begin with one dash or two. Runs until SIGTERM.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Box<KmsArgs>,
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

/// Runs the plugin.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    run::run(*args.run, environment).await
}
