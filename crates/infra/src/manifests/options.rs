//! The flags of `create cluster azure`, each valid by itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use lanyard_vocabulary::{
    ArmResourceId, Cloud, EntraTenantId, InfraId, SecretName, SubscriptionId,
};

use super::choices::{
    AvailabilityPolicy, AvailabilityZone, DiagnosticsStorage, EndpointAccess, HostEncryption,
    ImageGeneration, NetworkType, NodeArchitecture, NodeUpgradeType, OAuthPublishing,
};
use crate::cluster_identifiers::{BaseDomain, ClusterName, is_dns_label};
use crate::encryption_key_id::EncryptionKeyId;

/// The flags of `create cluster azure` that the objects of the cluster depend on.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// `--name`.
    pub name: ClusterName,
    /// `--namespace`.
    pub namespace: KubernetesName,
    /// `--cloud`.
    pub cloud: Cloud,
    /// `--infra-id`; must be the one of the infrastructure.
    pub infra_id: Option<InfraId>,
    /// `--base-domain`; must be the one of the infrastructure.
    pub base_domain: Option<BaseDomain>,
    /// `--location`; must be the one of the infrastructure.
    pub location: Option<String>,
    /// `--external-dns-domain`.
    pub external_dns_domain: Option<BaseDomain>,
    /// `--release-image`.
    pub release_image: String,
    /// `--annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `--labels`.
    pub labels: BTreeMap<String, String>,
    /// `--control-plane-availability-policy`.
    pub control_plane_availability: AvailabilityPolicy,
    /// `--infra-availability-policy`.
    pub infra_availability: Option<AvailabilityPolicy>,
    /// `--etcd-storage-class`.
    pub etcd_storage_class: Option<String>,
    /// `--network-type`.
    pub network_type: NetworkType,
    /// `--cluster-cidr`.
    pub cluster_ranges: Vec<IpRange>,
    /// `--service-cidr`.
    pub service_ranges: Vec<IpRange>,
    /// `--fips`.
    pub fips: bool,
    /// `--disable-cluster-capabilities`.
    pub disabled_capabilities: Vec<String>,
    /// `--oidc-issuer-url`.
    pub issuer_url: Option<String>,
    /// Whether `--sa-token-issuer-private-key-path` is given.
    pub has_signing_key: bool,
    /// `--encryption-key-id`.
    pub encryption_key: Option<EncryptionKeyId>,
    /// `--kms-credentials-secret-name`.
    pub kms_secret: Option<SecretName>,
    /// `--endpoint-access`.
    pub endpoint_access: EndpointAccess,
    /// The flags of a private link.
    pub private_access: PrivateAccessOptions,
    /// `--oauth-publishing-strategy`.
    pub oauth_publishing: OAuthPublishing,
    /// The flags of the NodePools.
    pub node_pools: NodePoolOptions,
}

/// The Azure account of the cluster's resources. It is known after the sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccount {
    /// The subscription of the cluster's resources.
    pub subscription: SubscriptionId,
    /// The tenant of the subscription.
    pub tenant: EntraTenantId,
}

/// The flags of a private link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateAccessOptions {
    /// `--endpoint-access-private-nat-subnet-id`.
    pub nat_subnet: Option<ArmResourceId>,
    /// `--endpoint-access-private-additional-allowed-subscriptions`.
    pub additional_subscriptions: Vec<SubscriptionId>,
}

