//! Judges the operator and its kinds on a real etcd and kube-apiserver.
//!
//! `cargo xtask conformance operator` builds what is needed and calls this program. Exit codes:
//! 0 when every case passed, 1 when one failed, 2 when the surroundings do not allow it to run.

mod bench;
mod settings;
mod suite;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use libtest_mimic::Trial;

use crate::bench::Scale;
use crate::settings::{Arguments, SetupError, ground, prepare};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match trials(&arguments) {
        Ok(trials) => {
            let runner = libtest_mimic::Arguments {
                filter: arguments.filter.clone(),
                // Some cases take the API server away.
                test_threads: Some(1),
                ..libtest_mimic::Arguments::default()
            };
            let conclusion = libtest_mimic::run(&runner, trials);
            if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, SetupError> {
    match &arguments.measurements {
        Some(output) => {
            let scale = Scale::of(arguments.clusters);
            Ok(bench::trials(ground(arguments)?, scale, output.clone()))
        }
        None => prepare(arguments).map(|stage| suite::trials(&stage)),
    }
}

fn complain(error: &dyn std::error::Error) {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}
