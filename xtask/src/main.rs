//! The development tasks of this repository. They work the same locally and in CI.
//!
//! `cargo xtask test` needs Rust, a C compiler and `cmake`. `cargo xtask ci` runs every check that must pass
//! before a change is merged. A task installs the other programs that it needs into the tool cache, or fails
//! and names the missing program; no check is skipped silently.

mod auxiliary_workspaces;
mod bench;
mod book;
mod check;
mod ci;
mod cluster;
mod codegen;
mod conformance;
mod deny;
mod fuzz;
mod image;
mod layers;
mod pipelines;
mod process;
mod product_lines;
mod prose;
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
    /// Check the dependencies of crates, import cycles of their files, and their sizes
    Layers,
    /// Check file lengths, file names and other conventions without a lint
    Tidy,
    /// Build the book, and check the links of the documentation
    Book,
    /// Check the language of the documentation
    Prose,
    /// Check the examples for GitHub Actions and Azure Pipelines
    Pipelines,
    /// Generate the Rust of the .proto files, the CRDs and the page of the outcome codes
    Codegen(codegen::Args),
    /// Run one conformance suite, or all of them
    Conformance(conformance::Args),
    /// Compare lanyard with its peers
    Bench(bench::Args),
    /// Install tools into the tool cache
    Tools(tools::Args),
    /// Run a real one-node cluster on loopback
    Cluster(cluster::Args),
    /// Build and test the container images
    Image(image::Args),
    /// Fuzz one target, or all of them, for a limited time
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let arguments = Args::parse();
    match Repository::from_environment().and_then(|repository| run(&arguments.command, &repository))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::print_error(&error);
            error.exit_code()
        }
    }
}

fn run(task: &XtaskCommand, repository: &Repository) -> Result<(), TaskError> {
    match task {
        XtaskCommand::Test => test::run(repository).map(drop),
        XtaskCommand::Check => check::run(repository),
        XtaskCommand::Ci(arguments) => ci::run(repository, arguments),
        XtaskCommand::Layers => layers::check(repository).map(drop),
        XtaskCommand::Tidy => tidy::check(repository).map(drop),
        XtaskCommand::Book => book::build(repository),
        XtaskCommand::Prose => prose::check(repository),
        XtaskCommand::Pipelines => {
            pipelines::check(repository).map(|counts| process::print_line(&counts.to_string()))
        }
        XtaskCommand::Codegen(arguments) => codegen::run(repository, arguments),
        XtaskCommand::Conformance(arguments) => conformance::run(repository, arguments).map(drop),
        XtaskCommand::Bench(arguments) => bench::run(repository, arguments),
        XtaskCommand::Tools(arguments) => tools::run(repository, arguments),
        XtaskCommand::Cluster(arguments) => cluster::run(repository, arguments),
        XtaskCommand::Image(arguments) => image::run(repository, arguments),
        XtaskCommand::Fuzz(arguments) => fuzz::run(repository, arguments).map(drop),
    }
}
