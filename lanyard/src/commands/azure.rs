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

use lanyard_emulator_session::ServeSession;

use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// Finds a running local Azure as [`ServeSession::find`] does, with the runs of `lanyard up` in the directory for
/// temporary files.
fn find_session(
    state: Option<&Path>,
    environment: &ProcessEnvironment,
) -> Result<ServeSession, CommandError> {
    let runs = || lanyard_up::find_run_directories(&std::env::temp_dir()).unwrap_or_default();
    Ok(ServeSession::find(state, &environment.session_environment(), runs)?)
}
