//! `lanyard create infra azure`: creates the infrastructure of one hosted cluster.

use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_infra::manifests::EndpointAccess;
use lanyard_infra::{DEFAULT_LOCATION, RawConfiguration, RawInfra, RoleProfile};
use lanyard_vocabulary::ArmResourceId;

use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::RunArgs;
use crate::commands::azure_resources::cluster_stacks::ClusterRun;
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::exit::CommandResult;
use crate::output::OutputArgs;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create infra azure --name harbour --infra-id harbour-x7k2p \\
    --base-domain example.com --azure-creds creds.json \\
    --workload-identities-file iam.json --output-file infra.yaml";

/// Create or change the infrastructure of a hosted cluster in Azure
///
/// Creates the resource groups, network, private DNS zone and load balancer of one cluster, and with
/// --assign-identity-roles the role assignments of its identities. The command prints the plan, checks
/// permissions, locks and existing networks before the first write, and then writes the resources in parallel.
///
/// A later run changes resources that differ from the flags. It deletes resources that an earlier run created and
/// the flags no longer describe, for example the role assignments without --assign-identity-roles.
///
/// A journal records each write before it is sent. Run the command with the same flags to continue after an
/// interruption, or also with --roll-back to undo the interrupted run; resources that are as desired are not written.
/// `lanyard destroy infra azure` removes what the journal records.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the hosted cluster
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The infrastructure id, a part of the names of all resources
    #[arg(long, value_name = "ID")]
    infra_id: String,
    /// The domain below which the cluster is reachable; its public DNS zone must exist
    #[arg(long, value_name = "DOMAIN")]
    base_domain: String,
    /// The public DNS zone of the base domain, if it is in another subscription or its name is ambiguous
    #[arg(long, value_name = "RESOURCE-ID")]
    public_zone_id: Option<String>,
    /// The region
    #[arg(long, default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    #[command(flatten)]
    groups: GroupArgs,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    identities: IdentityArgs,
    #[command(flatten)]
    roles: RoleArgs,
    /// The largest number of worker nodes, for checks of the subnet and the outbound ports
    #[arg(long, value_name = "N")]
    max_nodes: Option<u32>,
    /// Write the infrastructure output, which `create cluster azure --infra-json` reads, as YAML
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

/// The flags for groups and networks of the user.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Existing resources")]
pub(crate) struct GroupArgs {
    /// Use this existing resource group for all resources, instead of three new groups
    #[arg(long, value_name = "NAME")]
    pub(super) resource_group_name: Option<String>,
    /// Tags of the resource groups that the command creates; may be repeated or separated by commas
    #[arg(long, short = 't', value_delimiter = ',', value_parser = parse_tag, value_name = "KEY=VALUE")]
    pub(super) resource_group_tags: Vec<(String, String)>,
    /// Use this virtual network
    #[arg(long, value_name = "RESOURCE-ID")]
    pub(super) vnet_id: Option<String>,
    /// Use this subnet of the virtual network
    #[arg(long, value_name = "RESOURCE-ID")]
    pub(super) subnet_id: Option<String>,
    /// Use this network security group
    #[arg(long, value_name = "RESOURCE-ID")]
    pub(super) network_security_group_id: Option<String>,
}

/// The flags for the endpoint of the API server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Endpoint of the API server")]
pub(crate) struct EndpointArgs {
    /// From where the API server is reached: `Public`, `PublicAndPrivate` or `Private`. A private endpoint needs
    /// --endpoint-access-private-nat-subnet-id
    #[arg(long, default_value = "Public", value_name = "ACCESS")]
    pub(super) endpoint_access: EndpointAccess,
    /// The subnet for the private link service of a private endpoint. It must be in the virtual network of the
    /// management cluster, with network policies for private link services disabled
    #[arg(long, value_name = "RESOURCE-ID")]
    pub(super) endpoint_access_private_nat_subnet_id: Option<ArmResourceId>,
}

/// The flags for the cluster's identities.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Identities")]
#[expect(clippy::struct_field_names, reason = "the fields are named like the flags")]
pub(crate) struct IdentityArgs {
    /// The identities of a self-managed cluster, the output of `create iam azure`
    #[arg(long, value_name = "FILE")]
    pub(super) workload_identities_file: Option<PathBuf>,
    /// The identities of the control plane of an ARO HCP cluster
    #[arg(long, value_name = "FILE")]
    pub(super) managed_identities_file: Option<PathBuf>,
    /// The identities of the worker nodes of an ARO HCP cluster
    #[arg(long, value_name = "FILE")]
    pub(super) data_plane_identities_file: Option<PathBuf>,
}

