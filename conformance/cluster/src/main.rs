//! `lanyard-cluster`: the cluster as a command. `cargo xtask cluster` calls it with the programs
//! that it installed.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use comfy_table::{Table, presets};
use lanyard_clock::SystemClock;
use lanyard_cluster::{Cluster, ClusterError, Health, Options, Status};

/// A real one-node Kubernetes cluster on loopback
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The directory that holds everything of the cluster
    #[arg(long, value_name = "DIR", global = true, default_value = "cluster")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the cluster, or what is missing of it, and wait until pods can run
    Up(Up),
    /// Take the cluster away, whatever state it is in
    Down,
    /// Show every component
    Status {
        /// The form of the answer
        #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
        output: Format,
    },
    /// Import image archives into the node
    Load {
        /// Archives in the docker-archive or OCI format
        #[arg(required = true, value_name = "FILE")]
        archives: Vec<PathBuf>,
    },
    /// Print the path of the administrator's kubeconfig
    Kubeconfig,
    /// Print the key set of the issuer of service account tokens
    Keys,
}

#[derive(Debug, clap::Args)]
struct Up {
    /// The directory of the programs
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// The kubelet's syncFrequency, which paces republishing of CSI volumes [default: 1m]
    #[arg(long, value_name = "DURATION")]
    sync_frequency: Option<String>,
    /// The issuer of service account tokens [default: the API server's usual name]
    #[arg(long, value_name = "URL")]
    service_account_issuer: Option<String>,
    /// A PEM file with the RSA key that signs service account tokens [default: a new one]
    #[arg(long, value_name = "FILE")]
    service_account_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error);
            if error.is_usage() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs a command; the answer is whether the cluster is as it should be.
async fn run(arguments: Arguments) -> Result<bool, ClusterError> {
    let clock = SystemClock::shared();
    let directory = arguments.dir;
    match arguments.command {
        Command::Up(up) => {
            let options = Options {
                directory,
                programs: up.programs,
                sync_frequency: up.sync_frequency,
                service_account_issuer: up.service_account_issuer,
                service_account_key: up.service_account_key,
            };
            let (cluster, outcome) = Cluster::up_with_outcome(options, clock).await?;
            let status = cluster.status().await;
            let seconds = outcome.elapsed.as_secs_f64();
            say(&if outcome.started.is_empty() {
                format!("{} is up already", status.directory.display())
            } else {
                format!("{} is up after {seconds:.1} s", status.directory.display())
            });
            say(&table(&status));
            say(&format!("export KUBECONFIG={}", status.kubeconfig.display()));
        }
        Command::Down => {
            let existed = Cluster::down(&directory, clock).await?;
            say(if existed { "the cluster is gone" } else { "there was no cluster" });
        }
        Command::Status { output } => {
            let status = Cluster::open(&directory, clock)?.status().await;
            say(&match output {
                Format::Table => table(&status),
                Format::Json => json(&serde_json::json!(status)),
            });
            return Ok(status.is_ready());
        }
        Command::Load { archives } => {
            let cluster = Cluster::open(&directory, clock)?;
            for archive in archives {
                say(cluster.load(&archive).await?.trim_end());
            }
        }
        Command::Kubeconfig => {
            let cluster = Cluster::open(&directory, clock)?;
            say(&cluster.kubeconfig().display().to_string());
        }
        Command::Keys => {
            let cluster = Cluster::open(&directory, clock)?;
            say(&json(&cluster.fetch_service_account_keys().await?));
        }
    }
    Ok(true)
}

fn table(status: &Status) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["COMPONENT", "PID", "PORT", "HEALTH", "MEMORY"]);
    let number = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for it in &status.components {
        table.add_row([
            it.component.to_string(),
            number(it.pid.map(|pid| pid.to_string())),
            number(it.port.map(|port| port.to_string())),
            match &it.health {
                Health::Ready => "ready".to_owned(),
                Health::NotReady(message) => format!("not ready: {message}"),
                Health::Stopped => "stopped".to_owned(),
            },
            number(it.memory_bytes.map(mebibytes)),
        ]);
    }
    let version = status.kubernetes.as_deref().unwrap_or("Kubernetes of unknown version");
    let memory = mebibytes(status.memory_bytes());
    format!("{table}\n{version} at {}, {memory} in all", status.api_server)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

fn json(value: &serde_json::Value) -> String {
    format!("{value:#}")
}

/// Writes to a reader that may have gone away (`| head`).
fn say(text: &str) {
    writeln!(io::stdout().lock(), "{text}").unwrap_or_default();
}

fn complain(error: &ClusterError) {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str("\n\nhint: ");
        text.push_str(hint);
    }
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}
