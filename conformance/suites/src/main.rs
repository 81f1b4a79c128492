//! Conformance suites of lanyard: upstream clients and lanyard's components, on a local Azure, a Kubernetes
//! cluster or a real subscription.
//!
//! `cargo xtask conformance SUITE` builds the programs of a suite and runs this program. Exit codes: 0 if
//! every case passed, 1 if one failed, 2 if the arguments or the environment do not allow the suite to run.

mod api_server;
mod azure_target;
mod class_manifests;
mod client_program;
mod custom_cloud;
mod daemon;
mod driver_processes;
mod file_error;
mod helm;
mod kubectl;
mod lanyard_clients;
mod live_subscription;
mod local_azure;
mod node_plugin_process;
mod operation_clients;
mod process_usage;
mod proxied_request;
mod recording_proxy;
mod registrar;
mod request_differences;
mod sign_in_method;
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
use lanyard_clock::ErrorHint as _;

use crate::operation_clients::SuiteRequestLog;
use crate::suite_setup::{PreparedSuite, SuiteArgs, SuiteSetupError};

fn main() -> ExitCode {
    let arguments = SuiteArgs::parse();
    // Skips variables that are not UTF-8. The names and values that the suites read are UTF-8.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    match suite_setup::prepare_suite(&arguments, environment) {
        Ok(PreparedSuite { trials, keep_alive, request_log }) => {
            let conclusion = libtest_mimic::run(&arguments.runner_arguments(), trials);
            let passed = !conclusion.has_failed()
                && request_log.is_none_or(|log| verify_operation_clients(&arguments, &log));
            drop(keep_alive);
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// Compares the operations that the clients used with the recorded ones, or records them. A filtered run uses
/// fewer operations and is not compared.
fn verify_operation_clients(arguments: &SuiteArgs, log: &SuiteRequestLog) -> bool {
    if arguments.is_filtered() {
        return true;
    }
    let (repository, record) = (arguments.repository(), arguments.records_clients());
    match log.verify(&arguments.suite_name(), repository, record) {
        Ok(line) => {
            writeln!(std::io::stdout().lock(), "{line}").unwrap_or_default();
            true
        }
        Err(error) => {
            print_causes(&error, None);
            false
        }
    }
}

fn print_error(error: &SuiteSetupError) {
    print_causes(error, error.hint().as_deref());
}

fn print_causes(error: &dyn std::error::Error, hint: Option<&str>) {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if let Some(hint) = hint {
        text.push_str("\n\nhint: ");
        text.push_str(hint);
    }
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}
