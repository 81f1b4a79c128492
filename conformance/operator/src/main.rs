//! Judges the operator and its kinds on a real etcd and kube-apiserver.
//!
//! `cargo xtask conformance operator` builds what is needed and calls this program. Exit codes:
//! 0 when every case passed, 1 when one failed, 2 when the surroundings do not allow it to run.

mod settings;
mod suite;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::settings::{Arguments, prepare};

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
