//! `cargo xtask conformance`: other people's clients as judges.

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::failure::TaskError;
use crate::house::House;
use crate::image::{self, Product};
use crate::process::{self, Tally};
use crate::tools::KubernetesVersion;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The suite; all of them when none is named
    suite: Option<Suite>,
    /// Run against a real Azure subscription, with credentials from the environment
    #[arg(long)]
    live: bool,
    /// The version of Kubernetes, for the suites that run on a cluster
    #[arg(long, value_enum, default_value = "1.36", value_name = "VERSION")]
    kubernetes: KubernetesVersion,
    /// Write down what the chart renders instead of comparing it
    #[arg(long)]
    bless: bool,
    /// Run only the cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A suite, named after what judges or what is judged.
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
    /// kube-apiserver on the kinds of the operator, and on the operator
    Operator,
    /// The chart of the node plugin, by Helm and a Kubernetes API
    Chart,
    /// csi-sanity on our CSI driver
    Csi,
    /// Upstream's drivers and providers, each with the other half of ours
    Interop,
    /// The chart on a real node, with pods of a real kubelet
    Node,
    /// kube-apiserver and upstream's KMS plugin on ours
    Kms,
    /// The three charts on a real node, as the tutorial installs them: a HostedCluster and its nine identities
    HostedCluster,
}

impl Suite {
    pub(crate) const ALL: [Self; 12] = [
        Self::Go,
        Self::Python,
        Self::Rust,
        Self::Requests,
        Self::Kubernetes,
        Self::Operator,
        Self::Chart,
        Self::Csi,
        Self::Interop,
        Self::Node,
        Self::Kms,
        Self::HostedCluster,
    ];
    /// The suites that run on a subscription as well.
    const LIVE: [Self; 4] = [Self::Go, Self::Python, Self::Rust, Self::Requests];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Python => "python",
            Self::Rust => "rust",
            Self::Requests => "requests",
            Self::Kubernetes => "kubernetes",
            Self::Operator => "operator",
            Self::Chart => "chart",
            Self::Csi => "csi",
            Self::Interop => "interop",
            Self::Node => "node",
            Self::Kms => "kms",
            Self::HostedCluster => "hosted-cluster",
        }
    }

    /// Whether the suite starts a node.
    pub(crate) const fn needs_node(self) -> bool {
        matches!(self, Self::Chart | Self::Csi | Self::Interop | Self::Node | Self::HostedCluster)
    }

    /// Whether the suite runs what is shipped.
    pub(crate) const fn needs_image(self) -> bool {
        matches!(self, Self::Node | Self::HostedCluster)
    }
}

pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<Tally, TaskError> {
    let suites = wanted(arguments);
    workspace::build_programs(house)?;
    let tally = run_each(&suites, |suite| {
        let mut command = suite_command(house, suite, arguments.kubernetes)?;
        command.args(arguments.live.then_some("--live"));
        command.args(arguments.bless.then_some("--bless"));
        command.args(arguments.only.iter());
        match arguments.only {
            // Its cases are in one suite, most often.
            Some(_) => process::run_filtered(&mut command),
            None => process::run_counted(&mut command),
        }
    })?;
    match &arguments.only {
        Some(filter) if !tally.shows_something_good() => Err(TaskError::Findings {
            check: "values of `--only` that match no case",
            findings: vec![filter.clone()],
        }),
        _ => Ok(tally),
    }
}

fn wanted(arguments: &Arguments) -> Vec<Suite> {
    let is_wanted = |suite: &Suite| match arguments.suite {
        Some(wanted) => wanted == *suite,
        None => !arguments.live || Suite::LIVE.contains(suite),
    };
    Suite::ALL.into_iter().filter(is_wanted).collect()
}

