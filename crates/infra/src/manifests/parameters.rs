//! The checks of the flags with each other and with the infrastructure.

use std::fmt;

use lanyard_vocabulary::{ArmResourceId, Component, EntraClientId, SecretName, SubscriptionId};

use super::choices::{AvailabilityZone, DiagnosticsStorage, EndpointAccess, OAuthPublishing};
use super::options::{ClusterAccount, ClusterOptions, IpRange, MarketplaceOptions};
use crate::encryption_key_id::EncryptionKeyId;
use crate::identity_files::{ControlPlaneIdentities, DataPlaneIdentities, WorkloadIdentities};
use crate::infra_output::ClusterIdentities;
use crate::infra_output_file::InfraOutput;

/// Everything that the objects of a hosted cluster are rendered from. All values fit together.
#[derive(Debug, Clone)]
pub struct HostedClusterParameters {
    pub(super) options: ClusterOptions,
    pub(super) account: ClusterAccount,
    pub(super) infra: InfraOutput,
    pub(super) identities: CompleteIdentities,
    pub(super) private_link: Option<PrivateLink>,
    pub(super) encryption: SecretEncryption,
    pub(super) zones: NodePoolZones,
    pub(super) image: Option<MarketplaceImage>,
}

/// The identities of a cluster.
#[derive(Debug, Clone)]
pub(super) enum CompleteIdentities {
    /// An ARO HCP cluster.
    Managed { control_plane: ControlPlaneIdentities, data_plane: DataPlaneIdentities },
    /// A self-managed cluster.
    Workload(WorkloadIdentities),
}

/// The private link of a cluster.
#[derive(Debug, Clone)]
pub(super) struct PrivateLink {
    pub(super) nat_subnet: ArmResourceId,
    pub(super) additional_subscriptions: Vec<SubscriptionId>,
}

/// How the secrets of the cluster are encrypted.
#[derive(Debug, Clone)]
pub(super) enum SecretEncryption {
    /// With a key in a Secret.
    GeneratedKey,
    /// With a key in a vault.
    Vault { key: EncryptionKeyId, identity: KmsIdentity },
}

/// The identity that uses the vault key.
#[derive(Debug, Clone)]
pub(super) enum KmsIdentity {
    /// The vault secret with the credential of a managed identity.
    Managed(SecretName),
    /// A workload identity.
    Workload(EntraClientId),
}

/// The zones of the NodePools.
#[derive(Debug, Clone)]
pub(super) enum NodePoolZones {
    /// One NodePool, in the zone if there is one.
    Single(Option<AvailabilityZone>),
    /// One NodePool for each zone.
    Each(Vec<AvailabilityZone>),
}

/// An image of the Azure Marketplace.
#[derive(Debug, Clone)]
pub(super) struct MarketplaceImage {
    pub(super) publisher: String,
    pub(super) offer: String,
    pub(super) sku: String,
    pub(super) version: String,
}

/// The problem of a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagProblem {
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for FlagProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.flag, self.problem)
    }
}

/// The flags of a command do not fit together.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct FlagProblems(pub Vec<FlagProblem>);

impl FlagProblems {
    fn add(&mut self, flag: &'static str, problem: impl Into<String>) {
        self.0.push(FlagProblem { flag, problem: problem.into() });
    }

    fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

const ENDPOINT_ACCESS: &str = "--endpoint-access";
const NAT_SUBNET: &str = "--endpoint-access-private-nat-subnet-id";
const KMS_SECRET: &str = "--kms-credentials-secret-name";
const ENCRYPTION_KEY: &str = "--encryption-key-id";
const EXTERNAL_DNS: &str = "--external-dns-domain";

impl ClusterOptions {
    /// Checks what does not depend on the infrastructure, so that a wrong flag is reported before the first
    /// request.
    ///
    /// # Errors
    ///
    /// [`FlagProblems`] names every flag with a problem.
    pub fn check(&self) -> Result<(), FlagProblems> {
        let mut problems = FlagProblems::default();
        self.check_private_access(&mut problems);
        self.check_encryption(&mut problems);
        self.check_node_pools(&mut problems);
        self.check_ranges(&mut problems);
        if self.release_image.trim().is_empty() {
            problems.add("--release-image", "is empty");
        }
        if let Some(domain) = &self.base_domain {
            self.check_external_dns(domain.as_str(), &mut problems);
        }
        problems.into_result()
    }

