//! `lanyard-cluster`, the command line of the cluster. `cargo xtask cluster` calls it with the programs that
//! it installed.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use comfy_table::{Table, presets};
use lanyard_clock::{ErrorHint as _, SystemClock};
use lanyard_cluster::{ClusterError, ClusterStatus, ComponentHealth, LocalCluster, Options};

/// A real one-node Kubernetes cluster on loopback
#[derive(Debug, Parser)]
#[command(version)]
struct ClusterArgs {
    /// Directory that holds all files of the cluster
    #[arg(long, value_name = "DIR", global = true, default_value = "cluster")]
    dir: PathBuf,
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Start the cluster, or its missing components, and wait until pods can run
    Up(UpArgs),
    /// Remove the cluster, whatever state it is in
    Down,
    /// Show the state of every component
    Status {
        /// Output format
        #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
        output: StatusFormat,
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
struct UpArgs {
    /// Directory of the programs
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// syncFrequency of the kubelet, which sets the republish interval of CSI volumes [default: 1m]
    #[arg(long, value_name = "DURATION")]
    sync_frequency: Option<String>,
    /// Issuer of service account tokens [default: the usual name of the API server]
    #[arg(long, value_name = "URL")]
    service_account_issuer: Option<String>,
    /// PEM file with the RSA key that signs service account tokens [default: a new key]
    #[arg(long, value_name = "FILE")]
    service_account_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StatusFormat {
    Table,
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(ClusterArgs::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&error);
            if error.is_usage_error() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs a command. Returns false if `status` found a component that is not ready.
async fn run(arguments: ClusterArgs) -> Result<bool, ClusterError> {
    let clock = SystemClock::shared();
    let directory = arguments.dir;
    match arguments.command {
        ClusterCommand::Up(up) => {
            let options = Options {
                directory,
                programs: up.programs,
                sync_frequency: up.sync_frequency,
                service_account_issuer: up.service_account_issuer,
                service_account_key: up.service_account_key,
            };
            let (cluster, outcome) = LocalCluster::up_with_outcome(options, clock).await?;
            let status = cluster.status().await;
            let seconds = outcome.elapsed.as_secs_f64();
            print_output(&if outcome.started.is_empty() {
                format!("{} is up already", status.directory.display())
            } else {
                format!("{} is up after {seconds:.1} s", status.directory.display())
            });
            print_output(&status_table(&status));
            print_output(&format!("export KUBECONFIG={}", status.kubeconfig.display()));
        }
        ClusterCommand::Down => {
            let existed = LocalCluster::down(&directory, clock).await?;
            print_output(if existed { "the cluster is gone" } else { "there was no cluster" });
        }
        ClusterCommand::Status { output } => {
            let status = LocalCluster::open(&directory, clock)?.status().await;
            print_output(&match output {
                StatusFormat::Table => status_table(&status),
                StatusFormat::Json => pretty_json(&serde_json::json!(status)),
            });
            return Ok(status.is_ready());
        }
        ClusterCommand::Load { archives } => {
            let cluster = LocalCluster::open(&directory, clock)?;
            for archive in archives {
                print_output(cluster.load_image_archive(&archive).await?.trim_end());
            }
        }
        ClusterCommand::Kubeconfig => {
            let cluster = LocalCluster::open(&directory, clock)?;
            print_output(&cluster.kubeconfig().display().to_string());
        }
        ClusterCommand::Keys => {
            let cluster = LocalCluster::open(&directory, clock)?;
            print_output(&pretty_json(&cluster.fetch_service_account_keys().await?));
        }
    }
    Ok(true)
}

fn status_table(status: &ClusterStatus) -> String {
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
                ComponentHealth::Ready => "ready".to_owned(),
                ComponentHealth::NotReady(message) => format!("not ready: {message}"),
                ComponentHealth::Stopped => "stopped".to_owned(),
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

fn pretty_json(value: &serde_json::Value) -> String {
    format!("{value:#}")
}

/// Ignores write errors, because the reader may have exited (`| head`).
fn print_output(text: &str) {
    writeln!(io::stdout().lock(), "{text}").unwrap_or_default();
}

fn print_error(error: &ClusterError) {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str("\n\nhint: ");
        text.push_str(&hint);
    }
    writeln!(io::stderr().lock(), "{text}").unwrap_or_default();
}
