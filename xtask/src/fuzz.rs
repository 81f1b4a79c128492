//! `cargo xtask fuzz`: coverage-guided fuzzing on stable Rust.

use std::process::Command;

use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The target [default: all targets]
    target: Option<String>,
    /// How many seconds each target runs
    #[arg(long, default_value_t = SMOKE_SECONDS)]
    seconds: u32,
}

/// How many seconds CI runs each target.
pub(crate) const SMOKE_SECONDS: u32 = 15;

/// The targets of `fuzz/fuzz_targets`.
pub(crate) const TARGETS: [&str; 12] = [
    "credential_document",
    "certificate_bundle",
    "certificate_chain",
    "spc_objects",
    "client_assertion",
    "condition",
    "arm_template",
    "csi_requests",
    "pkcs12_parameters",
    "provider_messages",
    "node_policy",
    "journal",
];

pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<PassFailCounts, TaskError> {
    if let Some(name) = arguments.target.as_deref()
        && !TARGETS.contains(&name)
    {
        return Err(TaskError::Unknown {
            what: "fuzz target",
            name: name.to_owned(),
            known: TARGETS.join(", "),
        });
    }
    build_targets(repository)?;
    let mut tally = PassFailCounts::default();
    for target in TARGETS {
        if arguments.target.as_deref().is_none_or(|wanted| wanted == target) {
            run_target(repository, target, arguments.seconds)?;
            tally += PassFailCounts::ONE_PASSED;
        }
    }
    process::print_line(&format!("fuzz: {tally}"));
    Ok(tally)
}

/// Builds every target with coverage counters in the crates of this workspace. Dependencies are built without
/// counters, so that all builds share them.
pub(crate) fn build_targets(repository: &Repository) -> Result<(), TaskError> {
    let mut command = repository.cargo();
    command.arg("build").args(workspace::ALL_PACKAGES);
    for target in TARGETS {
        command.args(["--bin", target]);
    }
    let wrapper = repository.root().join("fuzz").join("rustc-with-coverage.sh");
    process::run(command.env("RUSTC_WORKSPACE_WRAPPER", wrapper))
}

/// Runs one target, which must be built. New inputs are written to the target directory; the committed seeds
/// stay unchanged.
pub(crate) fn run_target(
    repository: &Repository,
    target: &str,
    seconds: u32,
) -> Result<(), TaskError> {
    let directory = |name: &str| {
        let path = repository.target_directory().join(name).join(target);
        std::fs::create_dir_all(&path).map_err(|source| TaskError::File {
            action: "create",
            path: path.clone(),
            source,
        })?;
        Ok::<_, TaskError>(path)
    };
    let (found, artifacts) = (directory("fuzz-corpus")?, directory("fuzz-artifacts")?);
    let mut command = Command::new(repository.debug_binaries().join(target));
    command.arg(&found).arg(repository.root().join("fuzz").join("corpus").join(target));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.args(["-print_final_stats=1", "-verbosity=0", "-rss_limit_mb=256"]);
    // Fails on inputs that would block a thread of the node plugin, or fill its container. The slowest seed, a PKCS#12
    // archive with the most iterations, takes 0.23 s on an idle machine; CI has been five times slower.
    command.arg("-timeout=3").arg(format!("-max_total_time={seconds}"));
    process::run(&mut command)
}
