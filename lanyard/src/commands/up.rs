//! `lanyard up`: runs the identity flow on this machine.

mod table;

use std::net::SocketAddr;
use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_emulator_session::{LocalTestCredentials, SEED_VARIABLE, ServeSession, quote_for_bash};
use lanyard_up::{ComponentFault, Options, ScenarioRun};
use lanyard_vocabulary::EntraClientId;

use super::hosted_cluster;
use crate::exit::{CommandError, CommandExit, CommandResult, ResultExt as _};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

const EXAMPLE: &str = "\
Examples:
  lanyard up
  lanyard up --once --rotate
  lanyard up --once --break vault-role:disk -o json";

/// Run the identity flow on this machine, with a local Azure
///
/// Runs a HostedCluster through every hop of the identity flow, for each of its components, and reports the
/// result of each hop: rendered objects, vault reads with one shared identity, mounted files, certificates,
/// Entra tokens, one call that the component's role grants and one that Azure must refuse.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The HostedCluster to run [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Exit after the report instead of running until Ctrl-C
    #[arg(long)]
    once: bool,
    /// Then issue new certificates, and measure how soon each new key is in use
    #[arg(long)]
    rotate: bool,
    /// Break one hop: FAULT is encoding, missing-secret, vault-role, expired, key-mismatch, missing-leaf,
    /// unknown-application, audience or arm-role; COMPONENT defaults to cloudProvider
    #[arg(long = "break", value_name = "FAULT[:COMPONENT]")]
    fault: Option<ComponentFault>,
    /// The address of the local Azure; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The directory for the volumes, for one run at a time [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The state directory of a local Azure, such as that of `lanyard azure serve`. Its state is used instead of a
    /// new one, and kept
    #[arg(long, value_name = "DIR", conflicts_with = "fault")]
    state: Option<PathBuf>,
    /// Derive the ids and keys of a new local Azure from this text, instead of random ones
    #[arg(long, env = SEED_VARIABLE, hide_env_values = true, value_name = "TEXT")]
    seed: Option<String>,
    /// The managed identity that reads the vault [default: one of the local Azure]
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    vault_reader: Option<EntraClientId>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the components, and keeps running until a signal unless `--once` is given.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let cluster = hosted_cluster::load(args.file.as_deref())?;
    let options = Options {
        cluster,
        fault: args.fault,
        listen: args.listen,
        directory: args.directory.clone(),
        state: args.state.clone(),
        seed: args.seed.clone(),
        vault_reader: args.vault_reader,
    };
    let mut signals = TerminationSignals::listen()?;
    let opened = tokio::select! {
        opened = ScenarioRun::start(options, SystemClock::shared()) => opened,
        _ = signals.wait() => return Ok(CommandExit::Failed),
    };
    let mut scenario = opened.context("the local Azure and the volumes could not be set up")?;
    // Continues to `close` after a signal, because mounts outlive the process.
    let completed = tokio::select! {
        () = run_components(&mut scenario, args.rotate) => true,
        _ = signals.wait() => false,
    };
    let result = if completed {
        print_report(&args, &environment, &mut scenario, &mut signals).await
    } else {
        Ok(CommandExit::Failed)
    };
    let closed = Box::pin(scenario.close())
        .await
        .context("could not remove all files and mounts of this run");
    match (result, closed) {
        (Err(error), Err(left)) => {
            output::print_stderr(&left.to_string());
            Err(error)
        }
        (result, closed) => result.and_then(|exit| closed.map(|()| exit)),
    }
}

async fn run_components(scenario: &mut ScenarioRun, rotate: bool) {
    scenario.run_hops().await;
    if rotate {
        scenario.rotate_certificates().await;
    }
}

async fn print_report(
    args: &Args,
    environment: &ProcessEnvironment,
    scenario: &mut ScenarioRun,
    signals: &mut TerminationSignals,
) -> CommandResult {
    let report = scenario.report();
    let colour = output::uses_colour(&std::io::stdout());
    output::print_value(&report, args.output.format, |line_width| {
        table::render_report(&report, colour, line_width)
    })?;
    if let Some(readers) = scenario.reader_counts() {
        output::print_stderr(&table::reader_summary(readers));
    }
    if !args.once {
        serve_until_signal(scenario, environment, signals).await?;
    }
    Ok(if report.ok { CommandExit::Success } else { CommandExit::Failed })
}

async fn serve_until_signal(
    scenario: &mut ScenarioRun,
    environment: &ProcessEnvironment,
    signals: &mut TerminationSignals,
) -> Result<(), CommandError> {
    let directory = scenario.private_directory();
    let azure = scenario.local_azure();
    ServeSession::write_descriptor(
        directory,
        azure.address(),
        None,
        azure.ca_pem(),
        &environment.session_environment(),
    )?;
    let credentials = LocalTestCredentials::of_emulator(azure, false);
    LocalTestCredentials::write(credentials.as_ref(), directory)?;
    output::print_stderr(&format!(
        "\nThe local Azure and the volumes in {} stay up until Ctrl-C. In another shell:\n\n  \
         eval \"$(lanyard azure env --state {})\"\n",
        scenario.volumes_directory().display(),
        quote_for_bash(&directory.display().to_string()),
    ));
    tokio::select! {
        _ = signals.wait() => {}
        () = scenario.refresh_until_dropped() => {}
    }
    Ok(())
}
