//! The flags of the node plugin: those of the Secrets Store CSI driver (v1.6.0), of the Azure Key
//! Vault provider (v1.8.2) and of the registrar, and ours.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use lanyard_node::DriverName;
use lanyard_node::rotation::PollInterval;
use lanyard_telemetry::ListenAddress;
use lanyard_vocabulary::Cloud;

use super::csi_endpoint::CsiEndpoint;
use super::memory_quantity::MemoryQuantity;
use crate::commands::go_bool::GoBool;
use crate::commands::go_duration::GoDuration;

/// Everything that `lanyard node` can be told.
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
    /// The kubelet's directory, by the same path as on the node
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIR")]
    pub(super) kubelet_dir: PathBuf,
    /// The kubelet's plugin registry; empty where somebody else registers the driver [default:
    /// `plugins_registry` in the kubelet's directory]
    #[arg(long, value_parser = optional_path_parser(), value_name = "DIR")]
    pub(super) registration_dir: Option<PathBuf>,
    /// The path of the endpoint as the kubelet sees it [default: that of the endpoint]
    #[arg(long, value_name = "PATH")]
    pub(super) kubelet_registration_path: Option<PathBuf>,
    /// How long calls in flight and rotations may take after SIGTERM, all together
    #[arg(long, default_value = "20s", value_name = "DURATION")]
    pub(super) drain_timeout: GoDuration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct KubernetesArgs {
    /// How to reach the Kubernetes API [default: as a pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Take the SecretProviderClasses from this file of YAML documents, and do without a
    /// Kubernetes API: nothing is reported
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "sync_secrets"])]
    pub(super) classes: Option<PathBuf>,
    /// Keep Kubernetes Secrets in step with mounted files (`secretObjects` of a class)
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) sync_secrets: GoBool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Volumes")]
pub(super) struct VolumeArgs {
    /// How many bytes the files of one volume may have together
    #[arg(long = "volume-content-limit", default_value = "32Mi", value_name = "QUANTITY")]
    pub(super) volume_content: MemoryQuantity,
    /// How much memory all volumes of the node may hold together, retired content included; new
    /// volumes stop at three quarters, so that mounted ones can rotate [default: half of the
    /// container's limit, or 64Mi where that is not given]
    #[arg(long = "volumes-memory-limit", value_name = "QUANTITY")]
    pub(super) volumes_memory: Option<MemoryQuantity>,
    /// The memory limit of the container that this runs in, which is charged for the volumes
    #[arg(long = "container-memory-limit", value_name = "QUANTITY")]
    pub(super) container_memory: Option<MemoryQuantity>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rotation")]
pub(super) struct RotationArgs {
    /// Look for newer content of mounted volumes
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) enable_secret_rotation: GoBool,
    /// How often, where a class does not say it
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    pub(super) rotation_poll_interval: PollInterval,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Providers")]
pub(super) struct ProviderArgs {
    /// Where the sockets of other providers are
    #[arg(long, default_value = "/var/run/secrets-store-csi-providers", value_name = "DIR")]
    pub(super) provider_volume: PathBuf,
    /// Where they are looked for first
    #[arg(
        long,
        default_value = "/etc/kubernetes/secrets-store-csi-providers",
        value_delimiter = ',',
        value_parser = optional_path_parser(),
        value_name = "DIR,…"
    )]
    pub(super) additional_provider_volume_paths: Vec<PathBuf>,
    /// The largest answer of another provider, in bytes
    #[arg(long, default_value_t = 4 << 20, value_name = "BYTES")]
    pub(super) max_call_recv_msg_size: usize,
    /// Ask connected providers from time to time whether they are there
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) provider_health_check: GoBool,
    /// How often
    #[arg(long, default_value = "2m", value_name = "DURATION")]
    pub(super) provider_health_check_interval: GoDuration,
    /// Who answers for the provider `azure`
    #[arg(long, value_enum, default_value = "built-in", value_name = "WHO")]
    pub(super) azure_provider: AzureProviderKind,
    /// Serve our provider on this socket too, for other drivers and the sync controller
    #[arg(long, value_name = "PATH")]
    pub(super) provider_socket: Option<PathBuf>,
    /// Let the attributes of a pod's volume override its class, as upstream does: whoever writes
    /// pods then chooses vault, objects and identity
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) pod_overrides_parameters: GoBool,
}

/// Who answers for the provider `azure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AzureProviderKind {
    /// This process.
    BuiltIn,
    /// Another process, by its socket.
    Socket,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Key Vault")]
