//! The commands of the house: the same on every machine, locally and in CI.
//!
//! `cargo xtask test` needs Rust, a C compiler and `cmake`. `cargo xtask ci` is everything that must hold before a
//! change is merged. What a command needs beyond Rust it installs into the tool cache, or it
//! fails and says what is missing; nothing is skipped in silence.

mod auxiliary_workspaces;
mod bench;
mod check;
mod ci;
mod cluster;
mod codegen;
mod conformance;
mod deny;
mod fuzz;
mod image;
mod layers;
mod outcomes;
mod process;
mod repository;
mod task_error;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::repository::Repository;
use crate::task_error::TaskError;

/// Commands of the lanyard workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// Run every test of the workspace (needs Rust, a C compiler and `cmake`)
    Test,
    /// Run the checks before a commit: format, layers, tidy, lints and tests
    Check,
    /// Run everything that CI runs, with the seconds of each stage
    Ci(ci::Args),
    /// Write the page of outcome codes out of their table
    Outcomes,
    /// Check that the arrows between crates point down
    Layers,
    /// Check file lengths, names and other habits that no lint sees
    Tidy,
    /// Generate the Rust of the .proto files, and the CRDs
    Codegen(codegen::Args),
    /// Run one conformance suite, or all of them
    Conformance(conformance::Args),
    /// Measure ourselves beside our peers
    Bench(bench::Args),
    /// Install tools into the tool cache
    Tools(tools::Args),
    /// Run a real one-node cluster on loopback
    Cluster(cluster::Args),
    /// Build, record and try the container images
    Image(image::Args),
    /// Fuzz one target, or all of them, for a while
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let arguments = Args::parse();
    match Repository::from_environment().and_then(|house| run(&arguments.command, &house)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::print_error(&error);
            error.exit_code()
        }
    }
}

fn run(task: &XtaskCommand, house: &Repository) -> Result<(), TaskError> {
    match task {
        XtaskCommand::Test => test::run(house).map(drop),
        XtaskCommand::Check => check::run(house),
        XtaskCommand::Ci(arguments) => ci::run(house, arguments),
        XtaskCommand::Outcomes => outcomes::run(house),
        XtaskCommand::Layers => layers::check(house).map(drop),
        XtaskCommand::Tidy => tidy::check(house).map(drop),
        XtaskCommand::Codegen(arguments) => codegen::run(house, arguments),
        XtaskCommand::Conformance(arguments) => conformance::run(house, arguments).map(drop),
        XtaskCommand::Bench(arguments) => bench::run(house, arguments),
        XtaskCommand::Tools(arguments) => tools::run(house, arguments),
        XtaskCommand::Cluster(arguments) => cluster::run(house, arguments),
        XtaskCommand::Image(arguments) => image::run(house, arguments),
        XtaskCommand::Fuzz(arguments) => fuzz::run(house, arguments).map(drop),
    }
}
