//! `cargo xtask cluster`: runs a real one-node cluster on loopback, for tests and experiments.
//!
//! The implementation is `conformance/cluster`, which the conformance driver links too. This module installs
//! its programs and selects its directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Subcommand, ValueEnum};

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools::{self, KubernetesVersion};
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ClusterTaskCommand,
    /// The name of the cluster: several can run at the same time
    #[arg(long, default_value = "default", global = true, value_parser = parse_name)]
    name: String,
    /// The directory of the cluster [default: a directory in the cache, by the cluster's name]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ClusterTaskCommand {
    /// Start the cluster, or its missing components, and wait until pods can run
    Up(ClusterTaskUpArgs),
    /// Remove the cluster, regardless of its state
    Down,
    /// Show every component
    Status {
        /// The output format
        #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
        output: ClusterTaskFormat,
    },
    /// Import image archives (docker-archive or OCI) into the node
    Load {
        /// The archives
        #[arg(required = true, value_name = "FILE")]
        archives: Vec<PathBuf>,
    },
    /// Print the path of the administrator's kubeconfig
    Kubeconfig,
    /// Print the JSON Web Key Set of the issuer of service account tokens
    Keys,
}

#[derive(Debug, clap::Args)]
struct ClusterTaskUpArgs {
    /// The version of Kubernetes
    #[arg(long, value_enum, default_value = "1.36", value_name = "VERSION")]
    kubernetes: KubernetesVersion,
    /// The kubelet's syncFrequency, which determines how often CSI volumes are republished [default: 1m]
    #[arg(long, value_name = "DURATION")]
    sync_frequency: Option<String>,
    /// The issuer of service account tokens [default: the default of the API server]
    #[arg(long, value_name = "URL")]
    service_account_issuer: Option<String>,
    /// A PEM file with the RSA key that signs service account tokens [default: a new one]
    #[arg(long, value_name = "FILE")]
    service_account_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClusterTaskFormat {
    Table,
    Json,
}

pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<(), TaskError> {
    let directory = match &arguments.dir {
        Some(directory) => directory.clone(),
        None => repository.clusters_directory().join(&arguments.name),
    };
    let programs = match &arguments.command {
        ClusterTaskCommand::Up(up) => Some(tools::node_programs(repository, up.kubernetes)?),
        _ => None,
    };
    let mut command = Command::new(build_cluster_program(repository)?);
    command.args(cluster_arguments(&arguments.command, programs.as_deref()));
    process::run(command.arg("--dir").arg(directory))
}

/// Builds the cluster program.
fn build_cluster_program(repository: &Repository) -> Result<PathBuf, TaskError> {
    let mut build = repository.cargo();
    build
        .args(["build", "--quiet"])
        .args(workspace::ALL_PACKAGES)
        .args(["--bin", "lanyard-cluster"]);
    process::run(&mut build)?;
    Ok(repository.debug_binaries().join("lanyard-cluster"))
}

/// The arguments of the cluster program for a subcommand.
fn cluster_arguments(verb: &ClusterTaskCommand, programs: Option<&Path>) -> Vec<PathBuf> {
    let mut words = Vec::new();
    match verb {
        ClusterTaskCommand::Up(up) => {
            words.push("up".into());
            let texts = [
                ("--sync-frequency", up.sync_frequency.as_ref()),
                ("--service-account-issuer", up.service_account_issuer.as_ref()),
            ];
            let paths = [
                ("--programs", programs.map(Path::to_path_buf)),
                ("--service-account-key", up.service_account_key.clone()),
            ];
            let texts = texts.into_iter().map(|(flag, value)| (flag, value.map(PathBuf::from)));
            for (flag, value) in texts.chain(paths) {
                words.extend(value.map(|value| [flag.into(), value]).into_iter().flatten());
            }
        }
        ClusterTaskCommand::Down => words.push("down".into()),
        ClusterTaskCommand::Status { output } => {
            words.push("status".into());
            if matches!(output, ClusterTaskFormat::Json) {
                words.extend(["--output".into(), "json".into()]);
            }
        }
        ClusterTaskCommand::Load { archives } => {
            words.push("load".into());
            words.extend(archives.iter().cloned());
        }
        ClusterTaskCommand::Kubeconfig => words.push("kubeconfig".into()),
        ClusterTaskCommand::Keys => words.push("keys".into()),
    }
    words
}

/// Parses a cluster name. It must be usable as the name of a directory in the cache.
fn parse_name(name: &str) -> Result<String, &'static str> {
    let is_good = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    if name.is_empty() || name.len() > 32 || !name.chars().all(is_good) {
        return Err("a name has 1 to 32 lower-case letters, digits and hyphens");
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_name_cannot_escape_its_directory() {
        for name in ["", "..", "a/b", "A", "a b"] {
            assert!(parse_name(name).is_err(), "{name}");
        }
        assert_eq!(parse_name("node-1").as_deref(), Ok("node-1"));
    }

    #[test]
    fn omitted_options_are_not_forwarded() {
        let up = ClusterTaskUpArgs {
            kubernetes: KubernetesVersion::V1_36,
            sync_frequency: Some("10s".to_owned()),
            service_account_issuer: None,
            service_account_key: None,
        };
        let expected = ["up", "--sync-frequency", "10s", "--programs", "/p"].map(PathBuf::from);
        assert_eq!(cluster_arguments(&ClusterTaskCommand::Up(up), Some(Path::new("/p"))), expected);
    }
}
