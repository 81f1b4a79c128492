//! The credential library beside `azure_identity` and azidentity.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::row::{Goal, Measurement, Metric, Peer, Row};
use crate::failure::TaskError;
use crate::house::House;
use crate::process;

/// The names under which the programs report.
const OURSELVES: &str = "lanyard-credential";
const AZURE_IDENTITY: Peer = Peer { name: "azure_identity 1.0.0", absence: None };
const AZIDENTITY: &str = "azidentity 1.15.0";

/// Builds the programs, runs them one after the other and sets their numbers side by side.
pub(super) fn measure(house: &House, cores: usize) -> Result<Vec<Row>, TaskError> {
    let go = if house.has_program("go") { Some(build_go(house)?) } else { None };
    let rust = build_rust(house)?;
    let mut measurements = measured(&mut Command::new(rust))?;
    if let Some(go) = &go {
        measurements.extend(measured(Command::new(go).args(certificate_files(house)))?);
    }
    let absence = if go.is_none() { Some("Go is not installed") } else { None };
    let metrics = metrics(cores, &Peer { name: AZIDENTITY, absence });
    super::rows(OURSELVES, &metrics, &measurements)
}

/// The program in `benches/credential`, a workspace of its own.
fn build_rust(house: &House) -> Result<PathBuf, TaskError> {
    let target = house.target().join("benches");
    let mut command = house.cargo_in(&benches(house).join("credential"));
    // Not `--locked`: our crates are in that lock file, and when their dependencies change it follows.
    command.args(["build", "--release", "--target-dir"]).arg(&target);
    process::run(&mut command)?;
    Ok(target.join("release").join("credential-bench"))
}

/// The program in `benches/credential-go`.
fn build_go(house: &House) -> Result<PathBuf, TaskError> {
    let program = house.target().join("benches").join("credential-go");
    let mut command = Command::new("go");
    command.current_dir(benches(house).join("credential-go"));
    command.args(["build", "-trimpath", "-o"]).arg(&program).arg(".");
    process::run(&mut command)?;
    Ok(program)
}

fn benches(house: &House) -> PathBuf {
    house.root().join("benches")
}

/// The key and the two certificates that both programs load.
fn certificate_files(house: &House) -> [PathBuf; 3] {
    let fixtures: &Path = &house.root().join("crates/credential/tests/fixtures");
    ["leaf.pkcs8.key", "leaf.pem", "intermediate.pem"].map(|name| fixtures.join(name))
}

fn measured(command: &mut Command) -> Result<Vec<Measurement>, TaskError> {
    let output = process::capture(command)?;
    serde_json::from_slice(&output)
        .map_err(|source| TaskError::Answer { command: process::spelled(command), source })
}

/// What is measured, and what it should be on a machine with this many cores.
fn metrics(cores: usize, azidentity: &Peer) -> Vec<Metric> {
    let nobody = Vec::new;
    let rust = || vec![AZURE_IDENTITY];
    let both = || vec![AZURE_IDENTITY, azidentity.clone()];
    let go = || vec![azidentity.clone()];
    let cores = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
    let metric = |name, goal, peers| Metric { name, goal, peers };
    vec![
        metric(ONE_SCOPE, Goal::AtMost(150.0), both()),
        metric("cached_token_1_scope_allocations", Goal::AtMost(2.0), both()),
        metric("cached_token_1000_scopes", Goal::AtMostTimes(1.2, ONE_SCOPE), both()),
        metric("cached_token_1000_scopes_allocations", Goal::AtMost(2.0), both()),
        metric("cached_token_1000_scopes_in_turn", Goal::None, both()),
        metric(LENT, Goal::AtMost(60.0), nobody()),
        metric("lent_token_1_scope_allocations", Goal::AtMost(0.0), nobody()),
        metric("lent_token_1000_scopes", Goal::AtMostTimes(1.2, LENT), nobody()),
        metric(ONE_THREAD, Goal::None, both()),
        metric(ALL_CORES, Goal::AtLeastTimes(0.8 * cores, ONE_THREAD), both()),
        metric(
            "cached_token_throughput_twice_the_cores",
            Goal::AtLeastTimes(0.9, ALL_CORES),
            both(),
        ),
        metric("hit_beside_hanging_request", Goal::AtMost(10.0), rust()),
        metric("hit_beside_hanging_renewal", Goal::AtMost(10.0), rust()),
        metric("cold_scope_requests", Goal::Exactly(1.0), both()),
        metric("cold_scope_time", Goal::AtMostOfPeer { factor: 1.0, limit: None }, both()),
        metric("refused_requests", Goal::Exactly(1.0), both()),
        metric("refused_longest_wait", Goal::None, both()),
        metric("reload_cpu", Goal::AtMost(2.0), go()),
        metric("reload_wall", Goal::None, go()),
    ]
}

const ONE_SCOPE: &str = "cached_token_1_scope";
const LENT: &str = "lent_token_1_scope";
const ONE_THREAD: &str = "cached_token_throughput_1_thread";
const ALL_CORES: &str = "cached_token_throughput_all_cores";
