//! `spec.platform.azure` without the identities: the ids that it names, and where they belong
//! together.

use std::collections::BTreeMap;

use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::AzurePlatform;
use lanyard_vocabulary::{ArmResourceId, Cloud};

use super::checker::{Checker, is_uuid};
use super::schema::{cloud_of, misnamed_parts, resource_group_of};
use super::{ClusterTenant, HealthProbe, path};
use crate::hosted_cluster::AzurePlacement;

/// Reads everything before it answers, so that no problem hides another. What is missing was said by
/// the schema.
pub(super) fn placement(
    checker: &mut Checker,
    azure: &AzurePlatform,
    annotations: BTreeMap<&'static str, String>,
) -> Option<AzurePlacement> {
    let cloud = cloud(checker, azure);
    let location = location(checker, azure);
    let resource_group = resource_group(checker, azure);
    let vnet = network_id(checker, "vnetID", azure.vnet_id.as_ref(), "virtualNetworks");
    let subnet = subnet(checker, azure);
    let subscription = identifier(checker, "subscriptionID", azure.subscription_id.as_ref());
    let security_group = network_id(
        checker,
        "securityGroupID",
        azure.security_group_id.as_ref(),
        "networkSecurityGroups",
    );
    let tenant = identifier(checker, "tenantID", azure.tenant_id.as_ref()).map(ClusterTenant);
    let registry_identity = registry_identity(azure);
    let health_probe = health_probe(checker, &annotations);
    let placement = AzurePlacement {
        cloud: cloud?,
        location: location?,
        tenant: tenant?,
        subscription: subscription?,
        resource_group,
        vnet: vnet?,
        subnet: subnet?,
        security_group: security_group?,
        registry_identity,
        health_probe: health_probe?,
    };
    consistency(checker, &placement);
    Some(placement)
}

fn cloud(checker: &mut Checker, azure: &AzurePlatform) -> Option<Cloud> {
    let field = path("cloud");
    let cloud: Cloud = checker.parsed(&field, cloud_of(azure))?;
    if cloud.cluster_identity_type().is_none() {
        checker.problems.lint(
            field,
            format!("Cluster API Provider Azure has no cloud type for `{cloud}`; no AzureClusterIdentity is made"),
            "use the public, the US Government or the China cloud, or provide the object yourself",
        );
    }
    if cloud.endpoints().is_none() {
        checker.problems.lint(
            path("cloud"),
            format!("the endpoints of `{cloud}` differ by installation, and the classes name no file with them"),
            "start the Key Vault provider with the endpoints of the installation",
        );
    }
    Some(cloud)
}

