//! The transition rules: changes that the API server rejects when a HostedCluster is updated.

use lanyard_api::HostedCluster;
use lanyard_api::crd_definitions::{DEFAULT_ISSUER_URL, validation_messages};
use lanyard_api::hosted_cluster::{
    AzureKmsSpec, AzurePlatform, AzurePrivateSpec, HostedClusterSpec, PublishedService,
};

use super::checker::FieldChecker;
use super::schema::resource_group_or_default;
use super::{AZURE, azure_field};
use crate::problem::ValidationProblems;

const KMS_FIELD: &str = "spec.secretEncryption.kms.azure";

/// Checks only the change from `old` to `new`; [`super::validate_schema`] checks `new` itself.
/// Defaults are applied to both before the comparison. A field that only one of them has does not
/// count as changed, unless a rule about its presence says otherwise.
pub fn validate_update(old: &HostedCluster, new: &HostedCluster) -> ValidationProblems {
    let mut checker = FieldChecker::default();
    let (old, new) = (old.spec.clone().unwrap_or_default(), new.spec.clone().unwrap_or_default());
    check_cluster_update(&mut checker, &old, &new);
    check_dns_update(&mut checker, &old, &new);
    check_capabilities_update(&mut checker, &old, &new);
    if let (Some(old), Some(new)) = (azure_platform(&old), azure_platform(&new)) {
        check_platform_update(&mut checker, old, new);
    }
    checker.check_rule(
        "spec",
        old.secret_encryption.is_none() || new.secret_encryption.is_some(),
        validation_messages::ENCRYPTION_REMOVED,
    );
    if let (Some(old), Some(new)) = (azure_kms(&old), azure_kms(&new)) {
        check_encryption_update(&mut checker, old, new);
    }
    checker.problems
}

fn azure_platform(spec: &HostedClusterSpec) -> Option<&AzurePlatform> {
    spec.platform.as_ref()?.azure.as_ref()
}

fn azure_kms(spec: &HostedClusterSpec) -> Option<&AzureKmsSpec> {
    spec.secret_encryption.as_ref()?.kms.as_ref()?.azure.as_ref()
}

fn check_cluster_update(
    checker: &mut FieldChecker,
    old: &HostedClusterSpec,
    new: &HostedClusterSpec,
) {
    let ids = [
        (
            "spec.infraID",
            (&old.infra_id, &new.infra_id),
            validation_messages::INFRA_ID_IMMUTABLE,
            validation_messages::INFRA_ID_REMOVED,
        ),
        (
            "spec.clusterID",
            (&old.cluster_id, &new.cluster_id),
            validation_messages::CLUSTER_ID_IMMUTABLE,
            validation_messages::CLUSTER_ID_REMOVED,
        ),
    ];
    for (field, (old, new), changed, removed) in ids {
        checker.check_rule(field, is_unchanged_or_first(old.as_ref(), new.as_ref()), changed);
        checker.check_rule(field, old.is_none() || new.is_some(), removed);
    }
    let platform = |spec: &HostedClusterSpec| spec.platform.as_ref()?.platform_type.clone();
    checker.check_rule(
        "spec.platform.type",
        is_unchanged(platform(old), platform(new)),
        validation_messages::PLATFORM_TYPE_IMMUTABLE,
    );
    let issuer = |spec: &HostedClusterSpec| {
        spec.issuer_url.clone().unwrap_or_else(|| DEFAULT_ISSUER_URL.to_owned())
    };
    let same = issuer(old) == issuer(new);
    checker.check_rule("spec.issuerURL", same, validation_messages::ISSUER_URL_IMMUTABLE);
    let platform = new.platform.as_ref().and_then(|platform| platform.platform_type.as_deref());
    let holds = platform == Some("IBMCloud") || pruned_services(old) == pruned_services(new);
    checker.check_rule("spec", holds, validation_messages::SERVICES_IMMUTABLE);
}

/// Returns the services without unknown fields, which the API server prunes.
fn pruned_services(spec: &HostedClusterSpec) -> Option<Vec<PublishedService>> {
    let mut services = spec.services.clone()?;
    for service in &mut services {
        service.unknown.clear();
        let Some(strategy) = &mut service.strategy else { continue };
        strategy.unknown.clear();
        for endpoint in [&mut strategy.load_balancer, &mut strategy.route].into_iter().flatten() {
            endpoint.unknown.clear();
        }
        if let Some(node_port) = &mut strategy.node_port {
            node_port.unknown.clear();
        }
    }
    Some(services)
}

fn check_dns_update(checker: &mut FieldChecker, old: &HostedClusterSpec, new: &HostedClusterSpec) {
    let (Some(old), Some(new)) = (&old.dns, &new.dns) else { return };
    let prefix = is_unchanged(old.base_domain_prefix.as_ref(), new.base_domain_prefix.as_ref());
    checker.check_rule(
        "spec.dns.baseDomainPrefix",
        prefix,
        validation_messages::BASE_DOMAIN_PREFIX_IMMUTABLE,
    );
    let names = [
        (
            "baseDomain",
            (&old.base_domain, &new.base_domain),
            validation_messages::BASE_DOMAIN_IMMUTABLE,
        ),
        (
            "publicZoneID",
            (&old.public_zone_id, &new.public_zone_id),
            validation_messages::PUBLIC_ZONE_IMMUTABLE,
        ),
        (
            "privateZoneID",
            (&old.private_zone_id, &new.private_zone_id),
            validation_messages::PRIVATE_ZONE_IMMUTABLE,
        ),
    ];
    for (name, (old, new), message) in names {
        let holds = is_unchanged_or_first(old.as_ref(), new.as_ref());
        checker.check_rule(&format!("spec.dns.{name}"), holds, message);
    }
}

