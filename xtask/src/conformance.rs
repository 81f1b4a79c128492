//! `cargo xtask conformance`: runs conformance suites with upstream clients and components.

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use lanyard_suite_names::SuiteName;

use crate::image::{self, ImageKind};
use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools::{self, KubernetesVersion};
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The suite [default: all suites]
    suite: Option<SuiteName>,
    /// Run against a real Azure subscription, with credentials from the environment
    #[arg(long)]
    live: bool,
    /// The version of Kubernetes, for the suites that run on a cluster
    #[arg(long, value_enum, default_value = "1.36", value_name = "VERSION")]
    kubernetes: KubernetesVersion,
    /// Update the golden files of the chart instead of comparing them
    #[arg(long)]
    update_golden: bool,
    /// Record the operations of the local Azure that the clients of the suite use, instead of comparing them
    #[arg(long, requires = "suite", conflicts_with_all = ["live", "only"])]
    record_clients: bool,
    /// Run only the cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// The suites that can also run against a real subscription.
const LIVE_SUITES: [SuiteName; 4] =
    [SuiteName::Go, SuiteName::Python, SuiteName::Rust, SuiteName::Requests];

/// Whether the suite starts a node.
pub(crate) const fn needs_node(suite: SuiteName) -> bool {
    matches!(
        suite,
        SuiteName::Chart
            | SuiteName::Csi
            | SuiteName::Interop
            | SuiteName::Node
            | SuiteName::HostedCluster
    )
}

/// Whether the suite runs the container images.
pub(crate) const fn needs_image(suite: SuiteName) -> bool {
    matches!(suite, SuiteName::Node | SuiteName::HostedCluster)
}

pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<PassFailCounts, TaskError> {
    let suites = selected_suites(arguments);
    workspace::build_programs(repository)?;
    let tally = run_suites(&suites, |suite| {
        let mut command = suite_command(repository, suite, arguments.kubernetes)?;
        command.args(arguments.live.then_some("--live"));
        command.args(arguments.update_golden.then_some("--update-golden"));
        command.args(arguments.record_clients.then_some("--record-clients"));
        command.args(arguments.only.iter());
        match arguments.only {
            // With a filter, most suites have no matching case.
            Some(_) => process::run_filtered(&mut command),
            None => process::run_counted(&mut command),
        }
    })?;
    match &arguments.only {
        Some(filter) if !tally.all_passed() => Err(TaskError::Findings {
            check: "values of `--only` that match no case",
            findings: vec![filter.clone()],
        }),
        _ => Ok(tally),
    }
}

fn selected_suites(arguments: &Args) -> Vec<SuiteName> {
    let is_wanted = |suite: &SuiteName| match arguments.suite {
        Some(wanted) => wanted == *suite,
        None => !arguments.live || LIVE_SUITES.contains(suite),
    };
    SuiteName::value_variants().iter().copied().filter(is_wanted).collect()
}

/// Runs every suite, also after a failure, so that one run shows all problems.
fn run_suites(
    suites: &[SuiteName],
    mut run: impl FnMut(SuiteName) -> Result<PassFailCounts, TaskError>,
) -> Result<PassFailCounts, TaskError> {
    let mut tally = PassFailCounts::default();
    let mut failed = Vec::new();
    for suite in suites {
        match run(*suite) {
            Ok(of_suite) => tally += of_suite,
            Err(error) => {
                tally += PassFailCounts::ONE_FAILED;
                if suites.len() > 1 {
                    process::print_error(&error);
                }
                failed.push((suite.name(), error));
            }
        }
    }
    process::print_line(&format!("conformance: {tally}"));
    let names = failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let count = failed.len();
    match failed.pop() {
        None => Ok(tally),
        Some((_, only)) if suites.len() == 1 => Err(only),
        Some(_) => {
            Err(TaskError::Several { what: "suites", failed: count, total: suites.len(), names })
        }
    }
}

/// Runs one suite as CI does, with programs that are already built.
pub(crate) fn run_suite(
    repository: &Repository,
    suite: SuiteName,
) -> Result<PassFailCounts, TaskError> {
    process::run_counted(&mut suite_command(repository, suite, KubernetesVersion::V1_36)?)
}

/// Checks that a live suite without credentials names the missing variables and exits with status 2.
pub(crate) fn check_live_requires_credentials(
    repository: &Repository,
) -> Result<PassFailCounts, TaskError> {
    let mut tally = PassFailCounts::default();
    for suite in LIVE_SUITES {
        let mut command = suite_command(repository, suite, KubernetesVersion::V1_36)?;
        let output = process::run_to_output(command.arg("--live").env_clear())?;
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(2) || !message.contains("AZURE_TENANT_ID") {
            return Err(TaskError::Findings {
                check: "a live suite without credentials must stop with status 2 and name them",
                findings: vec![format!("{}: {}: {message}", suite.name(), output.status)],
            });
        }
        tally += PassFailCounts::ONE_PASSED;
    }
    Ok(tally)
}

