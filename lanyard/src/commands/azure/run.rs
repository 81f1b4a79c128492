//! `lanyard azure run -- CMD`: a command inside a local Azure of its own.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use tokio::process::Command;

use super::session::Session;
use super::{ledger, world};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output;
use crate::settings::Environment;

/// Run a command inside a local Azure of its own, and print what it asked for
///
/// Starts a local Azure on a free port, runs the command with the exports of `lanyard azure env`,
/// prints the ledger of requests to standard error, and ends with the command's exit code.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The HostedCluster whose world is seeded [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep the world in this directory, and go on from there the next time
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Do not print the ledger
    #[arg(long)]
    no_ledger: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let start = world::Start {
        file: args.file.as_deref(),
        state: args.state.as_deref(),
        listen,
        allow_remote: false,
    };
    let emulator = world::start(&start).await?;
    let scratch = tempfile::Builder::new().prefix("lanyard-azure-").tempdir().map_err(|error| {
        CommandError::unavailable("cannot make a directory for the certificates").because(&error)
    })?;
    let session =
        Session::publish(scratch.path(), emulator.address(), emulator.ca_pem(), &environment)?;

    let (program, arguments) = args.command.split_first().ok_or_else(|| {
        CommandError::invalid("no command to run").hint("lanyard azure run -- az account list")
    })?;
    let exports = session.exports();
    let mut child =
        Command::new(program).args(arguments).envs(exports.pairs()).spawn().map_err(|error| {
            CommandError::invalid(format!("cannot run `{}`", program.display()))
                .because(&error)
                .hint("check the name of the command and PATH")
        })?;
    let status = wait(&mut child).await.map_err(|error| {
        CommandError::unavailable(format!("lost sight of `{}`", program.display())).because(&error)
    })?;

    if !args.no_ledger {
        output::note(&ledger::table(&emulator.ledger()));
    }
    emulator.shutdown().await;
    Ok(Exit::Inner(code_of(status)))
}

/// Waits for the child. A Ctrl-C reaches it as well: the terminal sends it to the whole group, and
/// the child decides how to end.
async fn wait(child: &mut tokio::process::Child) -> std::io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            interrupt = tokio::signal::ctrl_c() => interrupt?,
        }
    }
}

/// The exit code as a shell reports it: 128 plus the signal for a killed command.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_command_ends_as_a_shell_reports_it() {
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
        assert_eq!(code_of(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code_of(ExitStatus::from_raw(0)), 0);
    }
}
