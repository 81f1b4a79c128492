//! `lanyard azure run -- CMD`: runs a command against its own local Azure.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use lanyard_emulator::RequestLogEntry;
use lanyard_emulator_session::{LocalTestCredentials, ShellExports, TrustFiles};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::local_azure_flags::LocalAzureFlags;
use super::login::{missing_test_clients_error, sign_azure_cli_in};
use super::{request_log_table, start_azure};
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
use crate::output::{self, CliOutputFormat, OutputArgs};
use crate::settings::ProcessEnvironment;
use crate::signals::{TerminationSignal, TerminationSignals};

const EXAMPLE: &str = "\
Examples:
  lanyard azure run --login az group list
  lanyard azure run --drill kv-throttled-at-boot -- cargo test
  lanyard azure run -o json -- sh -c './deploy.sh 2> deploy.log' 2> request-log.json

Exit codes:
  2  an input is invalid, such as a flag, or the command cannot be run
  3  the environment prevents the local Azure, such as a port that is in use
  *  the exit code of the command, or 128 plus the signal that ended it";

/// Run a command against its own local Azure, and print the request log
///
/// Starts a local Azure on a free port, runs the command with the variables of `lanyard azure env`, prints the
/// request log to standard error, and exits with the command's exit code. Flags behind the name of the command
/// belong to the command.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    local_azure: LocalAzureFlags,
    /// Do not print the request log
    #[arg(long)]
    no_request_log: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let start = start_azure::StartAzureOptions {
        flags: &args.local_azure,
        stopped_at: None,
        listen,
        allow_remote: false,
        authority: None,
    };
    let mut signals = TerminationSignals::listen()?;
    let emulator = start_azure::start_local_azure(&start).await?;
    let scratch = tempfile::Builder::new()
        .prefix("lanyard-azure-")
        .tempdir()
        .or_unavailable("cannot make a directory for the certificates")?;
    let files =
        TrustFiles::write(scratch.path(), emulator.ca_pem(), &environment.session_environment())?;
    let mut exports = ShellExports::new(emulator.address(), &files)
        .with_custom_cloud(emulator.custom_cloud_url());
    if let Some(principal) = args.local_azure.login {
        let credentials = LocalTestCredentials::of_emulator(&emulator, true);
        let credentials = credentials.ok_or_else(missing_test_clients_error)?;
        exports = exports.with_variables(credentials.variables());
        let login = sign_azure_cli_in(&credentials, principal, &exports).await;
        if login.is_err() && !args.no_request_log {
            print_request_log(&emulator.request_log(), args.output.format);
        }
        login?;
    }
    let (program, arguments) = args.command.split_first().ok_or_else(|| {
        CommandError::invalid_input("no command to run")
            .with_hint("lanyard azure run az account list")
    })?;
    let mut command = Command::new(program);
    command.args(arguments).envs(exports.variables_to_set());
    for variable in exports.variables_to_unset() {
        command.env_remove(variable);
    }
    let mut child = command
        .spawn()
        .or_invalid(format_args!("cannot run `{}`", program.display()))
        .hint("check the name of the command and PATH")?;
    let status = wait_for_child(&mut child, &mut signals)
        .await
        .or_unavailable(format_args!("could not wait for `{}`", program.display()))?;

    if !args.no_request_log {
        print_request_log(&emulator.request_log(), args.output.format);
    }
    emulator.shutdown().await;
    Ok(CommandExit::ChildProcess(shell_exit_code(status)))
}

/// Prints the request log to standard error: standard output belongs to the command.
fn print_request_log(entries: &[RequestLogEntry], format: CliOutputFormat) {
    output::print_stderr(&match format {
        CliOutputFormat::Table => {
            request_log_table::request_log_table(entries, output::stderr_width())
        }
        format => output::serialize_document(&entries, format),
    });
}

/// Waits for the child process. The terminal sends its signals to the whole process group, so the child
/// receives them as well; a signal that a supervisor sends only to this process is forwarded to the child.
async fn wait_for_child(
    child: &mut Child,
    signals: &mut TerminationSignals,
) -> std::io::Result<ExitStatus> {
    loop {
        let end = tokio::select! {
            status = child.wait() => return status,
            end = signals.wait() => end,
        };
        let signal = match end {
            TerminationSignal::Interrupt | TerminationSignal::Quit => continue,
            TerminationSignal::Terminate => Signal::TERM,
            TerminationSignal::HangUp => Signal::HUP,
        };
        let process = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(process) = process {
            kill_process(process, signal)?;
        }
    }
}

/// The exit code as a shell reports it: 128 plus the signal for a killed command.
fn shell_exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_of_killed_command_is_128_plus_signal() {
        assert_eq!(shell_exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(shell_exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shell_exit_code(ExitStatus::from_raw(0)), 0);
    }
}