/// Runs every suite, also after a failure: one run shows all that is wrong.
fn run_each(
    suites: &[Suite],
    mut run: impl FnMut(Suite) -> Result<Tally, TaskError>,
) -> Result<Tally, TaskError> {
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for suite in suites {
        match run(*suite) {
            Ok(of_suite) => tally += of_suite,
            Err(error) => {
                tally += Tally::FAILURE;
                if suites.len() > 1 {
                    process::complain(&error);
                }
                failed.push((suite.name(), error));
            }
        }
    }
    process::say(&format!("conformance: {tally}"));
    let names = failed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let count = failed.len();
    match failed.pop() {
        None => Ok(tally),
        Some((_, only)) if suites.len() == 1 => Err(only),
        Some(_) => {
            Err(TaskError::Several { what: "suites", failed: count, total: suites.len(), names })
        }
    }
}

/// One suite as CI runs it, on programs that are built.
pub(crate) fn run_suite(house: &House, suite: Suite) -> Result<Tally, TaskError> {
    process::run_counted(&mut suite_command(house, suite, KubernetesVersion::V1_36)?)
}

/// Without credentials a live suite must say what it needs and stop with status 2.
pub(crate) fn check_live_stops(house: &House) -> Result<Tally, TaskError> {
    let mut tally = Tally::default();
    for suite in Suite::LIVE {
        let mut command = suite_command(house, suite, KubernetesVersion::V1_36)?;
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

/// Installs what a suite needs beside the programs of the workspace, and returns the command that runs
/// it.
fn suite_command(
    house: &House,
    suite: Suite,
    kubernetes: KubernetesVersion,
) -> Result<Command, TaskError> {
    let flags = programs::flags(house, suite, kubernetes)?;
    let binaries = house.debug_binaries();
    Ok(command(house, &binaries, suite.name(), flags, &binaries.join("lanyard")))
}

fn command(
    house: &House,
    binaries: &Path,
    suite: &str,
    flags: Vec<programs::Flag>,
    lanyard: &Path,
) -> Command {
    let mut command = Command::new(binaries.join("lanyard-conformance"));
    command.current_dir(house.root()).arg(suite).arg("--lanyard").arg(lanyard);
    command.arg("--hosted-cluster").arg(house.root().join("examples").join("hostedcluster.yaml"));
    command.arg("--repository").arg(house.root());
    for flag in flags {
        command.args(flag);
    }
    command
}

/// The command that measures the node side, with a released binary of ours. It and the local Azure
/// are released builds too: what they cost is in every number, of both sides.
pub(crate) fn measuring_driver(house: &House, lanyard: &Path) -> Result<Command, TaskError> {
    let flags = programs::for_measuring(house, lanyard)?;
    let binaries = build_measuring_programs(house)?;
    let mut command = command(house, &binaries, "measure", flags, &binaries.join("lanyard"));
    // As in the image. The processes of the other side do not know it.
    command.envs(image::content::allocator(Product::Node).iter().copied());
    Ok(command)
}

/// The command that measures the operator, with a released binary of ours. It is a released build
/// too: what it does costs time of the same machine.
pub(crate) fn measuring_operator_driver(
    house: &House,
    lanyard: &Path,
) -> Result<Command, TaskError> {
    let flags = programs::flags(house, Suite::Operator, KubernetesVersion::V1_36)?;
    let binaries = build_measuring_programs(house)?;
    let mut command = command(house, &binaries, "measure-operator", flags, lanyard);
    // As in the image.
    command.envs(image::content::allocator(Product::Lanyard).iter().copied());
    Ok(command)
}

/// Builds the local Azure and what measures, with the same features for every benchmark: other features
/// would compile all dependencies again. Returns their directory.
fn build_measuring_programs(house: &House) -> Result<PathBuf, TaskError> {
    let mut build = house.cargo();
    build.args(["build", "--locked", "--release", "--package", "lanyard"]);
    process::run(build.args(["--package", "lanyard-conformance"]))?;
    Ok(house.released_binaries())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_fails_keeps_no_other_from_running() {
        let mut ran = Vec::new();
        let outcome = run_each(&[Suite::Go, Suite::Chart, Suite::Node], |suite| {
            ran.push(suite);
            if suite == Suite::Go { Err(TaskError::Environment("HOME")) } else { Ok(Tally::ONE) }
        });
        assert_eq!(ran, [Suite::Go, Suite::Chart, Suite::Node]);
        assert_eq!(outcome.expect_err("one failed").to_string(), "1 of 3 suites failed: go");
    }
}
