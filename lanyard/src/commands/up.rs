//! `lanyard up`: the identity flow on this machine.

mod table;

use std::net::SocketAddr;
use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_up::{Break, Options, Road, RoadError};
use lanyard_vocabulary::ClientId;

use super::azure::{Exports, TrustFiles};
use super::hosted_cluster;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;
use crate::signals::Signals;

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
    broken: Option<Break>,
    /// The address of the local Azure; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The directory for the volumes, for one run at a time [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The managed identity that reads the vault [default: one of the local Azure]
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    vault_reader: Option<ClientId>,
    /// The form of the report
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Runs the components, and stays up unless told otherwise.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let cluster = hosted_cluster::load(args.file.as_deref())?;
    let options = Options {
        cluster,
        broken: args.broken,
        listen: args.listen,
        directory: args.directory.clone(),
        vault_reader: args.vault_reader,
    };
    let mut signals = Signals::listen()?;
    let opened = tokio::select! {
        opened = Road::open(options, SystemClock::shared()) => opened,
        _ = signals.end() => return Ok(Exit::Failed),
    };
    let mut road = opened.map_err(explain)?;
    // Unmounts whatever happens: a mount outlives the process.
    let walked = tokio::select! {
        () = walk(&mut road, args.rotate) => true,
        _ = signals.end() => false,
    };
    let result = if walked {
        report(&args, &environment, &mut road, &mut signals).await
    } else {
        Ok(Exit::Failed)
    };
    let closed = Box::pin(road.close()).await.map_err(|error| {
        CommandError::unavailable("something was left behind").because(&error).hint(error.hint())
    });
    match (result, closed) {
        (Err(error), Err(left)) => {
            output::note(&left.to_string());
            Err(error)
        }
        (result, closed) => result.and_then(|exit| closed.map(|()| exit)),
    }
}

async fn walk(road: &mut Road, rotate: bool) {
    road.walk().await;
    if rotate {
        road.rotate().await;
    }
}

async fn report(
    args: &Args,
    environment: &Environment,
    road: &mut Road,
    signals: &mut Signals,
) -> CommandResult {
    let report = road.report();
    output::print(&match args.output {
        Format::Table => table::render(&report, output::to_terminal() && !environment.no_color),
        format => output::document(&report, format),
    })?;
    if args.output != Format::Table {
        // The document has no room for it.
        for rotated in &report.rotation {
            if let Some(failure) = &rotated.failure {
                output::note(table::rotation_failure(rotated.name, failure).trim_end());
            }
        }
    }
    if let Some(readers) = road.readers() {
        output::note(&table::readers(readers));
    }
    if !args.once {
        stay_up(road, environment, signals).await?;
    }
    Ok(if report.ok { Exit::Good } else { Exit::Failed })
}

async fn stay_up(
    road: &mut Road,
    environment: &Environment,
    signals: &mut Signals,
) -> Result<(), CommandError> {
    let files = TrustFiles::write(road.private_directory(), road.ca_pem(), environment)?;
    output::note(&format!(
        "\nThe local Azure and the volumes in {} stay up until Ctrl-C. In another shell:\n\n{}",
        road.directory().display(),
        Exports::new(road.address(), &files).shell(),
    ));
    tokio::select! {
        _ = signals.end() => {}
        () = road.keep_fresh() => {}
    }
    Ok(())
}

fn explain(error: RoadError) -> CommandError {
    let message = "the local Azure and the volumes could not be set up";
    let refused = if error.is_invalid_input() {
        CommandError::invalid(message)
    } else {
        CommandError::unavailable(message)
    };
    refused.because(&error).hint(error.hint())
}
