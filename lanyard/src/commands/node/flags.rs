//! The flags of the node plugin: the flags of the Secrets Store CSI driver (v1.6.0), of the Azure Key Vault
//! provider (v1.8.2) and of the registrar, and lanyard's own.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use lanyard_node::DriverName;
use lanyard_provider::PollInterval;
use lanyard_telemetry::ListenAddress;
use lanyard_vocabulary::Cloud;

use super::csi_endpoint::CsiEndpoint;
use super::memory_quantity::MemoryQuantity;
use crate::commands::go_bool::GoBool;
use crate::commands::go_duration::GoDuration;

/// The flags of `lanyard node`.
#[derive(Debug, clap::Args)]
pub(super) struct NodeArgs {
    #[command(flatten)]
    pub(super) driver: DriverArgs,
    #[command(flatten)]
    pub(super) kubernetes: KubernetesArgs,
    #[command(flatten)]
    pub(super) volumes: VolumeArgs,
    #[command(flatten)]
    pub(super) rotation: RotationArgs,
    #[command(flatten)]
    pub(super) providers: ProviderArgs,
    #[command(flatten)]
    pub(super) key_vault: KeyVaultArgs,
    #[command(flatten)]
    pub(super) policy: PolicyArgs,
    #[command(flatten)]
    pub(super) http: NodeHttpArgs,
    #[command(flatten)]
    pub(super) logs: NodeLogArgs,
    #[command(flatten)]
    pub(super) ignored: IgnoredNodeArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Driver")]
pub(super) struct DriverArgs {
    /// The socket for the kubelet
    #[arg(long, default_value = "unix:///csi/csi.sock", value_name = "unix://PATH")]
    pub(super) endpoint: CsiEndpoint,
    /// The name of the CSI driver
    #[arg(long, default_value = "secrets-store.csi.k8s.io", value_name = "NAME")]
    pub(super) drivername: DriverName,
    /// The name of this node (required)
    #[arg(long, value_name = "NAME")]
    pub(super) nodeid: Option<String>,
    /// The kubelet's directory, mounted at the same path as on the node
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIR")]
    pub(super) kubelet_dir: PathBuf,
    /// The kubelet's plugin registry; empty if another process registers the driver [default:
    /// `plugins_registry` in the kubelet's directory]
    #[arg(long, value_parser = optional_path_parser(), value_name = "DIR")]
    pub(super) registration_dir: Option<PathBuf>,
    /// The path of the endpoint as the kubelet sees it [default: the path of the endpoint]
    #[arg(long, value_name = "PATH")]
    pub(super) kubelet_registration_path: Option<PathBuf>,
    /// The total time for running calls and rotations after SIGTERM
    #[arg(long, default_value = "20s", value_name = "DURATION")]
    pub(super) drain_timeout: GoDuration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct KubernetesArgs {
    /// The kubeconfig file for the Kubernetes API [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Read the SecretProviderClasses from this file of YAML documents, and run without a Kubernetes API:
    /// nothing is reported
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "sync_secrets"])]
    pub(super) classes: Option<PathBuf>,
    /// Synchronize Kubernetes Secrets with mounted files (`secretObjects` of a class)
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) sync_secrets: GoBool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Volumes")]
pub(super) struct VolumeArgs {
    /// The limit for the total size of the files of one volume
    #[arg(long = "volume-content-limit", default_value = "32Mi", value_name = "QUANTITY")]
    pub(super) volume_content: MemoryQuantity,
    /// The memory limit for all volumes of the node together, retired content included; new volumes may use
    /// three quarters of it, so that mounted volumes can rotate [default: half of the container's limit, or
    /// 64Mi without one]
    #[arg(long = "volumes-memory-limit", value_name = "QUANTITY")]
    pub(super) volumes_memory: Option<MemoryQuantity>,
    /// The memory limit of the plugin's container, which is charged for the volumes
    #[arg(long = "container-memory-limit", value_name = "QUANTITY")]
    pub(super) container_memory: Option<MemoryQuantity>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rotation")]
pub(super) struct RotationArgs {
    /// Rotate mounted volumes when their content changes
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) enable_secret_rotation: GoBool,
    /// The rotation interval of classes that do not set one
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    pub(super) rotation_poll_interval: PollInterval,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Providers")]
pub(super) struct ProviderArgs {
    /// The directory of the sockets of other providers
    #[arg(long, default_value = "/var/run/secrets-store-csi-providers", value_name = "DIR")]
    pub(super) provider_volume: PathBuf,
    /// Directories that are searched first
    #[arg(
        long,
        default_value = "/etc/kubernetes/secrets-store-csi-providers",
        value_delimiter = ',',
        value_parser = optional_path_parser(),
        value_name = "DIR,…"
    )]
    pub(super) additional_provider_volume_paths: Vec<PathBuf>,
    /// The maximum size of a response of another provider, in bytes
    #[arg(long, default_value_t = 4 << 20, value_name = "BYTES")]
    pub(super) max_call_recv_msg_size: usize,
    /// Check periodically whether connected providers are healthy
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) provider_health_check: GoBool,
    /// The interval of these health checks
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    pub(super) provider_health_check_interval: GoDuration,
    /// Where the provider `azure` runs
    #[arg(long, value_enum, default_value = "built-in", value_name = "WHERE")]
    pub(super) azure_provider: AzureProviderKind,
    /// Serve the built-in provider on this socket too, for other drivers and the sync controller
    #[arg(long, value_name = "PATH")]
    pub(super) provider_socket: Option<PathBuf>,
    /// Let the attributes of a pod's volume override its class, as upstream does: users who can create pods
    /// can then choose vault, objects and identity
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) pod_overrides_parameters: GoBool,
}

