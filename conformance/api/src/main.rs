//! Judges the node's side of the Kubernetes API on a real etcd and kube-apiserver.
//!
//! `cargo xtask conformance kubernetes` builds what is needed and calls this program. Exit codes:
//! 0 when every case passed, 1 when one failed, 2 when the surroundings do not allow it to run.

mod suite;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use lanyard_cluster::{ControlPlane, ControlPlaneError, ControlPlaneOptions};
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::suite::{ChartRights, ChartRightsError, Stage};

/// Judge the node's side of the Kubernetes API.
#[derive(Debug, Parser)]
#[command(name = "lanyard-conformance-api")]
struct Arguments {
    /// Run only the cases whose names contain this
    filter: Option<String>,
    /// The program etcd
    #[arg(long)]
    etcd: PathBuf,
    /// The program kube-apiserver
    #[arg(long)]
    kube_apiserver: PathBuf,
    /// The directory of the custom resource definitions
    #[arg(long, value_name = "DIR")]
    definitions: PathBuf,
    /// The directory of what the chart renders
    #[arg(long, value_name = "DIR")]
    rendered: PathBuf,
}

/// The suite cannot run.
#[derive(Debug, Error)]
enum SetupError {
    #[error("there is no API server")]
    ControlPlane(#[from] ControlPlaneError),
    #[error("the runtime could not be started")]
    Runtime(#[source] std::io::Error),
    #[error("the rights of the chart are not known")]
    Rights(#[from] ChartRightsError),
    #[error("could not read the definitions in {}", path.display())]
    Definitions {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match prepare(&arguments) {
        Ok(stage) => {
            let runner = libtest_mimic::Arguments {
                filter: arguments.filter.clone(),
                // Some cases take the API server away.
                test_threads: Some(1),
                ..libtest_mimic::Arguments::default()
            };
            let conclusion = libtest_mimic::run(&runner, suite::trials(&stage));
            if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn prepare(arguments: &Arguments) -> Result<Stage, SetupError> {
    let runtime = Arc::new(Runtime::new().map_err(SetupError::Runtime)?);
    let definitions = load_definitions(&arguments.definitions).map_err(|source| {
        SetupError::Definitions { path: arguments.definitions.clone(), source }
    })?;
    let rights = Arc::new(ChartRights::load(&arguments.rendered)?);
    let options =
        ControlPlaneOptions::new(arguments.etcd.clone(), arguments.kube_apiserver.clone())
            .user(suite::NODE);
    let plane = Arc::new(runtime.block_on(ControlPlane::start(options))?);
    Ok(Stage { plane, runtime, definitions, rights })
}

fn load_definitions(directory: &Path) -> std::io::Result<Vec<String>> {
    std::fs::read_dir(directory)?.map(|entry| std::fs::read_to_string(entry?.path())).collect()
}

fn complain(error: &SetupError) {
    let mut text = format!("error: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}
