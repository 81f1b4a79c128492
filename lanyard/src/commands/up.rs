//! `lanyard up`: the whole road on this machine.

mod table;
mod way;

use std::net::SocketAddr;
use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_up::{
    Break, KubernetesOptions, KubernetesRoad, Options, Road, RoadError, ServerChoice,
};
use lanyard_vocabulary::ClientId;

use self::way::Way;
use super::azure::{Exports, TrustFiles};
use super::{canary, hosted_cluster};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;
use crate::signals::Signals;

/// Walk the whole road on this machine, on a local Azure
///
/// Takes a HostedCluster through every hop of the identity flow for each of its components, and
/// says what happened at each hop: rendered objects, vault reads with one shared identity, mounted
/// files, certificates, Entra tokens, one call that the component's role grants and one that it
/// must be refused.
///
/// With --kubernetes or --kubeconfig the objects are those of a real Kubernetes API: the operator
/// makes them, the node plugin mounts them, canaries prove the identities, and the report is what
/// they tell there.
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
    /// Where to mount the volumes [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The managed identity that reads the vault [default: one of the local Azure]
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    vault_reader: Option<ClientId>,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    /// The form of the report
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "By way of a Kubernetes API")]
struct KubernetesArgs {
    /// Take a real etcd and kube-apiserver onto the road, started for it; they are looked for in
    /// `KUBEBUILDER_ASSETS`, in PATH and in the tool cache. Needs root, because volumes are mounted
    #[arg(long)]
    kubernetes: bool,
    /// Take the API server of this file's current context onto the road instead. What is made there
    /// is removed at the end; what is there already is never changed
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The server of --kubeconfig may be on another machine
    #[arg(long, requires = "kubeconfig")]
    yes: bool,
}

impl KubernetesArgs {
    /// The server that is asked for, if one is.
    fn server(&self, environment: &Environment) -> Option<ServerChoice> {
        match &self.kubeconfig {
            Some(kubeconfig) => Some(ServerChoice::Given {
                kubeconfig: kubeconfig.clone(),
                may_be_remote: self.yes,
            }),
            None => self.kubernetes.then(|| ServerChoice::Own(environment.programs.clone())),
        }
    }
}

/// Walks the road, and stays up unless told otherwise.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let (wire, cluster) = hosted_cluster::load_with_wire(args.file.as_deref())?;
    let options = Options {
        cluster,
        broken: args.broken,
        listen: args.listen,
        directory: args.directory.clone(),
        vault_reader: args.vault_reader,
    };
    let mut signals = Signals::listen()?;
    let clock = SystemClock::shared();
    let opened = match args.kubernetes.server(&environment) {
        None => Road::open(options, clock).await.map(|road| Way::Memory(Box::new(road))),
        Some(server) => {
            let kubernetes = KubernetesOptions {
                server,
                hosted_cluster: wire,
                read_canary: canary::read_launch,
            };
            let opened = KubernetesRoad::open(options, kubernetes, clock).await;
            opened.map(|road| Way::Kubernetes(Box::new(road)))
        }
    };
    let mut way = opened.map_err(explain)?;
    // Whatever ends the walk, what it made is taken away: a mount outlives the process.
    let travelled = tokio::select! {
        travelled = travel(&mut way, args.rotate) => Some(travelled),
        _ = signals.end() => None,
    };
    let result = match travelled {
        Some(Ok(())) => tell(&args, &environment, &mut way, &mut signals).await,
        Some(Err(error)) => Err(explain(error)),
        None => Ok(Exit::Failed),
    };
    let closed = way.close().await.map_err(|error| {
        CommandError::unavailable("something was left behind").because(&error).hint(error.hint())
    });
    // What went wrong first is what the person has to know first.
    result.and_then(|exit| closed.map(|()| exit))
}

async fn travel(way: &mut Way, rotate: bool) -> Result<(), RoadError> {
    way.walk().await?;
    if rotate {
        way.rotate().await;
    }
    Ok(())
}

async fn tell(
    args: &Args,
    environment: &Environment,
    way: &mut Way,
    signals: &mut Signals,
) -> CommandResult {
    let report = way.report();
    output::print(&match args.output {
        Format::Table => table::render(&report, output::to_terminal() && !environment.no_color),
        format => output::document(&report, format),
    });
    if args.output != Format::Table {
        // The document has no room for it.
        for rotated in &report.rotation {
            if let Some(failure) = &rotated.failure {
                output::note(table::rotation_failure(rotated.name, failure).trim_end());
            }
        }
    }
    if let Some(readers) = way.readers() {
        output::note(&table::readers(readers));
    }
    if !args.once {
        stay_up(way, environment, signals).await?;
    }
    Ok(if report.ok { Exit::Good } else { Exit::Failed })
}

async fn stay_up(
    way: &mut Way,
    environment: &Environment,
    signals: &mut Signals,
) -> Result<(), CommandError> {
    let scratch = tempfile::Builder::new().prefix("lanyard-azure-").tempdir().map_err(|error| {
        CommandError::unavailable("cannot make a directory for the certificates").because(&error)
    })?;
    let files = TrustFiles::write(scratch.path(), way.ca_pem(), environment)?;
    output::note(&format!(
        "\nThe local Azure and the volumes in {} stay up until Ctrl-C. In another shell:\n\n{}",
        way.directory().display(),
        Exports::new(way.address(), &files).shell(),
    ));
    if let Some(kubeconfig) = way.kubeconfig() {
        output::note(&format!(
            "The Kubernetes API stays up as well; see what stands there:\n\n\
             export KUBECONFIG='{}'\n\
             kubectl lanyard identities -A\n",
            kubeconfig.display(),
        ));
    }
    tokio::select! {
        _ = signals.end() => {}
        () = way.keep_fresh() => {}
    }
    Ok(())
}

fn explain(error: RoadError) -> CommandError {
    let message = "the road cannot be built";
    let refused = if error.is_invalid_input() {
        CommandError::invalid(message)
    } else {
        CommandError::unavailable(message)
    };
    refused.because(&error).hint(error.hint())
}
