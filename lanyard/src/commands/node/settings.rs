//! Converts the flags into settings, and reports all problems together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_node::rotation::RotatorSettings;
use lanyard_node::{NodePluginServerSettings, RegistrationSettings};
use lanyard_telemetry::ListenAddress;
use std::net::SocketAddr;

use super::flags::{AzureProviderKind, NodeArgs, VolumeArgs};
use super::memory_quantity::MemoryQuantity;
use crate::exit::CommandError;

/// The settings of the node plugin.
#[derive(Debug)]
pub(super) struct NodeSettings {
    pub(super) server: NodePluginServerSettings,
    pub(super) rotator: RotatorSettings,
    /// The limit for the total size of the files of one volume, in bytes.
    pub(super) volume_content_limit: u64,
    /// The memory limit of all volumes together, in bytes; `None` for the default.
    pub(super) volumes_memory_limit: Option<u64>,
    /// A warning if the limit differs from the flag.
    pub(super) memory_warning: Option<String>,
    /// The address of the health endpoints.
    pub(super) health_address: ListenAddress,
    pub(super) health_path: String,
    pub(super) health_timeout: Duration,
}

impl NodeSettings {
    /// The lock file of the process that writes the driver's volumes. It is next to the socket, in the
    /// directory that every process of the driver shares with the kubelet.
    pub(super) fn volume_writer_lock_file(&self) -> PathBuf {
        self.server.csi_socket.with_file_name(format!("{}.lock", self.server.driver.as_str()))
    }

    /// Validates the flags and converts them into settings.
    pub(super) fn resolve(args: &NodeArgs) -> Result<Self, CommandError> {
        let problems = flag_problems(args);
        if !problems.is_empty() {
            return Err(CommandError::invalid_input(problems.join("; "))
                .with_hint("`lanyard node --help` lists every flag with its default"));
        }
        let (volumes_memory_limit, memory_warning) = volumes_memory_limit(&args.volumes);
        Ok(Self {
            server: server_settings(args),
            rotator: rotator_settings(args),
            volume_content_limit: args.volumes.volume_content.bytes(),
            volumes_memory_limit,
            memory_warning,
            health_address: match args.http.healthz_port {
                0 => ListenAddress::Off,
                port => ListenAddress::Single(SocketAddr::new(args.http.healthz_addr, port)),
            },
            health_path: args.http.healthz_path.clone(),
            health_timeout: args.http.healthz_timeout.0,
        })
    }
}

fn flag_problems(args: &NodeArgs) -> Vec<String> {
    let mut problems = Vec::new();
    if args.driver.nodeid.as_deref().unwrap_or_default().is_empty() {
        problems.push("--nodeid is missing: give the name of the node".to_owned());
    }
    let directories = [
        ("--kubelet-dir", Some(&args.driver.kubelet_dir)),
        ("--provider-volume", Some(&args.providers.provider_volume)),
        ("--provider-socket", args.providers.provider_socket.as_ref()),
        ("--cloud-env-dir", Some(&args.key_vault.cloud_env_dir)),
    ];
    let more = args.providers.additional_provider_volume_paths.iter();
    let more = more.map(|path| ("--additional-provider-volume-paths", Some(path)));
    let optional = [
        ("--registration-dir", args.driver.registration_dir.as_ref()),
        ("--kubelet-registration-path", args.driver.kubelet_registration_path.as_ref()),
    ];
    // An empty path counts as unset.
    let more =
        more.chain(optional).filter(|(_, path)| path.is_some_and(|it| !it.as_os_str().is_empty()));
    for (flag, path) in directories.into_iter().chain(more) {
        if path.is_some_and(|path| !is_normalized_absolute(path)) {
            problems.push(format!("{flag} is not an absolute path without `.` and `..`"));
        }
    }
    if !is_normalized_absolute(args.driver.endpoint.path()) {
        problems.push("--endpoint is not an absolute path without `.` and `..`".to_owned());
    }
    let path = &args.http.healthz_path;
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "/-_.".contains(it);
    if !path.starts_with('/') || path == "/readyz" || !path.chars().all(is_allowed) {
        problems.push(format!(
            "--healthz-path `{path}` is not a valid path, or another endpoint uses it"
        ));
    }
    let external = args.providers.azure_provider == AzureProviderKind::Socket;
    if external && args.providers.provider_socket.is_some() {
        problems.push(
            "--provider-socket serves the built-in provider, which is disabled with \
                       --azure-provider socket"
                .to_owned(),
        );
    }
    problems
}

/// Whether the path is absolute and normalized. Target paths are compared as text.
fn is_normalized_absolute(path: &Path) -> bool {
    use std::path::Component;
    path.is_absolute()
        && path.components().all(|it| matches!(it, Component::RootDir | Component::Normal(_)))
}

fn server_settings(args: &NodeArgs) -> NodePluginServerSettings {
    let driver = &args.driver;
    let csi_socket = driver.endpoint.path().to_owned();
    let directory = driver
        .registration_dir
        .clone()
        .unwrap_or_else(|| driver.kubelet_dir.join("plugins_registry"));
    let endpoint = driver.kubelet_registration_path.clone().unwrap_or_else(|| csi_socket.clone());
    let is_registered = !directory.as_os_str().is_empty();
    NodePluginServerSettings {
        driver: driver.drivername.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: driver.nodeid.clone().unwrap_or_default(),
        kubelet_dir: driver.kubelet_dir.components().collect::<PathBuf>(),
        csi_socket,
        registration: is_registered.then_some(RegistrationSettings { directory, endpoint }),
        drain: driver.drain_timeout.0,
    }
}

/// The process itself needs half of the container's memory: for content that it has read and not yet written,
/// for its caches, and for the kernel's buffers. If the flag leaves no memory for the process, the limit is
/// reduced to that half with a warning, because otherwise no pod would start on the node.
fn volumes_memory_limit(args: &VolumeArgs) -> (Option<u64>, Option<String>) {
    let half = args.container_memory.map(MemoryQuantity::half);
    if let Some((own, whole)) = args.volumes_memory.zip(args.container_memory)
        && own >= whole
    {
        let half = whole.half();
        let warning = format!(
            "--volumes-memory-limit {own} leaves nothing of --container-memory-limit {whole} to the \
             process itself: using {half} instead; raise the container limit or lower the volumes limit"
        );
        return (Some(half.bytes()), Some(warning));
    }
    (args.volumes_memory.or(half).map(MemoryQuantity::bytes), None)
}

fn rotator_settings(args: &NodeArgs) -> RotatorSettings {
    let rotation = &args.rotation;
    let interval = rotation.enable_secret_rotation.0.then_some(rotation.rotation_poll_interval);
    RotatorSettings { interval, ..RotatorSettings::default() }
}
