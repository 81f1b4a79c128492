//! `lanyard up`: the identity flow on this machine.

mod table;

use std::net::SocketAddr;
use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_up::{ComponentFault, Options, ScenarioRun, ScenarioRunError};
use lanyard_vocabulary::EntraClientId;

use super::azure::{ShellExports, TrustFiles};
use super::hosted_cluster;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

/// Run the identity flow on this machine, on a local Azure
///
/// Takes a HostedCluster through every hop of the identity flow, for each of its components, and
/// reports what happened at each hop: rendered objects, vault reads with one shared identity,
/// mounted files, certificates, Entra tokens, one call that the component's role grants and one
/// that Azure has to refuse.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The HostedCluster to take [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// End after the table instead of staying up until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Then issue new certificates, and show how soon each new key is in use
    #[arg(long)]
    rotate: bool,
    /// Break one hop: FAULT is encoding, missing-secret, vault-role, expired, key-mismatch,
    /// unknown-application, audience or arm-role; COMPONENT is cloudProvider unless given
    #[arg(long = "break", value_name = "FAULT[:COMPONENT]")]
    fault: Option<ComponentFault>,
    /// The address of the local Azure; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The directory for the volumes, for one run at a time [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The managed identity that reads the vault [default: one of the local Azure]
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    vault_reader: Option<EntraClientId>,
    /// The form of the report
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
}

/// Runs the components, and stays up unless told otherwise.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let cluster = hosted_cluster::load(args.file.as_deref())?;
    let options = Options {
        cluster,
        fault: args.fault,
        listen: args.listen,
        directory: args.directory.clone(),
        vault_reader: args.vault_reader,
    };
    let mut signals = TerminationSignals::listen()?;
    let opened = tokio::select! {
        opened = ScenarioRun::start(options, SystemClock::shared()) => opened,
        _ = signals.wait() => return Ok(CommandExit::Failed),
    };
    let mut road = opened.map_err(setup_error)?;
    // Unmounts whatever happens: a mount outlives the process.
    let walked = tokio::select! {
        () = run_components(&mut road, args.rotate) => true,
        _ = signals.wait() => false,
    };
    let result = if walked {
        print_report(&args, &environment, &mut road, &mut signals).await
    } else {
        Ok(CommandExit::Failed)
    };
    let closed = Box::pin(road.close()).await.map_err(|error| {
        CommandError::unavailable("something was left behind")
            .with_cause(&error)
            .with_hint(error.hint())
    });
    match (result, closed) {
        (Err(error), Err(left)) => {
            output::print_stderr(&left.to_string());
            Err(error)
        }
        (result, closed) => result.and_then(|exit| closed.map(|()| exit)),
    }
}

async fn run_components(road: &mut ScenarioRun, rotate: bool) {
    road.run_hops().await;
    if rotate {
        road.rotate_certificates().await;
    }
}

async fn print_report(
    args: &Args,
    environment: &ProcessEnvironment,
    road: &mut ScenarioRun,
    signals: &mut TerminationSignals,
) -> CommandResult {
    let report = road.report();
    output::print_stdout(&match args.output {
        CliOutputFormat::Table => {
            table::render_report(&report, output::stdout_is_terminal() && !environment.no_color)
        }
        format => output::serialize_document(&report, format),
    })?;
    if args.output != CliOutputFormat::Table {
        // The document has no room for it.
        for rotated in &report.rotation {
            if let Some(failure) = &rotated.failure {
                output::print_stderr(
                    table::rotation_failure_text(rotated.name, failure).trim_end(),
                );
            }
        }
    }
    if let Some(readers) = road.reader_counts() {
        output::print_stderr(&table::reader_summary(readers));
    }
    if !args.once {
        serve_until_signal(road, environment, signals).await?;
    }
    Ok(if report.ok { CommandExit::Success } else { CommandExit::Failed })
}

async fn serve_until_signal(
    road: &mut ScenarioRun,
    environment: &ProcessEnvironment,
    signals: &mut TerminationSignals,
) -> Result<(), CommandError> {
    let files = TrustFiles::write(road.private_directory(), road.ca_pem(), environment)?;
    output::print_stderr(&format!(
        "\nThe local Azure and the volumes in {} stay up until Ctrl-C. In another shell:\n\n{}",
        road.volumes_directory().display(),
        ShellExports::new(road.address(), &files).to_shell(),
    ));
    tokio::select! {
        _ = signals.wait() => {}
        () = road.refresh_until_dropped() => {}
    }
    Ok(())
}

fn setup_error(error: ScenarioRunError) -> CommandError {
    let message = "the local Azure and the volumes could not be set up";
    let refused = if error.is_invalid_input() {
        CommandError::invalid_input(message)
    } else {
        CommandError::unavailable(message)
    };
    refused.with_cause(&error).with_hint(error.hint())
}
