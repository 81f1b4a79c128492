//! The flags of the cluster, its platform and its NodePools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanyard_federation::IssuerUrl;
use lanyard_infra::manifests::{
    AvailabilityPolicy, AvailabilityZone, ClusterManifests, ClusterOptions, DiagnosticsOptions,
    DiagnosticsStorage, FlagProblem, FlagProblems, HostEncryption, ImageGeneration, IpRange,
    KubernetesName, MarketplaceOptions, NetworkType, NodeArchitecture, NodePoolOptions,
    NodeUpgradeType, OAuthPublishing, PrivateAccessOptions,
};
use lanyard_infra::{BaseDomain, ClusterName, EncryptionKeyId};
use lanyard_vocabulary::{ArmResourceId, InfraId, SecretName, SubscriptionId};

use super::Args;
use crate::commands::azure_resources::output_files::write_output_file;
use crate::commands::create::infra::{EndpointArgs, GroupArgs, IdentityArgs, RoleArgs, parse_tag};
use crate::commands::go_bool::GoBool;
use crate::exit::{CommandError, ExternalResult as _};
use crate::output;

/// The flags of the cluster that do not depend on the platform.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ClusterFlags {
    /// The name of the hosted cluster
    #[arg(long, value_name = "NAME")]
    pub(super) name: ClusterName,
    /// The namespace of the cluster's objects; it is created if it does not exist
    #[arg(long, default_value = "clusters", value_name = "NAME")]
    pub(super) namespace: KubernetesName,
    /// The domain below which the cluster is reachable; its public DNS zone must exist
    /// [default: from --infra-json]
    #[arg(long, required_unless_present = "infra_json", value_name = "DOMAIN")]
    pub(super) base_domain: Option<BaseDomain>,
    /// The infrastructure id, a part of the names of all resources. Required if a journal records an infrastructure for
    /// the name, or if `LANYARD_STATE` is a container and --state is not given
    /// [default: that of the HostedCluster, otherwise the name with five random characters]
    #[arg(long, value_name = "ID")]
    pub(super) infra_id: Option<InfraId>,
    /// The image of the OpenShift release
    #[arg(long, value_name = "IMAGE")]
    release_image: String,
    /// The domain in which external DNS publishes the API server and other services
    #[arg(long, value_name = "DOMAIN")]
    external_dns_domain: Option<BaseDomain>,
    /// Annotations of the HostedCluster; may be repeated
    #[arg(long, value_parser = parse_tag, value_name = "KEY=VALUE")]
    annotations: Vec<(String, String)>,
    /// Labels of the HostedCluster; may be repeated
    #[arg(long, value_parser = parse_tag, value_name = "KEY=VALUE")]
    labels: Vec<(String, String)>,
    /// Whether the components of the control plane have replicas: `SingleReplica` or `HighlyAvailable`
    #[arg(long, default_value = "SingleReplica", value_name = "POLICY")]
    control_plane_availability_policy: AvailabilityPolicy,
    /// Whether the infrastructure services of the cluster have replicas: `SingleReplica` or `HighlyAvailable`
    #[arg(long, value_name = "POLICY")]
    infra_availability_policy: Option<AvailabilityPolicy>,
    /// The storage class of the etcd volumes
    #[arg(long, value_name = "NAME")]
    etcd_storage_class: Option<String>,
    /// The network plugin: `OVNKubernetes`, `OpenShiftSDN`, `Calico` or `Other`
    #[arg(long, default_value = "OVNKubernetes", value_name = "TYPE")]
    network_type: NetworkType,
    /// The address range of pods; may be repeated
    #[arg(long, default_value = "10.132.0.0/14", value_name = "CIDR")]
    cluster_cidr: Vec<IpRange>,
    /// The address range of Services; may be repeated
    #[arg(long, default_value = "172.31.0.0/16", value_name = "CIDR")]
    service_cidr: Vec<IpRange>,
    /// Run the nodes in FIPS mode
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    fips: GoBool,
}

