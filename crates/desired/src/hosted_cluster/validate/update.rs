//! The rules about change: what the API server refuses when a HostedCluster is replaced.

use lanyard_api::HostedCluster;
use lanyard_api::definitions::{DEFAULT_ISSUER_URL, message};
use lanyard_api::hosted_cluster::{AzureKms, AzurePlatform, AzurePrivate, HostedClusterSpec};

use super::checker::Checker;
use super::schema::resource_group_of;
use super::{AZURE, path};
use crate::problem::Problems;

const KMS: &str = "spec.secretEncryption.kms.azure";

/// Checks the change from `old` to `new`, and only the change: [`super::validate_schema`] checks
/// `new`. Defaults are filled in on both sides before they are compared. A field that only one of
/// them has did not change, unless a rule about its presence says otherwise.
pub fn validate_update(old: &HostedCluster, new: &HostedCluster) -> Problems {
    let mut checker = Checker::default();
    let (old, new) = (old.spec.clone().unwrap_or_default(), new.spec.clone().unwrap_or_default());
    cluster(&mut checker, &old, &new);
    if let (Some(old), Some(new)) = (azure(&old), azure(&new)) {
        platform(&mut checker, old, new);
    }
    checker.rule(
        "spec",
        old.secret_encryption.is_none() || new.secret_encryption.is_some(),
        message::ENCRYPTION_REMOVED,
    );
    if let (Some(old), Some(new)) = (kms(&old), kms(&new)) {
        encryption(&mut checker, old, new);
    }
    checker.problems
}

fn azure(spec: &HostedClusterSpec) -> Option<&AzurePlatform> {
    spec.platform.as_ref()?.azure.as_ref()
}

fn kms(spec: &HostedClusterSpec) -> Option<&AzureKms> {
    spec.secret_encryption.as_ref()?.kms.as_ref()?.azure.as_ref()
}

fn cluster(checker: &mut Checker, old: &HostedClusterSpec, new: &HostedClusterSpec) {
    let ids = [
        ("spec.infraID", &old.infra_id, &new.infra_id, message::INFRA_ID_IMMUTABLE),
        ("spec.clusterID", &old.cluster_id, &new.cluster_id, message::CLUSTER_ID_IMMUTABLE),
    ];
    for (field, old, new, message) in ids {
        let was_empty = old.as_deref() == Some("");
        checker.rule(field, was_empty || is_same(old.as_ref(), new.as_ref()), message);
    }
    let issuer = |spec: &HostedClusterSpec| {
        spec.issuer_url.clone().unwrap_or_else(|| DEFAULT_ISSUER_URL.to_owned())
    };
    let same = issuer(old) == issuer(new);
    checker.rule("spec.issuerURL", same, message::ISSUER_URL_IMMUTABLE);
    let platform = new.platform.as_ref().and_then(|platform| platform.platform_type.as_deref());
    let holds = platform == Some("IBMCloud") || old.services == new.services;
    checker.rule("spec", holds, message::SERVICES_IMMUTABLE);
}

/// Whether a value that is there before and after is the same.
fn is_same<T: PartialEq>(old: Option<T>, new: Option<T>) -> bool {
    old.is_none() || new.is_none() || old == new
}

fn platform(checker: &mut Checker, old: &AzurePlatform, new: &AzurePlatform) {
    let same_group = resource_group_of(old) == resource_group_of(new);
    checker.rule(&path("resourceGroup"), same_group, message::RESOURCE_GROUP_IMMUTABLE);
    let immutable = [
        ("location", &old.location, &new.location, message::LOCATION_IMMUTABLE),
        ("vnetID", &old.vnet_id, &new.vnet_id, message::VNET_IMMUTABLE),
        ("subnetID", &old.subnet_id, &new.subnet_id, message::SUBNET_IMMUTABLE),
        (
            "subscriptionID",
            &old.subscription_id,
            &new.subscription_id,
            message::SUBSCRIPTION_IMMUTABLE,
        ),
        (
            "securityGroupID",
            &old.security_group_id,
            &new.security_group_id,
            message::SECURITY_GROUP_IMMUTABLE,
        ),
    ];
    for (field, old, new, message) in immutable {
        checker.rule(&path(field), is_same(old.as_ref(), new.as_ref()), message);
    }
    topology(checker, old, new);
}

fn topology(checker: &mut Checker, old: &AzurePlatform, new: &AzurePlatform) {
    checker.rule(AZURE, old.private.is_some() == new.private.is_some(), message::PRIVATE_PRESENCE);
    checker.rule(
        AZURE,
        old.topology.is_none() || new.topology.is_some(),
        message::TOPOLOGY_REMOVED,
    );
    if let (Some(old), Some(new)) = (&old.topology, &new.topology) {
        checker.rule(AZURE, (old == "Public") == (new == "Public"), message::TOPOLOGY_TRANSITION);
    }
    if let (Some(old), Some(new)) = (&old.private, &new.private) {
        private(checker, old, new);
    }
}

fn private(checker: &mut Checker, old: &AzurePrivate, new: &AzurePrivate) {
    let field = path("private");
    let same = is_same(old.private_type.as_ref(), new.private_type.as_ref());
    checker.rule(&format!("{field}.type"), same, message::PRIVATE_TYPE_IMMUTABLE);
    let subnet = |private: &AzurePrivate| private.private_link.as_ref()?.nat_subnet_id.clone();
    let same = is_same(subnet(old), subnet(new));
    checker.rule(&format!("{field}.privateLink.natSubnetID"), same, message::NAT_SUBNET_IMMUTABLE);
    let network = |private: &AzurePrivate| private.swift.as_ref()?.pod_network_instance.clone();
    let same = is_same(network(old), network(new));
    let field = format!("{field}.swift.podNetworkInstance");
    checker.rule(&field, same, message::POD_NETWORK_IMMUTABLE);
}

fn encryption(checker: &mut Checker, old: &AzureKms, new: &AzureKms) {
    checker.rule(
        KMS,
        old.kms.is_some() == new.kms.is_some()
            && old.workload_identity.is_some() == new.workload_identity.is_some(),
        message::KMS_MODE_IMMUTABLE,
    );
    let kind = |kms: &AzureKms| kms.key_vault_type.clone().unwrap_or_else(|| "KeyVault".to_owned());
    checker.rule(KMS, kind(old) == kind(new), message::KEY_VAULT_TYPE_IMMUTABLE);
}
