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

const EXAMPLE: &str = "\
Examples:
  lanyard kms --keyvault-name harbour-keys \\
    --key-name etcd --key-version 4f9d2c7b1e8a46f0b35d9c6e7a1f2084";

/// Encrypt the secrets of an API server with a key in a vault
///
/// Implements the Kubernetes KMS plugin API (v2 and v1) with the flags of Azure/kubernetes-kms and of its
/// OpenShift fork. The plugin decrypts the ciphertexts of both, and `--ciphertext-layout` selects the layout
/// of new ciphertexts. Flags may start with one dash or two. Runs until SIGTERM.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Box<KmsArgs>,
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
