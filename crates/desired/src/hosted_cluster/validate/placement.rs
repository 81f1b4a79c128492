//! `spec.platform.azure` without the identities: the resource ids and their consistency.

use std::collections::BTreeMap;

use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::AzurePlatform;
use lanyard_vocabulary::{ArmResourceId, Cloud};

use super::checker::FieldChecker;
use super::schema::{cloud_or_default, invalid_subnet_id_names, resource_group_or_default};
use super::{ClusterTenant, LoadBalancerHealthProbe, azure_field};
use crate::hosted_cluster::AzurePlacement;

/// Checks every field before returning, so that no problem hides another. The schema rules report
/// missing fields.
///
/// Values that only some objects need are checked with `partial`: its errors do not reject the
/// cluster.
pub(super) fn check_placement(
    checker: &mut FieldChecker,
    partial: &mut FieldChecker,
    azure: &AzurePlatform,
    annotations: &BTreeMap<&'static str, String>,
) -> Option<AzurePlacement> {
    let cloud = check_cloud(checker, azure);
    let location = check_location(checker, azure);
    let resource_group = check_resource_group(checker, azure);
    let vnet = check_network_id(checker, partial, VNET, azure.vnet_id.as_ref());
    let subnet = check_subnet_id(checker, azure);
    let subscription = check_identifier(checker, "subscriptionID", azure.subscription_id.as_ref());
    let security_group =
        check_network_id(checker, partial, SECURITY_GROUP, azure.security_group_id.as_ref());
    let tenant = check_identifier(checker, "tenantID", azure.tenant_id.as_ref()).map(ClusterTenant);
    let registry_identity = registry_identity(azure);
    let health_probe = check_health_probe(partial, annotations);
    let placement = AzurePlacement {
        cloud: cloud?,
        location: location?,
        tenant: tenant?,
        subscription: subscription?,
        resource_group,
        vnet,
        subnet: subnet?,
        security_group,
        registry_identity,
        health_probe,
    };
    lint_consistency(checker, &placement);
    Some(placement)
}

fn check_cloud(checker: &mut FieldChecker, azure: &AzurePlatform) -> Option<Cloud> {
    let field = azure_field("cloud");
    let cloud: Cloud = checker.check_parsed(&field, cloud_or_default(azure))?;
    if cloud.cluster_identity_type().is_none() {
        checker.problems.lint(
            field,
            format!("Cluster API Provider Azure has no cloud type for `{cloud}`; no AzureClusterIdentity is created"),
            "use the public, the US Government or the China cloud, or provide the object yourself",
        );
    }
    if cloud != Cloud::Public && cloud.provider_name().is_none() {
        checker.problems.lint(
            azure_field("cloud"),
            format!("the upstream Key Vault provider does not know `{cloud}`, so the classes name no cloud"),
            format!("start the Key Vault provider of the nodes for this cloud, such as `lanyard node --cloud-name={cloud}`"),
        );
    }
    if cloud.endpoints().is_none() {
        checker.problems.lint(
            azure_field("cloud"),
            format!("the endpoints of `{cloud}` differ by installation, and the classes name no file with them"),
            "start the Key Vault provider with the endpoints of the installation",
        );
    }
    Some(cloud)
}

fn check_location(checker: &mut FieldChecker, azure: &AzurePlatform) -> Option<String> {
    let field = azure_field("location");
    let text = azure.location.as_ref()?;
    let short = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if text.is_empty() || !text.chars().all(short) {
        let name: String = text.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
        checker.problems.lint(
            field,
            format!("`{text}` is not the short name of a region"),
            format!(
                "write the name as `az account list-locations` lists it, such as `{}`",
                if name.is_empty() { "westeurope" } else { &name }
            ),
        );
    }
    Some(text.clone())
}

fn check_resource_group(checker: &mut FieldChecker, azure: &AzurePlatform) -> String {
    if azure.resource_group.is_none() && azure.unknown.contains_key("resourceGroupName") {
        checker.problems.lint(
            azure_field("resourceGroupName"),
            "the field is not in the API, so the group is `default`",
            "rename it to `resourceGroup`",
        );
    }
    resource_group_or_default(azure).to_owned()
}

/// The schema's patterns are not anchored, so they accept nearly any text.
fn check_subnet_id(checker: &mut FieldChecker, azure: &AzurePlatform) -> Option<ArmResourceId> {
    let field = azure_field("subnetID");
    let text = azure.subnet_id.as_ref()?;
    let id: ArmResourceId = checker.check_parsed(&field, text)?;
    if checker.has_error(&field) {
        return None;
    }
    for (part, what) in invalid_subnet_id_names(text) {
        checker.problems.lint(
            &*field,
            format!(
                "`{part}` is not the name of a {what}; the API accepts it, but Azure rejects it"
            ),
            "copy the id from `az network vnet subnet show`",
        );
    }
    checker.lint_non_uuid(&field, id.subscription());
    Some(id)
}

/// A field with the id of a network resource, and the resource type below `Microsoft.Network`.
type NetworkIdField = (&'static str, &'static str);