/// The flags of Azure.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PlatformFlags {
    /// The region [default: eastus, or from --infra-json]
    #[arg(long, value_name = "REGION")]
    pub(super) location: Option<String>,
    /// The public DNS zone of the base domain, if it is in another subscription or its name is ambiguous
    #[arg(long, value_name = "RESOURCE-ID")]
    pub(super) public_zone_id: Option<String>,
    #[command(flatten)]
    pub(super) groups: GroupArgs,
    #[command(flatten)]
    pub(super) identities: IdentityArgs,
    #[command(flatten)]
    pub(super) roles: RoleArgs,
    #[command(flatten)]
    pub(super) endpoint: EndpointArgs,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    encryption: EncryptionFlags,
}

/// The flags for the access to the cluster.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Access")]
struct AccessFlags {
    /// The URL of the cluster's token issuer
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<IssuerUrl>,
    /// Other subscriptions that may connect to the private link service
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    endpoint_access_private_additional_allowed_subscriptions: Vec<SubscriptionId>,
    /// How the OAuth server is published: `Route` or `LoadBalancer`
    #[arg(long, default_value = "Route", value_name = "STRATEGY")]
    oauth_publishing_strategy: OAuthPublishing,
}

/// The flags for the encryption of secrets.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Encryption of secrets")]
struct EncryptionFlags {
    /// The vault key that encrypts the secrets of the cluster, such as
    /// `https://VAULT.vault.azure.net/keys/NAME/VERSION` [default: a new key in a Secret]
    #[arg(long, value_name = "URL")]
    encryption_key_id: Option<EncryptionKeyId>,
    /// The vault secret with the credential of the identity that uses the key, for clusters with managed identities
    #[arg(long, value_name = "NAME")]
    kms_credentials_secret_name: Option<SecretName>,
}

/// The flags of the NodePools.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "NodePools")]
pub(super) struct NodePoolFlags {
    /// The number of nodes of each NodePool; no NodePool is created if it is negative
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    node_pool_replicas: i32,
    /// The processor architecture of the nodes: `amd64` or `arm64`
    #[arg(long, default_value = "amd64", value_name = "ARCH")]
    arch: NodeArchitecture,
    /// Create a NodePool in each of these zones: 1, 2 or 3
    #[arg(long, value_delimiter = ',', value_name = "ZONES")]
    availability_zones: Vec<AvailabilityZone>,
    /// The zone of the only NodePool: 1, 2 or 3
    #[arg(long, value_name = "ZONE")]
    availability_zone: Option<AvailabilityZone>,
    /// The size of the machines [default: `Standard_D4s_v5`, for `arm64` `Standard_D4ps_v5`]
    #[arg(long, value_name = "SIZE")]
    instance_type: Option<String>,
    /// The size of the root disk in GiB
    #[arg(long, default_value_t = 120, value_name = "GIB")]
    root_disk_size: u32,
    /// The type of the root disk
    #[arg(long, default_value = "Premium_LRS", value_name = "TYPE")]
    disk_storage_account_type: String,
    /// Use ephemeral root disks
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    enable_ephemeral_disk: GoBool,
    /// The disk encryption set that encrypts the root disks
    #[arg(long, value_name = "RESOURCE-ID")]
    disk_encryption_set_id: Option<ArmResourceId>,
    /// Whether the hosts encrypt disks and caches: `Enabled` or `Disabled`
    #[arg(long, value_name = "STATE")]
    encryption_at_host: Option<HostEncryption>,
    /// The subnet of the machines [default: that of the infrastructure]
    #[arg(long, value_name = "RESOURCE-ID")]
    nodepool_subnet_id: Option<ArmResourceId>,
    /// The generation of the machine image: `Gen1` or `Gen2`
    #[arg(long, value_name = "GENERATION")]
    image_generation: Option<ImageGeneration>,
    /// The publisher of a marketplace image [default: the image of the release]
    #[arg(long, value_name = "NAME")]
    marketplace_publisher: Option<String>,
    /// The offer of the marketplace image
    #[arg(long, value_name = "NAME")]
    marketplace_offer: Option<String>,
    /// The SKU of the marketplace image
    #[arg(long, value_name = "NAME")]
    marketplace_sku: Option<String>,
    /// The version of the marketplace image
    #[arg(long, value_name = "VERSION")]
    marketplace_version: Option<String>,
    /// Where boot diagnostics are stored: `Disabled`, `Managed` or `UserManaged`
    #[arg(long, value_name = "TYPE")]
    diagnostics_storage_account_type: Option<DiagnosticsStorage>,
    /// The storage account of the boot diagnostics, with `UserManaged`
    #[arg(long, value_name = "URL")]
    diagnostics_storage_account_uri: Option<String>,
    /// How nodes are upgraded: `Replace` or `InPlace`
    #[arg(long, default_value = "Replace", value_name = "TYPE")]
    node_upgrade_type: NodeUpgradeType,
    /// Replace unhealthy machines
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    auto_repair: GoBool,
}

