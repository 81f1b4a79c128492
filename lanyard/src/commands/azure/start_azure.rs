//! Starts a local Azure that is seeded for a HostedCluster.

use std::net::SocketAddr;
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::SystemClock;
use lanyard_emulator::Emulator;

use super::local_azure_flags::LocalAzureFlags;
use crate::commands::hosted_cluster;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};

/// The options for starting a local Azure.
#[derive(Debug)]
pub(super) struct StartAzureOptions<'a> {
    pub(super) flags: &'a LocalAzureFlags,
    /// The time at which the clock of a new state is stopped; `None` for a running clock.
    pub(super) stopped_at: Option<Timestamp>,
    /// The address to listen on.
    pub(super) listen: SocketAddr,
    /// Whether an address that other machines can reach is allowed.
    pub(super) allow_remote: bool,
    /// The certificate authority; `None` for a generated or saved one.
    pub(super) authority: Option<CertificateAuthorityFiles<'a>>,
}

/// The PEM files of a certificate authority.
#[derive(Debug, Clone, Copy)]
pub(super) struct CertificateAuthorityFiles<'a> {
    pub(super) certificate: &'a Path,
    pub(super) key: &'a Path,
}

/// Starts the local Azure, and returns when its port accepts connections.
pub(super) async fn start_local_azure(
    start: &StartAzureOptions<'_>,
) -> Result<Emulator, CommandError> {
    let LocalAzureFlags { file, state, login, seed, cloud_domain, .. } = start.flags;
    let cluster = hosted_cluster::load(file.as_deref())?;
    let plan = lanyard_up::local_azure_plan(&cluster, None, None);
    let mut builder = Emulator::builder()
        .clock(SystemClock::shared())
        .listen(start.listen)
        .allow_remote(start.allow_remote)
        .automatic_sign_in(login.is_some());
    if let Some(seed) = seed {
        builder = builder.id_seed(seed);
    }
    if let Some(domain) = cloud_domain {
        builder = builder.cloud_domain(domain.clone());
    }
    if let Some(time) = start.stopped_at {
        builder = builder.stop_clock_at(time);
    }
    // An existing state is used unchanged, unless the user names a HostedCluster that it must match.
    builder = if file.is_some() { builder.seed(plan) } else { builder.seed_if_new(plan) };
    if let Some(directory) = state {
        builder = builder.state_dir(directory);
    }
    if let Some(files) = start.authority {
        builder = builder.certificate_authority(
            read_authority_file(files.certificate)?,
            read_authority_file(files.key)?,
        );
    }
    builder = start.flags.apply_scenario(builder)?;
    let started = builder.start().await;
    let is_invalid = started
        .as_ref()
        .is_err_and(|error| error.is_invalid_plan() || error.is_invalid_authority());
    let started = started.context("the local Azure did not start");
    if is_invalid { started.mark_invalid() } else { started }
}

/// Reads a file of the certificate authority.
fn read_authority_file(path: &Path) -> Result<String, CommandError> {
    std::fs::read_to_string(path)
        .or_invalid(format_args!("{} cannot be read", path.display()))
        .hint("give a file in PEM that this user may read")
}
