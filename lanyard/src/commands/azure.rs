//! `lanyard azure`: serves a local Azure, prints the exports for its clients, and runs commands against it.

mod control_client;
pub(crate) mod drills;
pub(crate) mod env;
pub(crate) mod export;
pub(crate) mod fault;
mod file_replacement;
mod local_azure_flags;
pub(crate) mod login;
pub(crate) mod operations;
mod request_log_table;
pub(crate) mod run;
pub(crate) mod serve;
mod session;
pub(crate) mod settings;
mod shell_exports;
mod shell_syntax;
pub(crate) mod snapshot;
mod start_azure;
mod test_credentials;

pub(crate) use local_azure_flags::SEED_VARIABLE;
pub(crate) use session::ServeSession;
pub(crate) use shell_syntax::quote_for_bash;
pub(crate) use test_credentials::LocalTestCredentials;