const VNET: NetworkIdField = ("vnetID", "virtualNetworks");
const SECURITY_GROUP: NetworkIdField = ("securityGroupID", "networkSecurityGroups");

/// Checks an id of a network resource. The schema checks only its length, so an unusable id is no
/// error of the cluster, but of the objects that contain it.
fn check_network_id(
    checker: &mut FieldChecker,
    partial: &mut FieldChecker,
    (name, kind): NetworkIdField,
    value: Option<&String>,
) -> Option<ArmResourceId> {
    let field = azure_field(name);
    let text = value?;
    if checker.has_error(&field) {
        return None;
    }
    let id: ArmResourceId = partial.check_parsed(&field, text)?;
    let expected = format!("Microsoft.Network/{kind}");
    if !id.has_type(&expected) || id.resource_group().is_none() {
        let form = format!(
            "/subscriptions/{{subscription}}/resourceGroups/{{group}}/providers/{expected}/{{name}}"
        );
        partial.problems.error_with_hint(
            &*field,
            format!("`{text}` is not the id of a {expected}"),
            format!("write the id in the form `{form}`"),
        );
        return None;
    }
    checker.lint_non_uuid(&field, id.subscription());
    Some(id)
}

fn check_identifier<T: std::str::FromStr<Err: std::fmt::Display>>(
    checker: &mut FieldChecker,
    name: &str,
    value: Option<&String>,
) -> Option<T> {
    let field = azure_field(name);
    let text = value?;
    let parsed = checker.check_parsed(&field, text)?;
    checker.lint_non_uuid(&field, text);
    Some(parsed)
}

/// Returns the identity that pulls images. It is part of the workers' cloud configuration; HyperShift
/// also assigns it to the machines, whose templates lanyard does not render. The schema accepts only
/// valid ids.
fn registry_identity(azure: &AzurePlatform) -> Option<ArmResourceId> {
    let credentials = azure.container_registry.as_ref()?.credentials.as_ref()?;
    credentials.managed_identity.as_ref()?.resource_id.as_ref()?.parse().ok()
}

/// An empty annotation is a value, and not a valid one.
fn check_health_probe(
    checker: &mut FieldChecker,
    annotations: &BTreeMap<&'static str, String>,
) -> Option<LoadBalancerHealthProbe> {
    let value = |key| annotations.get(key).map(String::as_str);
    let key = HostedCluster::HEALTH_PROBE_MODE_ANNOTATION;
    match value(key).unwrap_or("shared") {
        "shared" => {}
        "servicenodeport" => return Some(LoadBalancerHealthProbe::ServiceNodePort),
        text => {
            checker.problems.error_with_hint(
                format!("metadata.annotations[{key}]"),
                format!("invalid value for annotation {key}: {text} (valid values: shared, servicenodeport)"),
                "write `shared` or `servicenodeport`, or remove the annotation",
            );
            return None;
        }
    }
    // The configuration omits an empty path.
    let path = value(HostedCluster::HEALTH_PROBE_PATH_ANNOTATION).filter(|path| !path.is_empty());
    let path = path.map(str::to_owned);
    let port = match value(HostedCluster::HEALTH_PROBE_PORT_ANNOTATION) {
        Some(text) => Some(check_probe_port(checker, text)?),
        None => None,
    };
    Some(match (path, port) {
        (None, None) => LoadBalancerHealthProbe::Shared,
        (path, port) => LoadBalancerHealthProbe::SharedAt { path, port },
    })
}

fn check_probe_port(checker: &mut FieldChecker, text: &str) -> Option<u16> {
    let number = text.parse::<i64>();
    let port = number.iter().find_map(|number| u16::try_from(*number).ok()).filter(|p| *p > 0);
    if port.is_none() {
        let key = HostedCluster::HEALTH_PROBE_PORT_ANNOTATION;
        let rule = if number.is_ok() { "between 1 and 65535" } else { "a valid port number" };
        checker.problems.error(
            format!("metadata.annotations[{key}]"),
            format!("invalid value for annotation {key}: {text} (must be {rule})"),
        );
    }
    port
}

/// Lints ids that are valid individually but inconsistent with each other, which a schema cannot
/// express.
fn lint_consistency(checker: &mut FieldChecker, placement: &AzurePlacement) {
    if let Some(vnet) = placement.vnet.as_ref().filter(|vnet| !vnet.contains(&placement.subnet)) {
        checker.problems.lint(
            azure_field("subnetID"),
            format!("the subnet is not in the virtual network `{}`", vnet.name()),
            "use a subnet of `vnetID`, or the virtual network of the subnet",
        );
    }
    let ids = [
        ("vnetID", placement.vnet.as_ref()),
        ("subnetID", Some(&placement.subnet)),
        ("securityGroupID", placement.security_group.as_ref()),
    ];
    for (name, id) in ids.into_iter().filter_map(|(name, id)| Some((name, id?))) {
        if !id.subscription().eq_ignore_ascii_case(placement.subscription.as_str()) {
            checker.problems.lint(
                azure_field(name),
                format!(
                    "it is in the subscription `{}` and not in `subscriptionID`",
                    id.subscription()
                ),
                "the network of a cluster is expected in the cluster's subscription",
            );
        }
    }
}