/// Installs the programs of a suite that the workspace does not contain, and returns the command that runs
/// the suite.
fn suite_command(
    repository: &Repository,
    suite: SuiteName,
    kubernetes: KubernetesVersion,
) -> Result<Command, TaskError> {
    let flags = programs::suite_flags(repository, suite, kubernetes)?;
    let binaries = repository.debug_binaries();
    Ok(driver_command(repository, &binaries, &suite.name(), flags, &binaries.join("lanyard")))
}

fn driver_command(
    repository: &Repository,
    binaries: &Path,
    suite: &str,
    flags: Vec<programs::SuiteFlag>,
    lanyard: &Path,
) -> Command {
    let mut command = Command::new(binaries.join("lanyard-conformance"));
    command.current_dir(repository.root()).arg(suite).arg("--lanyard").arg(lanyard);
    command
        .arg("--hosted-cluster")
        .arg(repository.root().join("examples").join("hostedcluster.yaml"));
    command.arg("--repository").arg(repository.root());
    for flag in flags {
        command.args(flag);
    }
    command
}

/// The command that runs the benchmark of the node plugin with a release build of lanyard. The driver and the
/// local Azure are release builds too, because their cost is part of every measurement.
pub(crate) fn node_benchmark_command(
    repository: &Repository,
    lanyard: &Path,
) -> Result<Command, TaskError> {
    let flags = programs::benchmark_flags(repository, lanyard)?;
    let binaries = build_benchmark_programs(repository)?;
    let mut command =
        driver_command(repository, &binaries, "measure", flags, &binaries.join("lanyard"));
    // The same variables as in the image. The peers do not use them.
    command.envs(image::base_files::allocator_variables(ImageKind::Node).iter().copied());
    Ok(command)
}

/// The command that runs the benchmark of the operator with a release build of lanyard. The driver is a
/// release build too, because it shares the processors.
pub(crate) fn operator_benchmark_command(
    repository: &Repository,
    lanyard: &Path,
) -> Result<Command, TaskError> {
    let flags = programs::suite_flags(repository, SuiteName::Operator, KubernetesVersion::V1_36)?;
    let binaries = build_benchmark_programs(repository)?;
    let mut command = driver_command(repository, &binaries, "measure-operator", flags, lanyard);
    // The same variables as in the image.
    command.envs(image::base_files::allocator_variables(ImageKind::Lanyard).iter().copied());
    Ok(command)
}

/// The command that runs the benchmark of the local Azure with a release build of lanyard. The bare TLS server
/// is built with the same profile, and the load generator in the driver is a release build. `with_azurite`
/// requires Node.js.
pub(crate) fn azure_benchmark_command(
    repository: &Repository,
    lanyard: &Path,
    with_azurite: bool,
) -> Result<Command, TaskError> {
    let mut flags = Vec::new();
    if with_azurite {
        let script = tools::azurite_blob_script(repository)?;
        flags.push(programs::tool_flag("azurite-blob", &script));
    }
    let binaries = build_benchmark_programs(repository)?;
    flags.push(programs::tool_flag("bare-tls-server", &build_bare_tls_server(repository)?));
    let mut command = driver_command(repository, &binaries, "measure-azure", flags, lanyard);
    // The same variables as in the image, also for the bare TLS server. Node.js does not use them.
    command.envs(image::base_files::allocator_variables(ImageKind::Azure).iter().copied());
    Ok(command)
}

/// Builds the local Azure and the benchmark driver, with the same features for every benchmark, because other
/// features would recompile all dependencies. Returns their directory.
fn build_benchmark_programs(repository: &Repository) -> Result<PathBuf, TaskError> {
    let mut build = repository.cargo();
    build.args(["build", "--locked", "--release", "--package", "lanyard"]);
    process::run(build.args(["--package", "lanyard-conformance"]))?;
    Ok(repository.release_binaries())
}

/// Builds the bare TLS server with the profile of the image `lanyard-azure`. Returns its path.
fn build_bare_tls_server(repository: &Repository) -> Result<PathBuf, TaskError> {
    let profile = ImageKind::Azure.profile();
    let mut build = repository.cargo();
    build.args(["build", "--locked", "--profile", profile, "--package", "lanyard-bare-tls-server"]);
    process::run(&mut build)?;
    Ok(repository.target_directory().join(profile).join("bare-tls-server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_suite_does_not_stop_the_others() {
        let mut ran = Vec::new();
        let outcome = run_suites(&[SuiteName::Go, SuiteName::Chart, SuiteName::Node], |suite| {
            ran.push(suite);
            if suite == SuiteName::Go {
                Err(TaskError::Environment("HOME"))
            } else {
                Ok(PassFailCounts::ONE_PASSED)
            }
        });
        assert_eq!(ran, [SuiteName::Go, SuiteName::Chart, SuiteName::Node]);
        assert_eq!(outcome.expect_err("one failed").to_string(), "1 of 3 suites failed: go");
    }
}