/// The flags of the NodePools.
#[derive(Debug, Clone)]
pub struct NodePoolOptions {
    /// `--node-pool-replicas`; no NodePool is created if it is negative.
    pub replicas: i32,
    /// `--arch`.
    pub architecture: NodeArchitecture,
    /// `--instance-type`.
    pub instance_type: Option<String>,
    /// `--root-disk-size`, in GiB.
    pub disk_size: u32,
    /// `--disk-storage-account-type`.
    pub disk_storage: String,
    /// `--enable-ephemeral-disk`.
    pub ephemeral_disk: bool,
    /// `--disk-encryption-set-id`.
    pub disk_encryption_set: Option<ArmResourceId>,
    /// `--encryption-at-host`.
    pub host_encryption: Option<HostEncryption>,
    /// `--nodepool-subnet-id`.
    pub subnet: Option<ArmResourceId>,
    /// `--availability-zones`: one NodePool for each.
    pub zones: Vec<AvailabilityZone>,
    /// `--availability-zone`: the zone of the only NodePool.
    pub zone: Option<AvailabilityZone>,
    /// `--image-generation`.
    pub image_generation: Option<ImageGeneration>,
    /// The flags of a marketplace image.
    pub marketplace: MarketplaceOptions,
    /// The flags of the boot diagnostics.
    pub diagnostics: DiagnosticsOptions,
    /// `--node-upgrade-type`.
    pub upgrade_type: NodeUpgradeType,
    /// `--auto-repair`.
    pub auto_repair: bool,
}

/// The flags of a marketplace image: all or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarketplaceOptions {
    /// `--marketplace-publisher`.
    pub publisher: Option<String>,
    /// `--marketplace-offer`.
    pub offer: Option<String>,
    /// `--marketplace-sku`.
    pub sku: Option<String>,
    /// `--marketplace-version`.
    pub version: Option<String>,
}

/// The flags of the boot diagnostics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiagnosticsOptions {
    /// `--diagnostics-storage-account-type`.
    pub storage: Option<DiagnosticsStorage>,
    /// `--diagnostics-storage-account-uri`.
    pub account_uri: Option<String>,
}

/// The name of a namespace: a DNS label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesName(String);

/// A text is not the name of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a namespace: use 1 to 63 lower-case letters, digits and `-`, with a letter or digit at both ends"
)]
pub struct ParseKubernetesNameError(String);

impl KubernetesName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

lanyard_vocabulary::display_text!(KubernetesName, 0);

impl FromStr for KubernetesName {
    type Err = ParseKubernetesNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_dns_label(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseKubernetesNameError(text.to_owned()))
        }
    }
}

/// A range of IP addresses in CIDR notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpRange {
    text: String,
    address: IpAddr,
    prefix_length: u8,
}

/// A text is not a range of IP addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of IP addresses, such as 10.132.0.0/14")]
pub struct ParseIpRangeError(String);

impl IpRange {
    /// The range as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether an address is in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        let bits = |address: IpAddr| match address {
            // The bits of both kinds begin at the highest one.
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let ignored = 128 - u32::from(self.prefix_length.min(other.prefix_length));
        let network = |range: &Self| bits(range.address).checked_shr(ignored).unwrap_or_default();
        self.address.is_ipv4() == other.address.is_ipv4() && network(self) == network(other)
    }
}

impl FromStr for IpRange {
    type Err = ParseIpRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            let address: IpAddr = address.parse().ok()?;
            let bits: u8 = bits.parse().ok()?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            (bits <= longest).then_some((address, bits))
        });
        match parsed {
            Some((address, prefix_length)) => {
                Ok(Self { text: text.to_owned(), address, prefix_length })
            }
            None => Err(ParseIpRangeError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_if_one_contains_the_other() {
        for (one, other, expected) in [
            ("10.132.0.0/14", "10.132.0.0/14", true),
            ("10.132.0.0/14", "10.133.7.0/24", true),
            ("10.132.0.0/14", "10.136.0.0/14", false),
            ("0.0.0.0/0", "172.31.0.0/16", true),
            ("fd01::/48", "fd01:0:0:1::/64", true),
            ("fd01::/48", "fd02::/112", false),
            ("::/0", "10.0.0.0/8", false),
        ] {
            let (one, other): (IpRange, IpRange) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(one.overlaps(&other), expected, "{one:?} {other:?}");
            assert_eq!(other.overlaps(&one), expected, "{other:?} {one:?}");
        }
    }
}
