//! `cargo xtask fuzz`: coverage-guided fuzzing on stable Rust.

use crate::failure::TaskError;
use crate::house::House;
use crate::process::{self, Tally};
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
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

pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<Tally, TaskError> {
    if let Some(name) = arguments.target.as_deref()
        && !TARGETS.contains(&name)
    {
        return Err(TaskError::Unknown {
            what: "fuzz target",
            name: name.to_owned(),
            known: TARGETS.join(", "),
        });
    }
    let mut tally = Tally::default();
    for target in TARGETS {
        if arguments.target.as_deref().is_none_or(|wanted| wanted == target) {
            fuzz(house, target, arguments.seconds)?;
            tally += Tally::ONE;
        }
    }
    process::say(&format!("fuzz: {tally}"));
    Ok(tally)
}

/// Runs one target; finds of this run go to the built files, the seeds stay as committed.
pub(crate) fn fuzz(house: &House, target: &str, seconds: u32) -> Result<(), TaskError> {
    let binaries = tools::cargo_tool(house, tools::CARGO_FUZZ)?;
    let found = house.target().join("fuzz-corpus").join(target);
    std::fs::create_dir_all(&found).map_err(|source| TaskError::File {
        action: "create",
        path: found.clone(),
        source,
    })?;
    let mut command = house.cargo();
    command.env("PATH", house.path_with(&binaries));
    command.env("CARGO_TARGET_DIR", house.target().join("fuzz"));
    // The address sanitizer needs a nightly compiler; coverage does not, and our code is safe.
    command.args(["fuzz", "run", "--sanitizer", "none", target]);
    command.arg(&found);
    command.arg(house.root().join("fuzz").join("corpus").join(target));
    command.args(["--", "-print_final_stats=1", "-verbosity=0", "-rss_limit_mb=2048"]);
    // No input may keep a thread of the node for long.
    command.arg("-timeout=10");
    command.arg(format!("-max_total_time={seconds}"));
    process::run(&mut command)
}
