//! The environment variables that select a running local Azure.

use std::path::PathBuf;

/// The environment variables that select a running local Azure, and those that an earlier `lanyard azure env` set.
#[derive(Debug, Clone, Default)]
pub struct SessionEnvironment {
    /// `XDG_RUNTIME_DIR`: the directory in which a running local Azure writes its address.
    pub runtime_directory: Option<PathBuf>,
    /// `LANYARD_AZURE_CONTROL`: the URL of the control API that `lanyard azure env` exported.
    pub local_azure_control: Option<String>,
    /// `SSL_CERT_FILE`: the file with CA certificates that replace those of the system.
    pub ssl_cert_file: Option<PathBuf>,
    /// `AZURE_CLIENT_ID`: the client id of the exported test credentials.
    pub azure_client_id: Option<String>,
}