pub(super) struct KeyVaultArgs {
    /// The cloud of classes that name none
    #[arg(long, default_value = "AzurePublicCloud", value_parser = parse_cloud, value_name = "CLOUD")]
    pub(super) cloud_name: Cloud,
    /// Where the files are that classes may name in `cloudEnvFileName`
    #[arg(long, default_value = "/etc/kubernetes", value_name = "DIR")]
    pub(super) cloud_env_dir: PathBuf,
    /// Order the chain of a converted PKCS#12 archive: leaf, intermediates, root
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) construct_pem_chain: GoBool,
    /// Write FILE.crt and FILE.key beside each certificate's secret
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) write_cert_and_key_in_separate_files: GoBool,
    /// The token proxy of identity bindings [default: the API server]
    #[arg(long, value_name = "URL")]
    pub(super) token_proxy_url: Option<String>,
    /// The server name for the token proxy's handshake [default: from the API server's certificate]
    #[arg(long, value_name = "NAME")]
    pub(super) sni_name: Option<String>,
    /// Add this to the user agent of vault requests
    #[arg(long, value_name = "TEXT")]
    pub(super) custom_user_agent: Option<String>,
    /// How many requests a second this node sends to one vault: all of the vault's clients share
    /// 400, so divide them by the nodes that read it
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=400), value_name = "NUMBER")]
    pub(super) vault_requests_per_second: u32,
    /// How many requests may go to one vault at once after a pause
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4000), value_name = "NUMBER")]
    pub(super) vault_request_burst: u32,
    /// Keep the sealed cache, for classes that opt in to stale content, in this directory
    /// [default: in memory]
    #[arg(long, requires = "stale_cache_key_file", value_name = "DIR")]
    pub(super) stale_cache_dir: Option<PathBuf>,
    /// The key of the sealed cache: 32 bytes, readable by root alone
    #[arg(long, requires = "stale_cache_dir", value_name = "FILE")]
    pub(super) stale_cache_key_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Policy and audit")]
pub(super) struct PolicyArgs {
    /// Which namespace may read what through an identity that the node shares
    #[arg(long, value_name = "FILE")]
    pub(super) policy_file: Option<PathBuf>,
    /// What becomes of a read that no rule allows; `enforce` with an empty policy denies every read
    /// through an identity that the node shares
    #[arg(
        long,
        value_enum,
        default_value = "audit",
        requires_if("enforce", "policy_file"),
        value_name = "MODE"
    )]
    pub(super) policy_mode: PolicyModeArg,
    /// Record who read which version when, in this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) audit_file: Option<PathBuf>,
}

/// What becomes of a read that no rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PolicyModeArg {
    /// It is logged once, recorded where there is an --audit-file, and allowed, as upstream does.
    Audit,
    /// It is logged and recorded in the same way, and denied.
    Enforce,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metrics and health")]
pub(super) struct NodeHttpArgs {
    /// Where /metrics is served; `:8095` is every interface, `0` is nowhere
    #[arg(long, default_value = "127.0.0.1:8095", value_name = "ADDRESS")]
    pub(super) metrics_addr: ListenAddress,
    /// The address of the health pages
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub(super) healthz_addr: IpAddr,
    /// The port of the health pages; 0 is none
    #[arg(long, default_value_t = 8989, value_name = "PORT")]
    pub(super) healthz_port: u16,
    /// The path of the liveness page; readiness is at /readyz
    #[arg(long, default_value = "/healthz", value_name = "PATH")]
    pub(super) healthz_path: String,
    /// How long the process may take to answer itself
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    pub(super) healthz_timeout: GoDuration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct NodeLogArgs {
    /// Log one JSON object per line (the same as --log-format json)
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) log_format_json: GoBool,
    /// How much is logged where --log does not say it: 0 to 5
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(super) verbosity: u8,
}

impl NodeLogArgs {
    /// The filter for a verbosity of klog's.
    pub(super) const fn log_filter(&self) -> &'static str {
        match self.verbosity {
            0 | 1 => "info",
            2..=4 => {
                "info,lanyard=debug,lanyard_node=debug,lanyard_keyvault=debug,lanyard_azure=debug,lanyard_credential=debug"
            }
            _ => "debug,h2=info,hyper=info,hyper_util=info,tower=info,rustls=info",
        }
    }
}

/// Flags of upstream that mean nothing here. They are taken, so that a command line can be kept,
/// and it is logged that they have no effect.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flags of upstream without a meaning here")]
pub(super) struct IgnoredNodeArgs {
    /// There is no profiler to be reached over the network
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    enable_pprof: Option<GoBool>,
    /// See --enable-pprof
    #[arg(long, value_name = "PORT")]
    pprof_port: Option<String>,
    /// Metrics are Prometheus' always
    #[arg(long, value_name = "NAME")]
    metrics_backend: Option<String>,
    /// The provider's metrics are on the same page: --metrics-addr
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

/// A path that may be empty: nowhere.
fn optional_path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}
