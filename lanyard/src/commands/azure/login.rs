//! `lanyard azure login`: signs the Azure CLI in to the running local Azure.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use lanyard_emulator_session::{LocalTestCredentials, LoginPrincipal, ShellExports};
use tokio::process::Command;

use super::find_session;
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard azure login
  lanyard azure login --as service-principal";

/// Sign the Azure CLI in to the running local Azure
///
/// Runs `az login` in the configuration directory that `lanyard azure env` sets, with the credentials of the
/// local Azure. The sessions in your own configuration directory do not change.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The state directory of the local Azure, if it was started with one [default: that of
    /// `LANYARD_AZURE_CONTROL`, or else the running `lanyard azure serve` or `lanyard up`]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The identity that signs in
    #[arg(long = "as", value_enum, default_value = "user", value_name = "PRINCIPAL")]
    principal: LoginPrincipal,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let session = find_session(args.state.as_deref(), &environment)?;
    let credentials = LocalTestCredentials::load(session.directory());
    let credentials = credentials.ok_or_else(missing_test_clients_error)?;
    match sign_azure_cli_in(&credentials, args.principal, &session.exports()).await? {
        AzureCliLogin::SignedIn => {
            let name = credentials.principal_name(args.principal);
            output::print_stdout(&format!("the Azure CLI is signed in as {name}"))?;
            Ok(CommandExit::Success)
        }
        AzureCliLogin::NotInstalled => {
            let test_clients = format!("{}/test-clients", session.control);
            Err(CommandError::unavailable("`az` is not installed, or not in PATH").with_hint(
                format!(
                    "install the Azure CLI, or use the credentials of \
                 `curl -H 'x-lanyard-control: 1' {test_clients}`"
                ),
            ))
        }
    }
}

pub(super) fn missing_test_clients_error() -> CommandError {
    CommandError::unavailable("the local Azure has no test clients")
        .with_hint("start it with a new state directory")
}

/// The outcome of signing the Azure CLI in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AzureCliLogin {
    SignedIn,
    /// There is no program `az`.
    NotInstalled,
}

/// Runs `az login` with the exports of a local Azure.
pub(super) async fn sign_azure_cli_in(
    credentials: &LocalTestCredentials,
    principal: LoginPrincipal,
    exports: &ShellExports,
) -> Result<AzureCliLogin, CommandError> {
    let mut command = Command::new("az");
    command.args(credentials.az_login_arguments(principal)).envs(exports.variables_to_set());
    for variable in exports.variables_to_unset() {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    let output = match command.output().await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(AzureCliLogin::NotInstalled);
        }
        other => other.or_unavailable("cannot run `az`")?,
    };
    if output.status.success() {
        return Ok(AzureCliLogin::SignedIn);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let cause = io::Error::other(message.trim().to_owned());
    Err(CommandError::unavailable("`az login` failed").with_cause(&cause).with_hint(
        "the request log shows the rejected request: `GET request-log` of the control API, or \
             the web page of the local Azure",
    ))
}