/// The flags for role assignments.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Role assignments")]
pub(crate) struct RoleArgs {
    /// Assign the roles of the cluster's identities
    #[arg(long, visible_aliases = ["assign-service-principal-roles", "auto-assign-roles"])]
    pub(super) assign_identity_roles: bool,
    /// Same as --profile hosted-control-planes
    #[arg(long, conflicts_with = "profile")]
    pub(super) assign_custom_hcp_roles: bool,
    /// The roles and scopes [default: hypershift]
    #[arg(long, value_enum, value_name = "PROFILE")]
    profile: Option<RoleProfileName>,
    /// The resource group of the public DNS zone
    #[arg(long, value_name = "NAME")]
    pub(super) dns_zone_rg_name: Option<String>,
    /// The vault or key of the cluster's secret encryption; its identity gets Key Vault Crypto User there
    #[arg(long, value_name = "RESOURCE-ID")]
    encryption_key_resource_id: Option<String>,
    /// Capabilities that the cluster does not have; `ImageRegistry` omits the roles of the image registry
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(super) disable_cluster_capabilities: Vec<String>,
}

/// The choice of roles and scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::commands) enum RoleProfileName {
    /// The roles of HyperShift at resource groups; Contributor for two components
    Hypershift,
    /// The built-in roles for hosted control planes instead of Contributor
    HostedControlPlanes,
    /// These roles at single resources where possible, as the ARO HCP service assigns them
    LeastPrivilege,
}

impl From<RoleProfileName> for RoleProfile {
    fn from(name: RoleProfileName) -> Self {
        match name {
            RoleProfileName::Hypershift => Self::Hypershift,
            RoleProfileName::HostedControlPlanes => Self::HostedControlPlanes,
            RoleProfileName::LeastPrivilege => Self::LeastPrivilege,
        }
    }
}

pub(in crate::commands) fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// The part of the configuration that `create cluster azure` has the same flags for.
pub(super) fn raw_infra(
    groups: &GroupArgs,
    identities: &IdentityArgs,
    roles: &RoleArgs,
    endpoint: &EndpointArgs,
) -> RawInfra {
    let custom = roles.assign_custom_hcp_roles.then_some(RoleProfile::HostedControlPlanes);
    RawInfra {
        resource_group_name: groups.resource_group_name.clone(),
        resource_group_tags: groups.resource_group_tags.iter().cloned().collect(),
        vnet_id: groups.vnet_id.clone(),
        subnet_id: groups.subnet_id.clone(),
        network_security_group_id: groups.network_security_group_id.clone(),
        workload_identities_file: identities.workload_identities_file.clone(),
        managed_identities_file: identities.managed_identities_file.clone(),
        data_plane_identities_file: identities.data_plane_identities_file.clone(),
        assign_identity_roles: roles.assign_identity_roles,
        role_profile: roles.profile.map(RoleProfile::from).or(custom),
        dns_zone_resource_group_name: roles.dns_zone_rg_name.clone(),
        encryption_key_resource_id: roles.encryption_key_resource_id.clone(),
        disable_cluster_capabilities: roles.disable_cluster_capabilities.clone(),
        endpoint_access: Some(endpoint.endpoint_access.to_string()),
        endpoint_access_private_nat_subnet_id: endpoint
            .endpoint_access_private_nat_subnet_id
            .as_ref()
            .map(ToString::to_string),
        ..RawInfra::default()
    }
}

impl Args {
    fn configuration(&self) -> RawConfiguration {
        RawConfiguration {
            name: Some(self.name.clone()),
            infra_id: Some(self.infra_id.clone()),
            location: Some(self.location.clone()),
            infra: Some(RawInfra {
                base_domain: Some(self.base_domain.clone()),
                public_zone_id: self.public_zone_id.clone(),
                max_nodes: self.max_nodes,
                ..raw_infra(&self.groups, &self.identities, &self.roles, &self.endpoint)
            }),
            iam: None,
        }
    }
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let configuration = args.configuration().parse()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let context = args.run.journal_context(&account, &environment, &clock);
    let run = ClusterRun {
        context,
        run: &args.run,
        roll_back: args.roll_back,
        format: args.output.format,
        infra_output: args.output_file,
        iam_output: None,
    };
    run.apply(&configuration).await
}
