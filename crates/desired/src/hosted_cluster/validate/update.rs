//! The rules about change: what the API server refuses when a HostedCluster is replaced.

use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::{AzureKms, AzurePlatform, AzurePrivate, HostedClusterSpec};

use super::schema::Checker;
use super::{DEFAULT_ISSUER, DEFAULT_RESOURCE_GROUP};
use crate::problem::Problems;

const AZURE: &str = "spec.platform.azure";
const KMS: &str = "spec.secretEncryption.kms.azure";

/// Checks the change from `old` to `new`, and only the change: [`super::validate`] checks `new`.
/// Defaults are filled in on both sides before they are compared.
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
        "secretEncryption cannot be removed once configured",
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
    for (name, old, new) in
        [("clusterID", &old.cluster_id, &new.cluster_id), ("infraID", &old.infra_id, &new.infra_id)]
    {
        let was = old.as_deref().unwrap_or_default();
        let unset = was.is_empty() || new.is_none();
        let message = format!("{name} is immutable");
        checker.rule(&format!("spec.{name}"), unset || new == old, &message);
    }
    let issuer = |spec: &HostedClusterSpec| {
        spec.issuer_url.clone().unwrap_or_else(|| DEFAULT_ISSUER.to_owned())
    };
    checker.rule("spec.issuerURL", issuer(old) == issuer(new), "issuerURL is immutable");
    checker.rule(
        "spec",
        old.services == new.services,
        "Services is immutable. Changes might result in unpredictable and disruptive behavior.",
    );
}

fn platform(checker: &mut Checker, old: &AzurePlatform, new: &AzurePlatform) {
    let group = |azure: &AzurePlatform| {
        Some(azure.resource_group.clone().unwrap_or_else(|| DEFAULT_RESOURCE_GROUP.to_owned()))
    };
    let immutable = [
        ("location", "Location", old.location.clone(), new.location.clone()),
        ("resourceGroup", "ResourceGroupName", group(old), group(new)),
        ("vnetID", "VnetID", old.vnet_id.clone(), new.vnet_id.clone()),
        ("subnetID", "SubnetID", old.subnet_id.clone(), new.subnet_id.clone()),
        (
            "subscriptionID",
            "SubscriptionID",
            old.subscription_id.clone(),
            new.subscription_id.clone(),
        ),
        (
            "securityGroupID",
            "SecurityGroupID",
            old.security_group_id.clone(),
            new.security_group_id.clone(),
        ),
    ];
    for (field, name, old, new) in immutable {
        checker.rule(&format!("{AZURE}.{field}"), old == new, &format!("{name} is immutable"));
    }
    topology(checker, old, new);
    let kind = |azure: &AzurePlatform| {
        azure.authentication.as_ref().and_then(|config| config.authentication_type.clone())
    };
    if kind(old) != kind(new) {
        checker.problems.lint(
            format!("{AZURE}.azureAuthenticationConfig.azureAuthenticationConfigType"),
            "the API lets the kind of identities change, and a running cluster does not survive it",
            "make a new cluster for the other kind",
        );
    }
}

fn topology(checker: &mut Checker, old: &AzurePlatform, new: &AzurePlatform) {
    checker.rule(
        AZURE,
        old.private.is_some() == new.private.is_some(),
        "private cannot be added or removed after cluster creation",
    );
    checker.rule(
        AZURE,
        old.topology.is_none() || new.topology.is_some(),
        "topology cannot be removed once set",
    );
    if let (Some(old), Some(new)) = (&old.topology, &new.topology) {
        checker.rule(
            AZURE,
            (old == "Public") == (new == "Public"),
            "transitions between Public and non-Public topology are not supported",
        );
    }
    if let (Some(old), Some(new)) = (&old.private, &new.private) {
        private(checker, old, new);
    }
}

fn private(checker: &mut Checker, old: &AzurePrivate, new: &AzurePrivate) {
    let field = format!("{AZURE}.private");
    let same = old.private_type == new.private_type;
    checker.rule(&format!("{field}.type"), same, "type is immutable");
    let subnet = |private: &AzurePrivate| private.private_link.as_ref()?.nat_subnet_id.clone();
    checker.rule(
        &format!("{field}.privateLink"),
        subnet(old).is_none() || subnet(old) == subnet(new),
        "natSubnetID is immutable once set",
    );
    let network = |private: &AzurePrivate| private.swift.as_ref()?.pod_network_instance.clone();
    if let (Some(old), Some(new)) = (network(old), network(new)) {
        let field = format!("{field}.swift.podNetworkInstance");
        checker.rule(&field, old == new, "podNetworkInstance is immutable");
    }
}

fn encryption(checker: &mut Checker, old: &AzureKms, new: &AzureKms) {
    checker.rule(
        KMS,
        old.kms.is_some() == new.kms.is_some()
            && old.workload_identity.is_some() == new.workload_identity.is_some(),
        "the KMS authentication mode is immutable once set",
    );
    let kind = |kms: &AzureKms| kms.key_vault_type.clone().unwrap_or_else(|| "KeyVault".to_owned());
    checker.rule(KMS, kind(old) == kind(new), "keyVaultType is immutable");
}