    fn check_private_access(&self, problems: &mut FlagProblems) {
        if self.endpoint_access == EndpointAccess::Public {
            let text = format!("has no effect with {ENDPOINT_ACCESS} Public");
            if self.private_access.nat_subnet.is_some() {
                problems.add(NAT_SUBNET, text.clone());
            }
            if !self.private_access.additional_subscriptions.is_empty() {
                problems.add("--endpoint-access-private-additional-allowed-subscriptions", text);
            }
        }
        if let Some(subnet) = &self.private_access.nat_subnet {
            check_subnet(NAT_SUBNET, subnet, problems);
        }
    }

    fn check_encryption(&self, problems: &mut FlagProblems) {
        match &self.encryption_key {
            None if self.kms_secret.is_some() => {
                problems.add(KMS_SECRET, format!("has no effect without {ENCRYPTION_KEY}"));
            }
            Some(key) if key.cloud != self.cloud => problems
                .add(ENCRYPTION_KEY, format!("is in {}, and --cloud is {}", key.cloud, self.cloud)),
            _ => {}
        }
    }

    /// HyperShift's operator rejects a HostedCluster whose networks overlap, after Azure has its resources.
    fn check_ranges(&self, problems: &mut FlagProblems) {
        let of_flag = |flag: &'static str, ranges: &'_ [IpRange]| {
            ranges.iter().map(move |range| (flag, range.clone())).collect::<Vec<_>>()
        };
        let ranges = [
            of_flag("--cluster-cidr", &self.cluster_ranges),
            of_flag("--service-cidr", &self.service_ranges),
        ]
        .concat();
        for (position, (flag, range)) in ranges.iter().enumerate() {
            let overlapping = ranges[..position].iter().find(|(_, it)| it.overlaps(range));
            if let Some((other_flag, other)) = overlapping {
                let (range, other) = (range.as_str(), other.as_str());
                problems.add(flag, format!("`{range}` overlaps `{other}` of {other_flag}"));
            }
        }
    }

    fn check_node_pools(&self, problems: &mut FlagProblems) {
        let pools = &self.node_pools;
        if pools.zone.is_some() && !pools.zones.is_empty() {
            problems.add("--availability-zone", "excludes --availability-zones");
        }
        let mut zones = pools.zones.clone();
        zones.sort_unstable();
        zones.dedup();
        if zones.len() < pools.zones.len() {
            problems.add("--availability-zones", "names a zone twice");
        }
        if pools.disk_size < MIN_DISK_SIZE {
            problems.add("--root-disk-size", format!("must be at least {MIN_DISK_SIZE} GiB"));
        }
        if let Some(subnet) = &pools.subnet {
            check_subnet("--nodepool-subnet-id", subnet, problems);
        }
        if let Some(set) = &pools.disk_encryption_set
            && !is_group_resource(set, "Microsoft.Compute/diskEncryptionSets")
        {
            problems.add(
                "--disk-encryption-set-id",
                format!("`{set}` is not the id of a disk encryption set"),
            );
        }
        pools.marketplace.check(problems);
        let diagnostics = &pools.diagnostics;
        let is_user_managed = diagnostics.storage == Some(DiagnosticsStorage::UserManaged);
        if diagnostics.account_uri.is_some() && !is_user_managed {
            problems.add(
                "--diagnostics-storage-account-uri",
                "has no effect without --diagnostics-storage-account-type UserManaged",
            );
        }
        if diagnostics.account_uri.is_none() && is_user_managed {
            problems.add(
                "--diagnostics-storage-account-uri",
                "is missing; --diagnostics-storage-account-type UserManaged needs it",
            );
        }
    }

