//! The judges of lanyard: other people's clients, on a local Azure or on a real subscription.
//!
//! `cargo xtask conformance SUITE` builds what a suite needs and calls this program. Exit codes:
//! 0 when every case passed, 1 when one failed, 2 when the call or the surroundings do not allow
//! the suite to run.

mod api_server;
mod azure_target;
mod class_manifests;
mod client_program;
mod daemon;
mod driver_processes;
mod helm;
mod kubectl;
mod lanyard_clients;
mod live_subscription;
mod local_azure;
mod node_plugin_process;
mod proxied_request;
mod recording_proxy;
mod registrar;
mod request_differences;
mod suite_cluster;
mod suite_setup;
mod suites;
mod toolbox;
mod tutorial;
mod volume;
mod waiting;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::suite_setup::{PreparedSuite, SuiteArgs, SuiteSetupError};

fn main() -> ExitCode {
    let arguments = SuiteArgs::parse();
    // `vars` leaves out nothing that we read: our names and their values are text.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    match suite_setup::prepare_suite(&arguments, environment) {
        Ok(PreparedSuite { trials, keep_alive: ground }) => {
            let conclusion = libtest_mimic::run(&arguments.runner_arguments(), trials);
            drop(ground);
            if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            print_error(&error);
            ExitCode::from(2)
        }
    }
}

fn print_error(error: &SuiteSetupError) {
    let mut text = format!("error: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str("\n\nhint: ");
        text.push_str(&hint);
    }
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}
