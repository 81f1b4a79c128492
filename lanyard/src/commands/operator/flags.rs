//! The flags of the operator.

use std::path::PathBuf;

use clap::ValueEnum;
use lanyard_operator::ServiceAccountKey;
use lanyard_telemetry::ListenAddress;
use lanyard_vocabulary::EntraClientId;

use crate::commands::go_bool::GoBool;
use crate::commands::go_duration::GoDuration;
use crate::commands::rotation_timing::RotationTimingArgs;
use crate::commands::workloads::WorkloadArgs;

/// The flags of `lanyard operator`.
#[derive(Debug, clap::Args)]
pub(super) struct OperatorArgs {
    /// Which objects the operator writes
    #[arg(long, value_enum, default_value = "all", value_name = "ROLE")]
    pub(super) role: OperatorRoleArg,
    /// Print the planned changes for every HostedCluster, write nothing, and exit
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run, exit with 1 also if a plan shows changes; without this flag, only if a plan
    /// is incomplete. Plans do not include conditions and HostedClusterIdentities
    #[arg(long, requires = "dry_run")]
    pub(super) exit_code: bool,
    /// The kubeconfig file for the Kubernetes API [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The number of clusters that are reconciled concurrently
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
    /// The address of /metrics, /healthz and /readyz; `0` disables them
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

/// Which objects the operator writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OperatorRoleArg {
    /// Everything that delivers identities to their components, and their status
    All,
    /// The status of the identities only; HyperShift manages all other objects
    IdentityOnly,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Management cluster")]
pub(super) struct ManagementClusterArgs {
    /// The managed identity with which the nodes of the management cluster read the vaults
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    pub(super) vault_reader: Option<EntraClientId>,
    /// The managed service of this management cluster. HostedClusters on managed Azure are refused if it is
    /// not ARO-HCP [default: unset, each HostedCluster decides]
    #[arg(long, env = "MANAGED_SERVICE", value_name = "NAME")]
    pub(super) managed_service: Option<String>,
    /// The operator's own ServiceAccount. With --role all the operator binds it to the ClusterRole
    /// lanyard-control-plane in the namespace of each control plane [default: no binding; the operator has these
    /// permissions in all namespaces]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(super) service_account: Option<ServiceAccountKey>,
    /// Whether the driver rotates mounted volumes when the vault changes. Without rotation, the operator
    /// restarts pods when the source of a credential changes
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) rotation: GoBool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Replicas")]
pub(super) struct ReplicaArgs {
    /// Distribute the clusters to replicas by leases; false for a single replica
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    pub(super) leader_elect: GoBool,
    /// The number of shards into which the clusters are divided; must be equal for all replicas
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64), value_name = "NUMBER")]
    pub(super) shards: u32,
    /// How long a shard stays assigned to a replica that is gone
    #[arg(long, default_value = "15s", value_name = "DURATION")]
    pub(super) lease_duration: GoDuration,
    /// The name prefix of the leases
    #[arg(long, default_value = "lanyard-operator", value_name = "NAME")]
    pub(super) lease_name: String,
    /// The namespace of the leases
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
    /// The log verbosity if --log is not set: 0 to 5
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(super) verbosity: u8,
}

impl OperatorLogArgs {
    /// The log filter for a klog verbosity.
    pub(super) const fn log_filter(&self) -> &'static str {
        match self.verbosity {
            0 | 1 => "info",
            2..=4 => "info,lanyard=debug,lanyard_operator=debug,lanyard_kubernetes=debug",
            _ => "debug,h2=info,hyper=info,hyper_util=info,tower=info,rustls=info",
        }
    }
}
