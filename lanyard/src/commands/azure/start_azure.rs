//! Starting a local Azure whose world fits a HostedCluster.

use std::net::SocketAddr;
use std::path::Path;

use lanyard_clock::SystemClock;
use lanyard_emulator::Emulator;

use crate::commands::hosted_cluster;
use crate::exit::CommandError;

/// How to start.
#[derive(Debug)]
pub(super) struct StartAzureOptions<'a> {
    /// The HostedCluster; nothing for the example.
    pub(super) file: Option<&'a Path>,
    /// The state directory; nothing for memory.
    pub(super) state: Option<&'a Path>,
    /// The address to listen on.
    pub(super) listen: SocketAddr,
    /// Whether other machines may reach it.
    pub(super) allow_remote: bool,
    /// The certificate authority; nothing for one that the local Azure generates or has saved.
    pub(super) authority: Option<CertificateAuthorityFiles<'a>>,
}

/// The files of a certificate authority, PEM.
#[derive(Debug, Clone, Copy)]
pub(super) struct CertificateAuthorityFiles<'a> {
    /// The certificate.
    pub(super) certificate: &'a Path,
    /// Its private key.
    pub(super) key: &'a Path,
}

/// Starts it: once this returns, the port answers.
pub(super) async fn start_local_azure(
    start: &StartAzureOptions<'_>,
) -> Result<Emulator, CommandError> {
    let cluster = hosted_cluster::load(start.file)?;
    let plan = lanyard_up::local_azure_plan(&cluster, None, None);
    let mut builder = Emulator::builder()
        .clock(SystemClock::shared())
        .listen(start.listen)
        .allow_remote(start.allow_remote);
    // A world on disk is taken as it is, unless the person names the cluster that it must fit.
    builder = if start.file.is_some() { builder.seed(plan) } else { builder.seed_if_new(plan) };
    if let Some(directory) = start.state {
        builder = builder.state_dir(directory);
    }
    if let Some(files) = start.authority {
        builder = builder.certificate_authority(
            read_authority_file(files.certificate)?,
            read_authority_file(files.key)?,
        );
    }
    builder.start().await.map_err(|error| {
        let message = "the local Azure did not start";
        let refused = if error.is_invalid_plan() || error.is_invalid_authority() {
            CommandError::invalid_input(message)
        } else {
            CommandError::unavailable(message)
        };
        let refused = refused.with_cause(&error);
        match error.hint() {
            Some(hint) => refused.with_hint(hint),
            None => refused,
        }
    })
}

/// A file of the certificate authority.
fn read_authority_file(path: &Path) -> Result<String, CommandError> {
    std::fs::read_to_string(path).map_err(|error| {
        CommandError::invalid_input(format!("{} cannot be read", path.display()))
            .with_cause(&error)
            .with_hint("give a file in PEM that this user may read")
    })
}