/// The flags that print the objects.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Rendering")]
pub(super) struct RenderFlags {
    /// Print the objects as YAML instead of applying them. Without --infra-json, the Azure resources are created, and
    /// the result is printed to standard error; with it, no request is sent
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    render: GoBool,
    /// Write the objects into this file instead of printing them
    #[arg(long, value_name = "FILE")]
    render_into: Option<PathBuf>,
    /// Also print the Secrets
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    render_sensitive: GoBool,
}

impl RenderFlags {
    /// Whether the objects are printed.
    pub(super) const fn is_render(&self) -> bool {
        self.render.0 || self.render_into.is_some()
    }

    /// Prints the objects, or writes them into the file.
    pub(super) fn write(&self, manifests: &ClusterManifests) -> Result<(), CommandError> {
        let text = manifests
            .to_yaml(self.render_sensitive.0)
            .or_unavailable("the objects cannot be written as YAML")?;
        if !self.render_sensitive.0 {
            output::print_stderr("note: Secrets are left out; --render-sensitive prints them");
        }
        match &self.render_into {
            Some(path) => write_output_file(path, &text),
            None => output::print_stdout(&text),
        }
    }
}

impl Args {
    /// Checks flags that need neither files nor Azure.
    pub(super) fn check_flags(&self) -> Result<(), CommandError> {
        let mut problems = FlagProblems::default();
        let mut add = |flag, problem: &str| {
            problems.0.push(FlagProblem { flag, problem: problem.to_owned() });
        };
        let (groups, identities, roles) =
            (&self.platform.groups, &self.platform.identities, &self.platform.roles);
        if groups.network_security_group_id.is_some() && groups.resource_group_name.is_none() {
            add("--resource-group-name", "is missing; --network-security-group-id needs it");
        }
        match (&identities.managed_identities_file, &identities.data_plane_identities_file) {
            (Some(_), None) => add(
                "--data-plane-identities-file",
                "is missing; --managed-identities-file needs it",
            ),
            (None, Some(_)) => add(
                "--managed-identities-file",
                "is missing; --data-plane-identities-file needs it",
            ),
            _ => {}
        }
        let has_managed = identities.managed_identities_file.is_some()
            || identities.data_plane_identities_file.is_some();
        if has_managed && identities.workload_identities_file.is_some() {
            add(
                "--workload-identities-file",
                "excludes --managed-identities-file and --data-plane-identities-file",
            );
        }
        let assigns_roles = roles.assign_identity_roles || roles.assign_custom_hcp_roles;
        if self.infra_json.is_some() && assigns_roles {
            add(
                "--assign-identity-roles",
                "excludes --infra-json; run `lanyard create infra azure` with the flag, or leave --infra-json out",
            );
        }
        if self.infra_json.is_none()
            && assigns_roles
            && roles.dns_zone_rg_name.as_deref().is_none_or(|group| group.trim().is_empty())
        {
            add("--dns-zone-rg-name", "is missing; role assignments need it");
        }
        if problems.0.is_empty() {
            Ok(())
        } else {
            Err(CommandError::invalid_input(problems.to_string()))
        }
    }