    /// The domain of external DNS must not contain the cluster's own domain, whose private DNS zone would hide
    /// the names of the cluster's applications.
    fn check_external_dns(&self, base_domain: &str, problems: &mut FlagProblems) {
        let Some(domain) = &self.external_dns_domain else { return };
        let own = format!("{}.{base_domain}", self.name);
        if own == domain.as_str() || own.ends_with(&format!(".{domain}")) {
            problems.add(
                EXTERNAL_DNS,
                format!("must be neither `{own}` nor a parent of it; give a domain of its own"),
            );
        }
    }
}

/// The smallest root disk that HyperShift's API accepts, in GiB.
const MIN_DISK_SIZE: u32 = 16;

fn check_subnet(flag: &'static str, id: &ArmResourceId, problems: &mut FlagProblems) {
    if !is_group_resource(id, "Microsoft.Network/virtualNetworks/subnets") {
        problems.add(
            flag,
            format!("`{id}` is not the id of a Microsoft.Network/virtualNetworks/subnets"),
        );
    }
}

/// Whether the id is that of a resource of this type in a resource group.
fn is_group_resource(id: &ArmResourceId, resource_type: &str) -> bool {
    id.resource_group().is_some() && id.has_type(resource_type)
}

impl MarketplaceOptions {
    fn check(&self, problems: &mut FlagProblems) {
        let flags = [
            ("--marketplace-publisher", &self.publisher),
            ("--marketplace-offer", &self.offer),
            ("--marketplace-sku", &self.sku),
            ("--marketplace-version", &self.version),
        ];
        if flags.iter().all(|(_, value)| value.is_none()) {
            return;
        }
        for (flag, _) in flags.iter().filter(|(_, value)| value.is_none()) {
            problems.add(flag, "is missing; give all four flags of a marketplace image, or none");
        }
    }

