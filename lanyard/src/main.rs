//! Lanyard brings Azure identities to the components that need them.

// Builds with fewer commands leave some of the shared helpers unused.
#![cfg_attr(
    not(all(
        feature = "node",
        feature = "operator",
        feature = "kms",
        feature = "canary",
        feature = "cli",
        feature = "emulator"
    )),
    allow(dead_code, unused_imports, reason = "shared by commands that this build leaves out")
)]

mod cli;
mod commands;
mod exit;
mod logging;
mod output;
mod settings;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

/// The allocator of programs with the local Azure. With one heap of the GNU C Library for all threads, allocation
/// takes a quarter of the local Azure's processor time.
#[cfg(feature = "emulator")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse_arguments(process_arguments());
    logging::init(&cli.log, cli.command.default_log_filter(), cli.command.logs_json());
    match commands::run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.print(),
    }
}

/// The arguments of the process. Flags of the KMS plugin may have a single dash.
fn process_arguments() -> Vec<OsString> {
    let arguments = std::env::args_os();
    #[cfg(feature = "kms")]
    let arguments = commands::kms::normalize_single_dash_flags(arguments).into_iter();
    arguments.collect()
}

#[cfg(not(any(
    feature = "node",
    feature = "operator",
    feature = "kms",
    feature = "canary",
    feature = "cli",
    feature = "emulator",
    feature = "up"
)))]
compile_error!(
    "enable at least one of the features node, operator, kms, canary, cli, emulator, up"
);