    /// The options of the objects. Sends no request.
    pub(super) fn checked_options(&self) -> Result<ClusterOptions, CommandError> {
        let options = self.options();
        options.check().map_err(|problems| CommandError::invalid_input(problems.to_string()))?;
        Ok(options)
    }

    fn options(&self) -> ClusterOptions {
        let (cluster, platform) = (&self.cluster, &self.platform);
        let pairs =
            |pairs: &[(String, String)]| -> BTreeMap<_, _> { pairs.iter().cloned().collect() };
        ClusterOptions {
            name: cluster.name.clone(),
            namespace: cluster.namespace.clone(),
            cloud: self.account.cloud,
            infra_id: cluster.infra_id.clone(),
            base_domain: cluster.base_domain.clone(),
            location: platform.location.clone(),
            external_dns_domain: cluster.external_dns_domain.clone(),
            release_image: cluster.release_image.clone(),
            annotations: pairs(&cluster.annotations),
            labels: pairs(&cluster.labels),
            control_plane_availability: cluster.control_plane_availability_policy,
            infra_availability: cluster.infra_availability_policy,
            etcd_storage_class: cluster.etcd_storage_class.clone(),
            network_type: cluster.network_type,
            cluster_ranges: cluster.cluster_cidr.clone(),
            service_ranges: cluster.service_cidr.clone(),
            fips: cluster.fips.0,
            disabled_capabilities: platform.roles.disable_cluster_capabilities.clone(),
            issuer_url: platform.access.oidc_issuer_url.as_ref().map(|it| it.as_str().to_owned()),
            has_signing_key: self.secrets.has_signing_key(),
            encryption_key: platform.encryption.encryption_key_id.clone(),
            kms_secret: platform.encryption.kms_credentials_secret_name.clone(),
            endpoint_access: platform.endpoint.endpoint_access,
            private_access: PrivateAccessOptions {
                nat_subnet: platform.endpoint.endpoint_access_private_nat_subnet_id.clone(),
                additional_subscriptions: platform
                    .access
                    .endpoint_access_private_additional_allowed_subscriptions
                    .clone(),
            },
            oauth_publishing: platform.access.oauth_publishing_strategy,
            node_pools: self.node_pools.options(),
        }
    }
}

impl NodePoolFlags {
    fn options(&self) -> NodePoolOptions {
        NodePoolOptions {
            replicas: self.node_pool_replicas,
            architecture: self.arch,
            instance_type: self.instance_type.clone().filter(|it| !it.trim().is_empty()),
            disk_size: self.root_disk_size,
            disk_storage: self.disk_storage_account_type.clone(),
            ephemeral_disk: self.enable_ephemeral_disk.0,
            disk_encryption_set: self.disk_encryption_set_id.clone(),
            host_encryption: self.encryption_at_host,
            subnet: self.nodepool_subnet_id.clone(),
            zones: self.availability_zones.clone(),
            zone: self.availability_zone,
            image_generation: self.image_generation,
            marketplace: MarketplaceOptions {
                publisher: self.marketplace_publisher.clone(),
                offer: self.marketplace_offer.clone(),
                sku: self.marketplace_sku.clone(),
                version: self.marketplace_version.clone(),
            },
            diagnostics: DiagnosticsOptions {
                storage: self.diagnostics_storage_account_type,
                account_uri: self.diagnostics_storage_account_uri.clone(),
            },
            upgrade_type: self.node_upgrade_type,
            auto_repair: self.auto_repair.0,
        }
    }
}