fn location(checker: &mut Checker, azure: &AzurePlatform) -> Option<String> {
    let field = path("location");
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

fn resource_group(checker: &mut Checker, azure: &AzurePlatform) -> String {
    if azure.resource_group.is_none() && azure.unknown.contains_key("resourceGroupName") {
        checker.problems.lint(
            path("resourceGroupName"),
            "the field is not in the API, so the group is `default`",
            "rename it to `resourceGroup`",
        );
    }
    resource_group_of(azure).to_owned()
}

/// The schema's patterns are not anchored, so they take nearly everything.
fn subnet(checker: &mut Checker, azure: &AzurePlatform) -> Option<ArmResourceId> {
    let field = path("subnetID");
    let text = azure.subnet_id.as_ref()?;
    let id: ArmResourceId = checker.parsed(&field, text)?;
    if checker.is_broken(&field) {
        return None;
    }
    for (part, what) in misnamed_parts(text) {
        checker.problems.lint(
            &*field,
            format!("`{part}` is not the name of a {what}; the API takes it, and Azure will not"),
            "copy the id from `az network vnet subnet show`",
        );
    }
    checker.expect_uuid(&field, id.subscription());
    Some(id)
}

/// An id of `Microsoft.Network/<kind>`. The schema checks its length alone, and a text that is no
/// such id would fail at every reconciliation.
fn network_id(
    checker: &mut Checker,
    name: &str,
    value: Option<&String>,
    kind: &str,
) -> Option<ArmResourceId> {
    let field = path(name);
    let text = value?;
    let id: ArmResourceId = checker.parsed(&field, text)?;
    let expected = format!("Microsoft.Network/{kind}");
    let is_kind = id.resource_type().is_some_and(|found| found.eq_ignore_ascii_case(&expected));
    if !is_kind || id.resource_group().is_none() {
        let form = format!(
            "/subscriptions/{{subscription}}/resourceGroups/{{group}}/providers/{expected}/{{name}}"
        );
        checker.problems.error_with_hint(
            &*field,
            format!("`{text}` is not the id of a {expected}"),
            format!("write the id in the form `{form}`"),
        );
        return None;
    }
    if !is_uuid(id.subscription()) {
        checker.expect_uuid(&field, id.subscription());
    }
    Some(id)
}

fn identifier<T: std::str::FromStr<Err: std::fmt::Display>>(
    checker: &mut Checker,
    name: &str,
    value: Option<&String>,
) -> Option<T> {
    let field = path(name);
    let text = value?;
    let parsed = checker.parsed(&field, text)?;
    checker.expect_uuid(&field, text);
    Some(parsed)
}

/// The identity that pulls images; it ends in the workers' cloud configuration and nowhere else.
/// What the schema takes here is an id.
fn registry_identity(azure: &AzurePlatform) -> Option<ArmResourceId> {
    let credentials = azure.container_registry.as_ref()?.credentials.as_ref()?;
    credentials.managed_identity.as_ref()?.resource_id.as_ref()?.parse().ok()
}

fn health_probe(
    checker: &mut Checker,
    annotations: &BTreeMap<&'static str, String>,
) -> Option<HealthProbe> {
    let value = |key| annotations.get(key).map(String::as_str).filter(|text| !text.is_empty());
    let place = |key| format!("metadata.annotations[{key}]");
    let key = HostedCluster::HEALTH_PROBE_MODE_ANNOTATION;
    match value(key).unwrap_or("shared") {
        "shared" => {}
        "servicenodeport" => return Some(HealthProbe::ServiceNodePort),
        text => {
            let message = format!("invalid value for annotation {key}: {text}");
            checker.problems.error_with_hint(
                place(key),
                message,
                "write `shared` or `servicenodeport`",
            );
            return None;
        }
    }
    let path = value(HostedCluster::HEALTH_PROBE_PATH_ANNOTATION).map(str::to_owned);
    let port = match value(HostedCluster::HEALTH_PROBE_PORT_ANNOTATION) {
        Some(text) => Some(probe_port(checker, text)?),
        None => None,
    };
    Some(match (path, port) {
        (None, None) => HealthProbe::Shared,
        (path, port) => HealthProbe::SharedAt { path, port },
    })
}

fn probe_port(checker: &mut Checker, text: &str) -> Option<u16> {
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

/// What no schema can see: ids that are right one by one and do not belong together.
fn consistency(checker: &mut Checker, placement: &AzurePlacement) {
    if !placement.vnet.contains(&placement.subnet) {
        checker.problems.lint(
            path("subnetID"),
            format!("the subnet is not in the virtual network `{}`", placement.vnet.name()),
            "give a subnet of `vnetID`, or the virtual network of the subnet",
        );
    }
    let ids = [
        ("vnetID", &placement.vnet),
        ("subnetID", &placement.subnet),
        ("securityGroupID", &placement.security_group),
    ];
    for (name, id) in ids {
        if !id.subscription().eq_ignore_ascii_case(placement.subscription.as_str()) {
            checker.problems.lint(
                path(name),
                format!(
                    "it is in the subscription `{}` and not in `subscriptionID`",
                    id.subscription()
                ),
                "the network of a cluster is expected in the cluster's subscription",
            );
        }
    }
}
