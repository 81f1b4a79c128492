//! `lanyard azure`: serves a local Azure, prints the exports for its clients, and runs commands against it.

mod control_client;
pub(crate) mod drills;
pub(crate) mod env;
pub(crate) mod export;
pub(crate) mod fault;
mod local_azure_flags;
pub(crate) mod login;
pub(crate) mod operations;
mod request_log_table;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod snapshot;
mod start_azure;

use std::path::Path;

use lanyard_emulator_cli::ServeSession;

use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// Finds the running local Azure: that of the state directory, of this shell, of the user's `lanyard azure serve` or
/// of the user's `lanyard up`.
fn find_session(
    state: Option<&Path>,
    environment: &ProcessEnvironment,
) -> Result<ServeSession, CommandError> {
    let runs = || lanyard_up::find_run_directories(&std::env::temp_dir()).unwrap_or_default();
    Ok(ServeSession::find(state, &environment.session(), runs)?)
}
