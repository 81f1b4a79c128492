//! The flags of the KMS plugin: the flags of Azure/kubernetes-kms (v0.11.0) and of its OpenShift fork, and
//! lanyard's own.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use lanyard_kms::CiphertextLayout;

use crate::commands::go_bool::GoBool;
use crate::commands::go_duration::GoDuration;

/// The flags of `lanyard kms`.
#[derive(Debug, clap::Args)]
pub(super) struct KmsArgs {
    #[command(flatten)]
    pub(super) key: KmsKeyArgs,
    #[command(flatten)]
    pub(super) socket: KmsSocketArgs,
    #[command(flatten)]
    pub(super) http: KmsHttpArgs,
    #[command(flatten)]
    pub(super) logs: KmsLogArgs,
    #[command(flatten)]
    pub(super) ignored: IgnoredKmsArgs,
    /// Print the version as JSON, and exit
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) version: GoBool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Key")]
pub(super) struct KmsKeyArgs {
    /// The vault, in the same case as in its key URLs (required)
    #[arg(long, value_name = "NAME")]
    pub(super) keyvault_name: Option<String>,
    /// The key (required)
    #[arg(long, value_name = "NAME")]
    pub(super) key_name: Option<String>,
    /// The version of the key (required); every version needs its own plugin
    #[arg(long, value_name = "VERSION")]
    pub(super) key_version: Option<String>,
    /// The key is in a managed HSM
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) managed_hsm: GoBool,
    /// The cloud provider's configuration, YAML or JSON: the cloud and the identity
    #[arg(long, default_value = "/etc/kubernetes/azure.json", value_name = "FILE")]
    pub(super) config_file_path: PathBuf,
    /// The layout of new ciphertexts; both layouts can be decrypted
    #[arg(long, value_enum, default_value = "upstream", value_name = "LAYOUT")]
    pub(super) ciphertext_layout: CiphertextLayoutArg,
}

/// The layout of new ciphertexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CiphertextLayoutArg {
    /// Azure/kubernetes-kms, and the OpenShift fork up to release 4.18
    Upstream,
    /// The OpenShift fork since release 4.19
    Openshift,
}

impl From<CiphertextLayoutArg> for CiphertextLayout {
    fn from(name: CiphertextLayoutArg) -> Self {
        match name {
            CiphertextLayoutArg::Upstream => Self::Upstream,
            CiphertextLayoutArg::Openshift => Self::OpenShift,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Socket")]
pub(super) struct KmsSocketArgs {
    /// The socket for the API server, which must run as the same user
    #[arg(long, default_value = "unix:///opt/azurekms.socket", value_name = "unix://PATH")]
    pub(super) listen_addr: String,
    /// How long calls in flight may take after SIGTERM
    #[arg(long, default_value = "20s", value_name = "DURATION")]
    pub(super) drain_timeout: GoDuration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metrics and health")]
pub(super) struct KmsHttpArgs {
    /// The address of /metrics: a port on every interface, `IP:PORT`, or `0` to disable it
    #[arg(long, default_value = "8095", value_name = "ADDRESS")]
    pub(super) metrics_addr: String,
    /// The address of the health endpoints [default: every interface]
    #[arg(long, value_name = "IP")]
    pub(super) healthz_addr: Option<IpAddr>,
    /// The port of the health endpoints; 0 disables them
    #[arg(long, default_value_t = 8787, value_name = "PORT")]
    pub(super) healthz_port: u16,
    /// The endpoint that checks the key; /livez checks only the process
    #[arg(long, default_value = "/healthz", value_name = "PATH")]
    pub(super) healthz_path: String,
    /// The timeout of the key check
    #[arg(long, default_value = "20s", value_name = "DURATION")]
    pub(super) healthz_timeout: GoDuration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct KmsLogArgs {
    /// Log one JSON object per line (the same as --log-format json)
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) log_format_json: GoBool,
    /// The log verbosity if --log is not set: 0 to 10
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(super) verbosity: u8,
}

impl KmsLogArgs {
    /// The log filter for a verbosity of the upstream plugins.
    pub(super) const fn log_filter(&self) -> &'static str {
        match self.verbosity {
            0..=3 => "info",
            4..=5 => {
                "info,lanyard=debug,lanyard_kms=debug,lanyard_azure=debug,lanyard_credential=debug"
            }
            _ => "debug,h2=info,hyper=info,hyper_util=info,tower=info,rustls=info",
        }
    }
}

/// Flags of the upstream plugins that have no effect, or support only one value.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flags of the other plugins without a meaning here")]
pub(super) struct IgnoredKmsArgs {
    /// See --config-file-path
    #[arg(long = "configFilePath", value_name = "FILE")]
    pub(super) deprecated_config_file_path: Option<String>,
    /// Metrics are always in the Prometheus format
    #[arg(long, default_value = "prometheus", value_name = "NAME")]
    pub(super) metrics_backend: String,
    /// Not supported, because it would send tokens in plain text: set `HTTPS_PROXY` instead
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) proxy_mode: GoBool,
    /// See --proxy-mode
    #[arg(long, value_name = "ADDRESS")]
    pub(super) proxy_address: Option<String>,
    /// See --proxy-mode
    #[arg(long, value_name = "PORT")]
    pub(super) proxy_port: Option<String>,
}