/// The default of the field is an object without lists, so that every change is one of the object.
fn check_capabilities_update(
    checker: &mut FieldChecker,
    old: &HostedClusterSpec,
    new: &HostedClusterSpec,
) {
    let field = "spec.capabilities";
    let lists = |spec: &HostedClusterSpec| {
        let capabilities = spec.capabilities.clone().unwrap_or_default();
        (capabilities.enabled, capabilities.disabled)
    };
    let (old, new) = (lists(old), lists(new));
    checker.check_rule(field, old == new, validation_messages::CAPABILITIES_IMMUTABLE);
    let ((old_enabled, old_disabled), (new_enabled, new_disabled)) = (old, new);
    checker.check_rule(
        &format!("{field}.enabled"),
        is_unchanged(old_enabled, new_enabled),
        validation_messages::ENABLED_IMMUTABLE,
    );
    checker.check_rule(
        &format!("{field}.disabled"),
        is_unchanged(old_disabled, new_disabled),
        validation_messages::DISABLED_IMMUTABLE,
    );
}

/// Returns false only if a text that was not empty is present in both objects and differs.
fn is_unchanged_or_first(old: Option<&String>, new: Option<&String>) -> bool {
    old.is_some_and(String::is_empty) || is_unchanged(old, new)
}

/// Returns false only if the value is present in both objects and differs.
fn is_unchanged<T: PartialEq>(old: Option<T>, new: Option<T>) -> bool {
    old.is_none() || new.is_none() || old == new
}

fn check_platform_update(checker: &mut FieldChecker, old: &AzurePlatform, new: &AzurePlatform) {
    let same_group = resource_group_or_default(old) == resource_group_or_default(new);
    checker.check_rule(
        &azure_field("resourceGroup"),
        same_group,
        validation_messages::RESOURCE_GROUP_IMMUTABLE,
    );
    let immutable = [
        ("location", &old.location, &new.location, validation_messages::LOCATION_IMMUTABLE),
        ("vnetID", &old.vnet_id, &new.vnet_id, validation_messages::VNET_IMMUTABLE),
        ("subnetID", &old.subnet_id, &new.subnet_id, validation_messages::SUBNET_IMMUTABLE),
        (
            "subscriptionID",
            &old.subscription_id,
            &new.subscription_id,
            validation_messages::SUBSCRIPTION_IMMUTABLE,
        ),
        (
            "securityGroupID",
            &old.security_group_id,
            &new.security_group_id,
            validation_messages::SECURITY_GROUP_IMMUTABLE,
        ),
    ];
    for (field, old, new, message) in immutable {
        checker.check_rule(&azure_field(field), is_unchanged(old.as_ref(), new.as_ref()), message);
    }
    check_topology_update(checker, old, new);
}

fn check_topology_update(checker: &mut FieldChecker, old: &AzurePlatform, new: &AzurePlatform) {
    checker.check_rule(
        AZURE,
        old.private.is_some() == new.private.is_some(),
        validation_messages::PRIVATE_PRESENCE,
    );
    checker.check_rule(
        AZURE,
        old.topology.is_none() || new.topology.is_some(),
        validation_messages::TOPOLOGY_REMOVED,
    );
    if let (Some(old), Some(new)) = (&old.topology, &new.topology) {
        checker.check_rule(
            AZURE,
            (old == "Public") == (new == "Public"),
            validation_messages::TOPOLOGY_TRANSITION,
        );
    }
    if let (Some(old), Some(new)) = (&old.private, &new.private) {
        check_private_update(checker, old, new);
    }
}

fn check_private_update(
    checker: &mut FieldChecker,
    old: &AzurePrivateSpec,
    new: &AzurePrivateSpec,
) {
    let field = azure_field("private");
    let same = is_unchanged(old.private_type.as_ref(), new.private_type.as_ref());
    checker.check_rule(&format!("{field}.type"), same, validation_messages::PRIVATE_TYPE_IMMUTABLE);
    let subnet = |private: &AzurePrivateSpec| private.private_link.as_ref()?.nat_subnet_id.clone();
    let same = is_unchanged(subnet(old), subnet(new));
    checker.check_rule(
        &format!("{field}.privateLink.natSubnetID"),
        same,
        validation_messages::NAT_SUBNET_IMMUTABLE,
    );
    let network = |private: &AzurePrivateSpec| private.swift.as_ref()?.pod_network_instance.clone();
    let same = is_unchanged(network(old), network(new));
    let field = format!("{field}.swift.podNetworkInstance");
    checker.check_rule(&field, same, validation_messages::POD_NETWORK_IMMUTABLE);
}

fn check_encryption_update(checker: &mut FieldChecker, old: &AzureKmsSpec, new: &AzureKmsSpec) {
    checker.check_rule(
        KMS_FIELD,
        old.kms.is_some() == new.kms.is_some()
            && old.workload_identity.is_some() == new.workload_identity.is_some(),
        validation_messages::KMS_MODE_IMMUTABLE,
    );
    let kind =
        |kms: &AzureKmsSpec| kms.key_vault_type.clone().unwrap_or_else(|| "KeyVault".to_owned());
    checker.check_rule(
        KMS_FIELD,
        kind(old) == kind(new),
        validation_messages::KEY_VAULT_TYPE_IMMUTABLE,
    );
}
