//! `lanyard azure serve`: a local Azure until interrupted.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::session::{self, Session};
use super::world::{self, AuthorityFiles};
use crate::exit::{CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;
use crate::signals::Signals;

/// Serve the local Azure until interrupted
///
/// One port answers as an intercepting proxy for the Azure names, as the instance metadata
/// service, and as the control API. Point clients at it with `eval "$(lanyard azure env)"`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7750", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Allow an address that other machines can reach. Whoever reaches it can mint tokens
    #[arg(long)]
    allow_remote: bool,
    /// Keep the world in this directory, across restarts and crashes
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The HostedCluster whose world is seeded [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Sign the certificates of the Azure names with this certificate authority (PEM), instead of a
    /// generated one
    #[arg(long, value_name = "FILE", requires = "ca_key")]
    ca_cert: Option<PathBuf>,
    /// The private key of `--ca-cert` (PEM)
    #[arg(long, value_name = "FILE", requires = "ca_cert")]
    ca_key: Option<PathBuf>,
    /// The form of the address that is printed once the port answers
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let files = args.ca_cert.as_deref().zip(args.ca_key.as_deref());
    let start = world::Start {
        file: args.file.as_deref(),
        state: args.state.as_deref(),
        listen: args.listen,
        allow_remote: args.allow_remote,
        authority: files.map(|(certificate, key)| AuthorityFiles { certificate, key }),
    };
    let mut signals = Signals::listen()?;
    let emulator = world::start(&start).await?;
    let directory = session::directory(args.state.as_deref(), &environment);
    let session =
        Session::publish(&directory, emulator.address(), emulator.ca_pem(), &environment)?;
    let told = output::print(&match args.output {
        Format::Table => introduction(&session, &args),
        // One line, so that a program can wait for it.
        Format::Json => serde_json::to_string(&session).unwrap_or_default(),
        Format::Yaml => output::document(&session, Format::Yaml),
    });
    if told.is_ok() {
        signals.end().await;
    }
    session.withdraw();
    emulator.shutdown().await;
    told.map(|()| Exit::Good)
}

fn introduction(session: &Session, args: &Args) -> String {
    let state = args
        .state
        .as_ref()
        .map_or_else(String::new, |directory| format!(" --state '{}'", directory.display()));
    format!(
        "local Azure on {}\nin another shell: eval \"$(lanyard azure env{state})\"\nCtrl-C ends it",
        session.proxy
    )
}