/// Where the provider `azure` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AzureProviderKind {
    /// In this process
    BuiltIn,
    /// In another process, which serves a socket
    Socket,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Key Vault")]
pub(super) struct KeyVaultArgs {
    /// The cloud of classes that do not set one
    #[arg(long, default_value = "AzurePublicCloud", value_parser = parse_cloud, value_name = "CLOUD")]
    pub(super) cloud_name: Cloud,
    /// The directory of the files that classes may name in `cloudEnvFileName`
    #[arg(long, default_value = "/etc/kubernetes", value_name = "DIR")]
    pub(super) cloud_env_dir: PathBuf,
    /// Order the chain of a converted PKCS#12 archive: leaf, intermediates, root
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) construct_pem_chain: GoBool,
    /// Write FILE.crt and FILE.key next to each certificate's secret
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) write_cert_and_key_in_separate_files: GoBool,
    /// The token proxy of identity bindings [default: the API server]
    #[arg(long, value_name = "URL")]
    pub(super) token_proxy_url: Option<String>,
    /// The server name for the TLS handshake with the token proxy [default: from the API server's
    /// certificate]
    #[arg(long, value_name = "NAME")]
    pub(super) sni_name: Option<String>,
    /// Add this to the user agent of vault requests
    #[arg(long, value_name = "TEXT")]
    pub(super) custom_user_agent: Option<String>,
    /// The rate limit of this node for one vault, in requests per second: all clients of a vault share 400,
    /// so divide them by the number of nodes that read it
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=400), value_name = "NUMBER")]
    pub(super) vault_requests_per_second: u32,
    /// The number of requests that may go to one vault at once after a pause
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4000), value_name = "NUMBER")]
    pub(super) vault_request_burst: u32,
    /// Keep the sealed cache, for classes that opt in to stale content, in this directory
    /// [default: in memory]
    #[arg(long, requires = "stale_cache_key_file", value_name = "DIR")]
    pub(super) stale_cache_dir: Option<PathBuf>,
    /// The key of the sealed cache: 32 bytes, readable only by root
    #[arg(long, requires = "stale_cache_dir", value_name = "FILE")]
    pub(super) stale_cache_key_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Policy and audit")]
