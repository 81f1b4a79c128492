//! `cargo xtask fuzz`: coverage-guided fuzzing on stable Rust.

use std::process::Command;

use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The target; all of them when none is named
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = SMOKE_SECONDS)]
    seconds: u32,
}

/// How long CI runs each target.
pub(crate) const SMOKE_SECONDS: u32 = 15;

/// The targets of `fuzz/fuzz_targets`.
pub(crate) const TARGETS: [&str; 7] = [
    "credential_document",
    "certificate_bundle",
    "spc_objects",
    "client_assertion",
    "csi_requests",
    "provider_messages",
    "node_policy",
];

pub(crate) fn run(house: &Repository, arguments: &Args) -> Result<PassFailCounts, TaskError> {
    if let Some(name) = arguments.target.as_deref()
        && !TARGETS.contains(&name)
    {
        return Err(TaskError::Unknown {
            what: "fuzz target",
            name: name.to_owned(),
            known: TARGETS.join(", "),
        });
    }
    build_targets(house)?;
    let mut tally = PassFailCounts::default();
    for target in TARGETS {
        if arguments.target.as_deref().is_none_or(|wanted| wanted == target) {
            run_target(house, target, arguments.seconds)?;
            tally += PassFailCounts::ONE_PASSED;
        }
    }
    process::print_line(&format!("fuzz: {tally}"));
    Ok(tally)
}

/// Builds every target with counters of coverage in our own crates. Crates of others are those of every
/// other build.
pub(crate) fn build_targets(house: &Repository) -> Result<(), TaskError> {
    let mut command = house.cargo();
    command.arg("build").args(workspace::ALL_PACKAGES);
    for target in TARGETS {
        command.args(["--bin", target]);
    }
    let wrapper = house.root().join("fuzz").join("rustc-with-coverage.sh");
    process::run(command.env("RUSTC_WORKSPACE_WRAPPER", wrapper))
}

/// Runs one target that is built; finds of this run go to the built files, the seeds stay as committed.
pub(crate) fn run_target(house: &Repository, target: &str, seconds: u32) -> Result<(), TaskError> {
    let directory = |name: &str| {
        let path = house.target_directory().join(name).join(target);
        std::fs::create_dir_all(&path).map_err(|source| TaskError::File {
            action: "create",
            path: path.clone(),
            source,
        })?;
        Ok::<_, TaskError>(path)
    };
    let (found, artifacts) = (directory("fuzz-corpus")?, directory("fuzz-artifacts")?);
    let mut command = Command::new(house.debug_binaries().join(target));
    command.arg(&found).arg(house.root().join("fuzz").join("corpus").join(target));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.args(["-print_final_stats=1", "-verbosity=0", "-rss_limit_mb=2048"]);
    // No input may keep a thread of the node for long.
    command.arg("-timeout=10").arg(format!("-max_total_time={seconds}"));
    process::run(&mut command)
}
