//! The commands of the house: the same on every machine, locally and in CI.
//!
//! `cargo xtask test` needs Rust, a C compiler and `cmake`. `cargo xtask ci` is everything that must hold before a
//! change is merged. What a command needs beyond Rust it installs into the tool cache, or it
//! fails and says what is missing; nothing is skipped in silence.

mod bench;
mod check;
mod ci;
mod cluster;
mod codegen;
mod conformance;
mod deny;
mod failure;
mod fuzz;
mod house;
mod image;
mod layers;
mod messages;
mod outcomes;
mod process;
mod satellites;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::TaskError;
use crate::house::House;

/// Commands of the lanyard workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test of the workspace (needs Rust, a C compiler and `cmake`)
    Test,
    /// Run the checks before a commit: format, layers, tidy, lints and tests
    Check,
    /// Run everything that CI runs, with the seconds of each stage
    Ci(ci::Arguments),
    /// Write the page of outcome codes out of their table
    Outcomes,
    /// List every text that the product shows to its users
    Messages,
    /// Check that the arrows between crates point down
    Layers,
    /// Check file lengths, names and other habits that no lint sees
    Tidy,
    /// Generate the Rust of the .proto files, and the CRDs
    Codegen(codegen::Arguments),
    /// Run one conformance suite, or all of them
    Conformance(conformance::Arguments),
    /// Measure ourselves beside our peers
    Bench(bench::Arguments),
    /// Install tools into the tool cache
    Tools(tools::Arguments),
    /// Run a real one-node cluster on loopback
    Cluster(cluster::Arguments),
    /// Build, record and try the container images
    Image(image::Arguments),
    /// Fuzz one target, or all of them, for a while
    Fuzz(fuzz::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match House::from_environment().and_then(|house| run(&arguments.task, &house)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::complain(&error);
            error.exit_code()
        }
    }
}

fn run(task: &Task, house: &House) -> Result<(), TaskError> {
    match task {
        Task::Test => test::run(house).map(drop),
        Task::Check => check::run(house),
        Task::Ci(arguments) => ci::run(house, arguments),
        Task::Outcomes => outcomes::run(house),
        Task::Messages => messages::run(house),
        Task::Layers => layers::check(house).map(drop),
        Task::Tidy => tidy::check(house).map(drop),
        Task::Codegen(arguments) => codegen::run(house, arguments),
        Task::Conformance(arguments) => conformance::run(house, arguments).map(drop),
        Task::Bench(arguments) => bench::run(house, arguments),
        Task::Tools(arguments) => tools::run(house, arguments),
        Task::Cluster(arguments) => cluster::run(house, arguments),
        Task::Image(arguments) => image::run(house, arguments),
        Task::Fuzz(arguments) => fuzz::run(house, arguments).map(drop),
    }
}
