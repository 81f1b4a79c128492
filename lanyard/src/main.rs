//! Lanyard brings Azure identities to the components that need them.

mod cli;
mod commands;
mod exit;
mod logging;
mod output;
mod settings;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse_as_called(commands::kms::go_arguments(std::env::args_os()));
    logging::init(&cli.log, cli.command.default_log_filter(), cli.command.logs_json());
    match commands::run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
