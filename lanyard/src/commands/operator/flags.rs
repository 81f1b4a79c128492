//! The flags of the operator.

use std::path::PathBuf;

use clap::ValueEnum;
use lanyard_telemetry::ListenAddress;
use lanyard_vocabulary::EntraClientId;

use crate::commands::go_bool::GoBool;
use crate::commands::go_duration::GoDuration;
use crate::commands::rotation_timing::RotationTimingArgs;
use crate::commands::workloads::WorkloadArgs;

/// Everything that `lanyard operator` can be told.
#[derive(Debug, clap::Args)]
pub(super) struct OperatorArgs {
    /// What the operator writes
    #[arg(long, value_enum, default_value = "all", value_name = "ROLE")]
    pub(super) role: OperatorRoleArg,
    /// Print what would be done about every HostedCluster, write nothing, and end
    #[arg(long)]
    pub(super) dry_run: bool,
    /// How to reach the Kubernetes API [default: as a pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// How many clusters are looked at at once
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "NUMBER")]
    pub(super) workers: u16,
    #[command(flatten)]
    pub(super) management_cluster: ManagementClusterArgs,
    #[command(flatten)]
    pub(super) rotation_timing: RotationTimingArgs,
    #[command(flatten)]
    pub(super) workloads: WorkloadArgs,
    #[command(flatten)]
    pub(super) replicas: ReplicaArgs,
    /// Where /metrics, /healthz and /readyz are served; `0` is nowhere
    #[arg(
        long,
        default_value = ":8080",
        help_heading = "Metrics and health",
        value_name = "ADDRESS"
    )]
    pub(super) metrics_addr: ListenAddress,
    #[command(flatten)]
    pub(super) logs: OperatorLogArgs,
}

/// What the operator writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OperatorRoleArg {
    /// Everything that brings identities to their components, and how they are.
    All,
    /// How they are, and nothing else: HyperShift does the rest.
    IdentityOnly,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Management cluster")]
pub(super) struct ManagementClusterArgs {
    /// The managed identity with which the nodes of the management cluster read the vaults
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    pub(super) vault_reader: Option<EntraClientId>,
    /// What this management cluster is. HostedClusters of managed Azure are refused where it is
    /// something else than ARO-HCP [default: nobody said it, and each HostedCluster decides]
    #[arg(long, env = "MANAGED_SERVICE", value_name = "NAME")]
    pub(super) managed_service: Option<String>,
    /// Whether mounted volumes follow the vault: the rotation of the driver. Where they do not, pods
    /// are started anew when a credential takes another way
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) rotation: GoBool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Replicas")]
pub(super) struct ReplicaArgs {
    /// Share the clusters with other replicas by leases; false is for a single one
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) leader_elect: GoBool,
    /// Into how many parts the clusters are divided; the same for all replicas, which share them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64), value_name = "NUMBER")]
    pub(super) shards: u32,
    /// How long a part belongs to a replica that is gone
    #[arg(long, default_value = "15s", value_name = "DURATION")]
    pub(super) lease_duration: GoDuration,
    /// What the names of the leases begin with
    #[arg(long, default_value = "lanyard-operator", value_name = "NAME")]
    pub(super) lease_name: String,
    /// Where the leases are
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub(super) lease_namespace: Option<String>,
    /// The name of this replica in leases and events
    #[arg(long, env = "POD_NAME", default_value = "lanyard-operator", value_name = "NAME")]
    pub(super) pod_name: String,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct OperatorLogArgs {
    /// Log one JSON object per line (the same as --log-format json)
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) log_format_json: GoBool,
    /// How much is logged where --log does not say it: 0 to 5
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(super) verbosity: u8,
}

impl OperatorLogArgs {
    /// The filter for a verbosity of klog's.
    pub(super) const fn log_filter(&self) -> &'static str {
        match self.verbosity {
            0 | 1 => "info",
            2..=4 => "info,lanyard=debug,lanyard_operator=debug,lanyard_kubernetes=debug",
            _ => "debug,h2=info,hyper=info,hyper_util=info,tower=info,rustls=info",
        }
    }
}
