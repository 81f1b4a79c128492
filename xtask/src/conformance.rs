//! `cargo xtask conformance`: other people's clients as judges.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::failure::TaskError;
use crate::house::House;
use crate::process::{self, Tally};
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The suite; all of them when none is named
    suite: Option<Suite>,
    /// Run against a real Azure subscription, with credentials from the environment
    #[arg(long)]
    live: bool,
}

/// A suite, named after the clients that judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// msi-dataplane and armresources on files that our mount wrote
    Go,
    /// azure-identity, azure-keyvault-secrets and azure-mgmt-resource
    Python,
    /// `azure_identity` and `azure_security_keyvault_secrets`
    Rust,
    /// Our own requests beside those of azidentity and azsecrets
    Requests,
    /// kube-apiserver on the node's classes, pod statuses, events and Secrets
    Kubernetes,
}

impl Suite {
    pub(crate) const ALL: [Self; 5] =
        [Self::Go, Self::Python, Self::Rust, Self::Requests, Self::Kubernetes];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Python => "python",
            Self::Rust => "rust",
            Self::Requests => "requests",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// Whether the suite can run on a real Azure subscription.
    const fn runs_live(self) -> bool {
        !matches!(self, Self::Kubernetes)
    }
}

pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<Tally, TaskError> {
    let mut tally = Tally::default();
    for suite in Suite::ALL {
        if arguments.suite.is_none_or(|wanted| wanted == suite) {
            tally += run_suite(house, suite, arguments.live)?;
        }
    }
    process::say(&format!("conformance: {} passed, {} failed", tally.passed, tally.failed));
    Ok(tally)
}

pub(crate) fn run_suite(house: &House, suite: Suite, live: bool) -> Result<Tally, TaskError> {
    if suite == Suite::Kubernetes {
        return process::run_counted(&mut api_driver(house)?);
    }
    let mut command = driver(house, suite)?;
    if live {
        command.arg("--live");
    }
    process::run_counted(&mut command)
}

/// Without credentials a live suite must say what it needs and stop with status 2.
pub(crate) fn check_live_stops(house: &House) -> Result<Tally, TaskError> {
    let mut tally = Tally::default();
    for suite in Suite::ALL.into_iter().filter(|suite| suite.runs_live()) {
        let mut command = driver(house, suite)?;
        let output = process::output_of(command.arg("--live").env_clear())?;
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(2) || !message.contains("AZURE_TENANT_ID") {
            return Err(TaskError::Findings {
                check: "a live suite without credentials must stop with status 2 and name them",
                findings: vec![format!("{}: {}: {message}", suite.name(), output.status)],
            });
        }
        tally += Tally::ONE;
    }
    Ok(tally)
}

/// Builds what a suite needs and returns the command that runs it.
fn driver(house: &House, suite: Suite) -> Result<Command, TaskError> {
    let mut build = house.cargo();
    build.args(["build", "--locked", "--package", "lanyard", "--package", "lanyard-conformance"]);
    process::run(&mut build)?;
    let binaries = house.debug_binaries();
    let mut command = Command::new(binaries.join("lanyard-conformance"));
    command.current_dir(house.root()).arg(suite.name());
    command.arg("--lanyard").arg(binaries.join("lanyard"));
    command.arg("--hosted-cluster").arg(house.root().join("examples").join("hostedcluster.yaml"));
    for (flag, path) in programs(house, suite)? {
        command.arg(flag).arg(path);
    }
    Ok(command)
}

/// Builds the judge of the Kubernetes API and returns the command that runs it.
fn api_driver(house: &House) -> Result<Command, TaskError> {
    let mut build = house.cargo();
    build.args(["build", "--locked", "--package", "lanyard-conformance-api"]);
    process::run(&mut build)?;
    let programs = tools::node_programs(house, tools::KubernetesVersion::V1_36)?;
    let mut command = Command::new(house.debug_binaries().join("lanyard-conformance-api"));
    command.arg("--etcd").arg(programs.join("etcd"));
    command.arg("--kube-apiserver").arg(programs.join("kube-apiserver"));
    command.arg("--definitions").arg(house.root().join("charts/lanyard-node/files/crds"));
    Ok(command)
}

fn programs(house: &House, suite: Suite) -> Result<Vec<(&'static str, PathBuf)>, TaskError> {
    let conformance = house.root().join("conformance");
    Ok(match suite {
        Suite::Go => vec![("--program", tools::go_clients(house)?.join("witness"))],
        Suite::Requests => vec![
            ("--program", tools::go_clients(house)?.join("requests")),
            ("--accepted", accepted_differences(&conformance)),
        ],
        Suite::Python => vec![
            ("--program", tools::python_clients(house)?),
            ("--script", conformance.join("python").join("clients.py")),
        ],
        Suite::Rust => vec![("--program", tools::rust_clients(house)?)],
        Suite::Kubernetes => Vec::new(),
    })
}

fn accepted_differences(conformance: &Path) -> PathBuf {
    conformance.join("driver").join("accepted-differences.json")
}
