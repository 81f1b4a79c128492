//! `lanyard azure`: serves a local Azure, prints the exports for its clients, and runs commands against it.

#[cfg(feature = "emulator")]
mod control_client;
#[cfg(feature = "emulator")]
pub(crate) mod drills;
#[cfg(feature = "emulator")]
pub(crate) mod env;
#[cfg(feature = "emulator")]
pub(crate) mod export;
#[cfg(feature = "emulator")]
pub(crate) mod fault;
mod file_replacement;
#[cfg(feature = "emulator")]
mod local_azure_flags;
#[cfg(feature = "emulator")]
pub(crate) mod login;
#[cfg(feature = "emulator")]
pub(crate) mod operations;
#[cfg(feature = "emulator")]
mod request_log_table;
#[cfg(feature = "emulator")]
pub(crate) mod run;
#[cfg(feature = "emulator")]
pub(crate) mod serve;
mod session;
#[cfg(feature = "emulator")]
pub(crate) mod settings;
mod shell_exports;
mod shell_syntax;
#[cfg(feature = "emulator")]
pub(crate) mod snapshot;
#[cfg(feature = "emulator")]
mod start_azure;
mod test_credentials;

pub(crate) use session::ServeSession;
pub(crate) use shell_syntax::quote_for_bash;
pub(crate) use test_credentials::LocalTestCredentials;

/// The environment variable with the seed of a local Azure. Test suites that start many set it: keys that are
/// derived need no search for prime numbers.
pub(crate) const SEED_VARIABLE: &str = "LANYARD_AZURE_SEED";
