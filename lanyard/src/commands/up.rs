//! `lanyard up`: the whole road on this machine.

mod table;
mod way;

use std::net::SocketAddr;
use std::path::PathBuf;

use lanyard_api::HostedCluster;
use lanyard_clock::SystemClock;
use lanyard_up::{
    Break, Closed, KubernetesOptions, KubernetesRoad, Options, Road, RoadError, ServerChoice,
};
use lanyard_vocabulary::ClientId;
use tokio::sync::watch;

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
    let server = args.kubernetes.server(&environment);
    // Until a road is open, whatever holds anything lets go of it by itself.
    let opened = tokio::select! {
        opened = open(options, server, wire) => opened,
        _ = signals.end() => return Ok(Exit::Failed),
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
    let closed = close(way, &mut signals).await;
    let (notes, result) = conclude(result, closed);
    for note in notes {
        output::note(&note);
    }
    result
}

async fn open(
    options: Options,
    server: Option<ServerChoice>,
    hosted_cluster: HostedCluster,
) -> Result<Way, RoadError> {
    let clock = SystemClock::shared();
    let Some(server) = server else {
        return Ok(Way::Memory(Box::new(Road::open(options, clock).await?)));
    };
    let read_canary = canary::read_launch;
    let kubernetes = KubernetesOptions { server, hosted_cluster, read_canary };
    let road = KubernetesRoad::open(options, kubernetes, clock).await?;
    Ok(Way::Kubernetes(Box::new(road)))
}

/// Takes everything away. The person may wish an end of that, too: people who cannot kill a program
/// gently kill it, and then its mounts stay.
async fn close(way: Way, signals: &mut Signals) -> Closed {
    if let Some((server, made)) = way.made_there() {
        let made = made.join(", ");
        output::note(&format!(
            "Taking away what was made on {server}; Ctrl-C leaves it there: {made}."
        ));
    }
    let hurry = watch::Sender::new(false);
    let mut closing = std::pin::pin!(way.close(hurry.subscribe()));
    loop {
        tokio::select! {
            closed = &mut closing => return closed,
            _ = signals.end() => {
                if !hurry.send_replace(true) {
                    output::note("Unmounting and ending; nothing else is waited for.");
                }
            }
        }
    }
}

/// What the person is told, beside the result. What went wrong first is what they have to know first,
/// and nothing of the rest is lost.
fn conclude(result: CommandResult, closed: Closed) -> (Vec<String>, CommandResult) {
    let mut notes = closed.stays;
    let mut left = closed.left.into_iter().map(|error| {
        CommandError::unavailable("something was left behind").because(&error).hint(error.hint())
    });
    let result = result.and_then(|exit| left.next().map_or(Ok(exit), Err));
    notes.extend(left.map(|error| error.to_string()));
    (notes, result)
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
    })?;
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

#[cfg(test)]
mod tests {
    use lanyard_up::KubernetesRoadError;

    use super::*;

    fn left(what: &str) -> RoadError {
        RoadError::from(KubernetesRoadError::Left {
            server: "https://127.0.0.1:6443".to_owned(),
            left: vec![what.to_owned()],
            removal: vec![format!("kubectl delete {what}")],
            source: None,
        })
    }

    #[test]
    fn what_was_left_behind_is_told_whatever_went_wrong_before() {
        let closed = || Closed {
            stays: vec!["a namespace stays".to_owned()],
            left: vec![left("a node"), left("a volume")],
        };
        let (notes, result) = conclude(Ok(Exit::Good), closed());
        let told = result.unwrap_err().to_string();
        assert!(told.contains("there may still be: a node"), "{told}");
        assert!(told.contains("kubectl delete a node"), "{told}");
        assert_eq!((notes.len(), notes[0].as_str()), (2, "a namespace stays"));
        assert!(notes[1].contains("a volume"), "{notes:?}");

        let first = CommandError::unavailable("the walk failed");
        let (notes, result) = conclude(Err(first), closed());
        assert_eq!(result.unwrap_err().to_string(), "error: the walk failed");
        assert_eq!(notes.len(), 3);
        for what in ["a node", "a volume"] {
            let told = format!("kubectl delete {what}");
            assert!(notes.iter().any(|note| note.contains(&told)), "{notes:?}");
        }

        let (notes, result) = conclude(Ok(Exit::Failed), Closed::default());
        assert_eq!((notes.len(), result.unwrap()), (0, Exit::Failed));
    }
}