    fn image(&self) -> Option<MarketplaceImage> {
        Some(MarketplaceImage {
            publisher: self.publisher.clone()?,
            offer: self.offer.clone()?,
            sku: self.sku.clone()?,
            version: self.version.clone()?,
        })
    }
}

impl HostedClusterParameters {
    /// Checks the flags with each other and with the infrastructure.
    ///
    /// # Errors
    ///
    /// [`FlagProblems`] names every flag with a problem.
    pub fn new(
        options: ClusterOptions,
        account: ClusterAccount,
        infra: InfraOutput,
        identities: ClusterIdentities,
    ) -> Result<Self, FlagProblems> {
        let mut problems = options.check().err().unwrap_or_default();
        check_infra(&options, &infra, &mut problems);
        let identities = complete_identities(identities, &mut problems);
        let private_link = private_link(&options, &infra, identities.as_ref(), &mut problems);
        let encryption = encryption(&options, identities.as_ref(), &mut problems);
        let is_managed = matches!(identities, Some(CompleteIdentities::Managed { .. }));
        if is_managed && options.oauth_publishing == OAuthPublishing::LoadBalancer {
            problems.add(
                "--oauth-publishing-strategy",
                "must be Route for a cluster with managed identities",
            );
        }
        problems.clone().into_result()?;
        let (Some(identities), Some(encryption)) = (identities, encryption) else {
            return Err(problems);
        };
        let pools = &options.node_pools;
        let zones = match pools.zones.as_slice() {
            [] => NodePoolZones::Single(pools.zone),
            zones => NodePoolZones::Each(zones.to_vec()),
        };
        let image = pools.marketplace.image();
        Ok(Self { options, account, infra, identities, private_link, encryption, zones, image })
    }
}

/// Flags that describe the infrastructure must agree with it.
fn check_infra(options: &ClusterOptions, infra: &InfraOutput, problems: &mut FlagProblems) {
    let differs = |found: &str| format!("differs from the infrastructure, which has `{found}`");
    if options.infra_id.as_ref().is_some_and(|id| *id != infra.infra_id) {
        problems.add("--infra-id", differs(infra.infra_id.as_str()));
    }
    if options.base_domain.as_ref().is_some_and(|domain| *domain != infra.base_domain) {
        problems.add("--base-domain", differs(infra.base_domain.as_str()));
    }
    if options.location.as_ref().is_some_and(|location| *location != infra.location) {
        problems.add("--location", differs(&infra.location));
    }
    if options.base_domain.is_none() {
        options.check_external_dns(infra.base_domain.as_str(), problems);
    }
}

fn complete_identities(
    identities: ClusterIdentities,
    problems: &mut FlagProblems,
) -> Option<CompleteIdentities> {
    match identities {
        ClusterIdentities::Workload(identities) => Some(CompleteIdentities::Workload(identities)),
        ClusterIdentities::Managed { control_plane, data_plane: Some(data_plane) } => {
            Some(CompleteIdentities::Managed { control_plane, data_plane })
        }
        ClusterIdentities::Managed { data_plane: None, .. } => {
            problems.add(
                "--data-plane-identities-file",
                "is missing; a cluster with managed identities needs it",
            );
            None
        }
    }
}

fn private_link(
    options: &ClusterOptions,
    infra: &InfraOutput,
    identities: Option<&CompleteIdentities>,
    problems: &mut FlagProblems,
) -> Option<PrivateLink> {
    if options.endpoint_access == EndpointAccess::Public {
        return None;
    }
    let private = &options.private_access;
    let nat_subnet = private.nat_subnet.clone().or_else(|| infra.nat_subnet.clone());
    let additional_subscriptions = private.additional_subscriptions.clone();
    if nat_subnet.is_none() {
        problems.add(
            NAT_SUBNET,
            format!(
                "is missing; {ENDPOINT_ACCESS} {} needs a subnet in the virtual network of the management cluster, with network policies for private link services disabled",
                options.endpoint_access
            ),
        );
    }
    if let Some(CompleteIdentities::Workload(identities)) = identities
        && !identities.0.contains_key(&Component::ControlPlaneOperator)
    {
        problems.add(
            "--workload-identities-file",
            "has no `controlPlaneOperator`, which creates the private link; create it with `lanyard create iam azure`",
        );
    }
    Some(PrivateLink { nat_subnet: nat_subnet?, additional_subscriptions })
}

fn encryption(
    options: &ClusterOptions,
    identities: Option<&CompleteIdentities>,
    problems: &mut FlagProblems,
) -> Option<SecretEncryption> {
    let Some(key) = options.encryption_key.clone() else {
        return Some(SecretEncryption::GeneratedKey);
    };
    let identity = match identities? {
        CompleteIdentities::Managed { .. } => {
            let secret = options.kms_secret.clone();
            if secret.is_none() {
                problems.add(
                    KMS_SECRET,
                    format!(
                        "is missing; {ENCRYPTION_KEY} needs the vault secret with the credential of the identity that uses the key"
                    ),
                );
            }
            KmsIdentity::Managed(secret?)
        }
        CompleteIdentities::Workload(identities) => {
            if options.kms_secret.is_some() {
                problems.add(KMS_SECRET, "is only for clusters with managed identities");
            }
            let client = identities.0.get(&Component::Kms).copied();
            if client.is_none() {
                problems.add(
                    "--workload-identities-file",
                    format!(
                        "has no `kmsClientID`, which {ENCRYPTION_KEY} needs; create it with `lanyard create iam azure --enable-kms`"
                    ),
                );
            }
            KmsIdentity::Workload(client?)
        }
    };
    Some(SecretEncryption::Vault { key, identity })
}
