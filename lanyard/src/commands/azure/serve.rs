//! `lanyard azure serve`: serves a local Azure until interrupted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lanyard_emulator::Emulator;
use lanyard_emulator_session::{
    LocalTestCredentials, ServeSession, quote_for_bash, session_directory,
};

use super::local_azure_flags::LocalAzureFlags;
use super::login::{missing_test_clients_error, sign_azure_cli_in};
use super::start_azure::{self, CertificateAuthorityFiles};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, OutputArgs};
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

const EXAMPLE: &str = "\
Examples:
  lanyard azure serve
  lanyard azure serve --state azure --login
  lanyard azure serve --listen 127.0.0.1:0 -o json";

/// Serve the local Azure until interrupted
///
/// One port serves an intercepting proxy for the Azure host names, the instance metadata service, and the
/// control API. Point clients at it with `eval "$(lanyard azure env)"`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The address to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:7750", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Allow an address that other machines can reach. Every client that can connect can request tokens
    #[arg(long)]
    allow_remote: bool,
    #[command(flatten)]
    local_azure: LocalAzureFlags,
    /// Stop the clock of a new state at this time (RFC 3339); the control API resumes it
    #[arg(long, value_name = "TIME")]
    stop_clock_at: Option<Timestamp>,
    /// Sign the certificates of the Azure names with this certificate authority (PEM), instead of a generated
    /// one
    #[arg(long, value_name = "FILE", requires = "ca_key")]
    ca_cert: Option<PathBuf>,
    /// The private key of `--ca-cert` (PEM)
    #[arg(long, value_name = "FILE", requires = "ca_cert")]
    ca_key: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let files = args.ca_cert.as_deref().zip(args.ca_key.as_deref());
    let start = start_azure::StartAzureOptions {
        flags: &args.local_azure,
        stopped_at: args.stop_clock_at,
        listen: args.listen,
        allow_remote: args.allow_remote,
        authority: files.map(|(certificate, key)| CertificateAuthorityFiles { certificate, key }),
    };
    let mut signals = TerminationSignals::listen()?;
    let emulator = start_azure::start_local_azure(&start).await?;
    let environment = environment.session_environment();
    let directory = session_directory(args.local_azure.state.as_deref(), &environment);
    let session = ServeSession::write_descriptor(
        &directory,
        emulator.address(),
        emulator.custom_cloud_url(),
        emulator.ca_pem(),
        &environment,
    )?;
    let ready = prepare_login(&args, &emulator, &session, &directory).await;
    let printed = ready.and_then(|()| {
        output::print_stdout(&match args.output.format {
            CliOutputFormat::Table => startup_message(&session, &args),
            // One line, so that a program can wait for it.
            CliOutputFormat::Json => serde_json::to_string(&session).unwrap_or_default(),
            CliOutputFormat::Yaml => output::serialize_document(&session, CliOutputFormat::Yaml),
        })
    });
    if printed.is_ok() {
        signals.wait().await;
    }
    session.remove_descriptor();
    emulator.shutdown().await;
    printed.map(|()| CommandExit::Success)
}

/// Writes the test credentials for `lanyard azure login`, and signs the Azure CLI in if the user asks for it.
async fn prepare_login(
    args: &Args,
    emulator: &Emulator,
    session: &ServeSession,
    directory: &Path,
) -> Result<(), CommandError> {
    let credentials = LocalTestCredentials::of_emulator(emulator, args.local_azure.login.is_some());
    LocalTestCredentials::write(credentials.as_ref(), directory)?;
    if let Some(principal) = args.local_azure.login {
        let credentials = credentials.as_ref().ok_or_else(missing_test_clients_error)?;
        sign_azure_cli_in(credentials, principal, &session.exports()).await?;
    }
    Ok(())
}

fn startup_message(session: &ServeSession, args: &Args) -> String {
    let state = args
        .local_azure
        .state
        .as_ref()
        .map(|directory| format!(" --state {}", quote_for_bash(&directory.display().to_string())))
        .unwrap_or_default();
    let custom_cloud = session.custom_cloud.as_ref().map_or_else(String::new, |url| {
        format!("custom cloud: az cloud register --name Local --endpoint-resource-manager {url}\n")
    });
    format!(
        "local Azure on {}\nin another shell: eval \"$(lanyard azure env{state})\"\n{custom_cloud}Ctrl-C \
         ends it",
        session.proxy
    )
}