pub(super) struct PolicyArgs {
    /// The policy: which namespaces may read which objects through an identity that the node shares
    #[arg(long, value_name = "FILE")]
    pub(super) policy_file: Option<PathBuf>,
    /// How a read that no rule allows is handled; `enforce` with an empty policy denies every read through an
    /// identity that the node shares
    #[arg(
        long,
        value_enum,
        default_value = "audit",
        requires_if("enforce", "policy_file"),
        value_name = "MODE"
    )]
    pub(super) policy_mode: PolicyModeArg,
    /// Record every read (pod, object version, time) in this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) audit_file: Option<PathBuf>,
}

/// How a read that no rule allows is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PolicyModeArg {
    /// Allow it as upstream does, log it once, and record it if there is an --audit-file
    Audit,
    /// Deny it, and log and record it in the same way
    Enforce,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metrics and health")]
pub(super) struct NodeHttpArgs {
    /// The address of /metrics; `:8095` is every interface, `0` disables it
    #[arg(long, default_value = "127.0.0.1:8095", value_name = "ADDRESS")]
    pub(super) metrics_addr: ListenAddress,
    /// The address of the health endpoints
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub(super) healthz_addr: IpAddr,
    /// The port of the health endpoints; 0 disables them
    #[arg(long, default_value_t = 8989, value_name = "PORT")]
    pub(super) healthz_port: u16,
    /// The path of the liveness endpoint; readiness is at /readyz
    #[arg(long, default_value = "/healthz", value_name = "PATH")]
    pub(super) healthz_path: String,
    /// The timeout of the liveness check
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    pub(super) healthz_timeout: GoDuration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct NodeLogArgs {
    /// Log one JSON object per line (the same as --log-format json)
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) log_format_json: GoBool,
    /// The log verbosity if --log is not set: 0 to 5
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(super) verbosity: u8,
}

impl NodeLogArgs {
    /// The log filter for a klog verbosity. The target `lanyard` includes all crates whose names begin with it.
    pub(super) const fn log_filter(&self) -> &'static str {
        match self.verbosity {
            0 | 1 => "info",
            2..=4 => "info,lanyard=debug",
            _ => "debug,h2=info,hyper=info,hyper_util=info,tower=info,rustls=info",
        }
    }
}

/// Flags of upstream that have no effect. The plugin accepts them, so that existing command lines keep
/// working, and logs that they have no effect.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flags of upstream without a meaning here")]
pub(super) struct IgnoredNodeArgs {
    /// There is no profiler endpoint
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    enable_pprof: Option<GoBool>,
    /// See --enable-pprof
    #[arg(long, value_name = "PORT")]
    pprof_port: Option<String>,
    /// Metrics are always in the Prometheus format
    #[arg(long, value_name = "NAME")]
    metrics_backend: Option<String>,
    /// The provider's metrics are at the same endpoint: --metrics-addr
    #[arg(long, value_name = "PORT")]
    prometheus_port: Option<String>,
    /// Secrets of `nodePublishSecretRef` come from the kubelet
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    filtered_watch_secret: Option<GoBool>,
}

impl IgnoredNodeArgs {
    /// The flags that were given.
    pub(super) fn given_flags(&self) -> Vec<&'static str> {
        let flags = [
            ("--enable-pprof", self.enable_pprof.is_some_and(|it| it.0)),
            ("--pprof-port", self.pprof_port.is_some()),
            ("--metrics-backend", self.metrics_backend.is_some()),
            ("--prometheus-port", self.prometheus_port.is_some()),
            ("--filtered-watch-secret", self.filtered_watch_secret.is_some()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

fn parse_cloud(text: &str) -> Result<Cloud, String> {
    Cloud::parse_provider_name(text).ok_or_else(|| {
        let names: Vec<_> = Cloud::ALL.into_iter().map(Cloud::name).collect();
        format!("give one of {}", names.join(", "))
    })
}

/// Parses a path that may be empty, which disables the feature.
fn optional_path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}
