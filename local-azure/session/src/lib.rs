//! The files with which a user's processes find a running local Azure.
//!
//! [`ServeSession`] describes a running local Azure. Its file is in a private directory, with the
//! certificates to trust ([`TrustFiles`]) and the [`LocalTestCredentials`]. [`ShellExports`] are
//! the environment variables that send the requests of Azure clients to it.

mod file_replacement;
mod session;
mod session_environment;
mod session_error;
mod shell_exports;
mod shell_syntax;
mod test_credentials;

pub use file_replacement::replace_file;
pub use session::{ServeSession, session_directory};
pub use session_environment::SessionEnvironment;
pub use session_error::SessionError;
pub use shell_exports::{ShellExports, TrustFiles};
pub use shell_syntax::{ShellSyntax, quote_for_bash};
pub use test_credentials::{LocalTestCredentials, LoginPrincipal};

/// The environment variable with the seed from which a local Azure derives its ids and keys. Test suites that start
/// many local Azures set it, because derived keys need no search for prime numbers.
pub const SEED_VARIABLE: &str = "LANYARD_AZURE_SEED";
