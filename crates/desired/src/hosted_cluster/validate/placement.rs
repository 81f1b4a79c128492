//! `spec.platform.azure` without the identities.

use std::collections::BTreeMap;

use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::{AzurePlatform, AzurePrivate, RegistryCredentials};
use lanyard_vocabulary::{ArmResourceId, Cloud};

use super::schema::{Checker, is_dns_label, is_uuid};
use super::{ClusterTenant, DEFAULT_RESOURCE_GROUP, HealthProbe};
use crate::hosted_cluster::AzurePlacement;

mod subnet;

const AZURE: &str = "spec.platform.azure";
const RESOURCE_GROUP_PATTERN: &str = r"^[a-zA-Z0-9_()\-\.]{1,89}[a-zA-Z0-9_()\-]$";

/// Checks everything before it answers, so that no problem hides another.
pub(super) fn placement(
    checker: &mut Checker,
    azure: &AzurePlatform,
    annotations: BTreeMap<&'static str, String>,
) -> Option<AzurePlacement> {
    let cloud = cloud(checker, azure);
    let location = location(checker, azure);
    let resource_group = resource_group(checker, azure);
    let vnet = network_id(checker, "vnetID", azure.vnet_id.as_ref(), "virtualNetworks");
    let subnet = subnet::subnet(checker, azure.subnet_id.as_ref());
    let subscription = identifier(checker, "subscriptionID", azure.subscription_id.as_ref());
    let security_group = network_id(
        checker,
        "securityGroupID",
        azure.security_group_id.as_ref(),
        "networkSecurityGroups",
    );
    let tenant = identifier(checker, "tenantID", azure.tenant_id.as_ref()).map(ClusterTenant);
    topology(checker, azure);
    let registry_identity = registry_identity(checker, azure);
    let health_probe = health_probe(checker, &annotations);
    let placement = AzurePlacement {
        cloud: cloud?,
        location: location?,
        tenant: tenant?,
        subscription: subscription?,
        resource_group: resource_group?,
        vnet: vnet?,
        subnet: subnet?,
        security_group: security_group?,
        registry_identity,
        health_probe: health_probe?,
    };
    consistency(checker, &placement);
    Some(placement)
}

fn path(field: &str) -> String {
    format!("{AZURE}.{field}")
}

fn cloud(checker: &mut Checker, azure: &AzurePlatform) -> Option<Cloud> {
    let text = azure.cloud.as_deref().unwrap_or(Cloud::default().name());
    let field = path("cloud");
    checker.one_of(&field, text, &Cloud::ALL.map(Cloud::name)).then_some(())?;
    let cloud: Cloud = checker.parsed(&field, text)?;
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
    let text = checker.text(&field, azure.location.as_ref(), 0..=255)?;
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
    Some(text.to_owned())
}

fn resource_group(checker: &mut Checker, azure: &AzurePlatform) -> Option<String> {
    let field = path("resourceGroup");
    if azure.resource_group.is_none() && azure.unknown.contains_key("resourceGroupName") {
        checker.problems.lint(
            path("resourceGroupName"),
            "the field is not in the API, so the group is `default`",
            "rename it to `resourceGroup`",
        );
    }
    let text = azure.resource_group.as_deref().unwrap_or(DEFAULT_RESOURCE_GROUP);
    let fits = checker.at_most(&field, text, 90);
    let matches = is_resource_group(text);
    let matches = checker.pattern(&field, text, RESOURCE_GROUP_PATTERN, matches);
    (fits && matches).then(|| text.to_owned())
}

fn is_resource_group(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_()-.".contains(c);
    (2..=90).contains(&text.len()) && text.chars().all(valid) && !text.ends_with('.')
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
    let text = checker.text(&field, value, 0..=255)?;
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
    let text = checker.text(&field, value, 0..=255)?;
    let parsed = checker.parsed(&field, text)?;
    checker.expect_uuid(&field, text);
    Some(parsed)
}

/// The union of `topology` and `private`.
fn topology(checker: &mut Checker, azure: &AzurePlatform) {
    let topology = azure.topology.as_deref();
    if let Some(topology) = topology {
        let known = ["Public", "PublicAndPrivate", "Private"];
        checker.one_of(&path("topology"), topology, &known);
    }
    let wants_private = matches!(topology, Some("Private" | "PublicAndPrivate"));
    checker.rule(
        AZURE,
        wants_private == azure.private.is_some(),
        "private is required when topology is Private or PublicAndPrivate, and forbidden otherwise",
    );
    if let Some(private) = &azure.private {
        private_union(checker, private);
    }
}

fn private_union(checker: &mut Checker, private: &AzurePrivate) {
    let field = path("private");
    let kind_field = format!("{field}.type");
    let kind = checker.text(&kind_field, private.private_type.as_ref(), 0..=255);
    if let Some(kind) = kind {
        checker.one_of(&kind_field, kind, &["PrivateLink", "Swift"]);
    }
    checker.rule(
        &field,
        (kind == Some("PrivateLink")) == private.private_link.is_some(),
        "privateLink is required when type is PrivateLink, and forbidden otherwise",
    );
    checker.rule(
        &field,
        (kind == Some("Swift")) == private.swift.is_some(),
        "swift is required when type is Swift, and forbidden otherwise",
    );
    if let Some(link) = &private.private_link {
        let field = format!("{field}.privateLink");
        if link.nat_subnet_id.is_some() {
            subnet::check(checker, &format!("{field}.natSubnetID"), link.nat_subnet_id.as_ref());
        }
        let allowed = link.additional_allowed_subscriptions.as_deref();
        subscriptions(checker, &format!("{field}.additionalAllowedSubscriptions"), allowed);
        if link.nat_subnet_id.is_none() && allowed.is_none() {
            checker.problems.error(
                &*field,
                format!("Invalid value: 0: {field} in body should have at least 1 properties"),
            );
        }
    }
    if let Some(swift) = &private.swift {
        let field = format!("{field}.swift.podNetworkInstance");
        if let Some(text) = checker.text(&field, swift.pod_network_instance.as_ref(), 1..=63) {
            let message = "podNetworkInstance must be a valid DNS label: lower case letters, digits and '-', and must start and end with a letter or digit";
            checker.rule(&field, is_dns_label(text), message);
        }
    }
}

fn subscriptions(checker: &mut Checker, field: &str, allowed: Option<&[String]>) {
    let Some(allowed) = allowed else { return };
    if !(1..=50).contains(&allowed.len()) {
        let message = format!("Invalid value: {}: it must have 1 to 50 items", allowed.len());
        checker.problems.error(field, message);
    }
    for (index, subscription) in allowed.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if !is_uuid(subscription) {
            checker
                .problems
                .error(&*field, format!("Invalid value: \"{subscription}\": it must be a UUID"));
        }
        if allowed[..index].contains(subscription) {
            checker.problems.error(&*field, format!("Duplicate value: \"{subscription}\""));
        }
    }
}

/// The identity that pulls images; it ends in the workers' cloud configuration and nowhere else.
fn registry_identity(checker: &mut Checker, azure: &AzurePlatform) -> Option<ArmResourceId> {
    let registry = azure.container_registry.as_ref()?;
    let field = path("containerRegistry.credentials");
    let credentials: &RegistryCredentials =
        checker.required(&field, registry.credentials.as_ref())?;
    let kind_field = format!("{field}.type");
    let kind = checker.text(&kind_field, credentials.credentials_type.as_ref(), 0..=255);
    if let Some(kind) = kind {
        checker.one_of(&kind_field, kind, &["ManagedIdentity"]);
    }
    checker.rule(
        &field,
        (kind == Some("ManagedIdentity")) == credentials.managed_identity.is_some(),
        "managedIdentity is required when type is ManagedIdentity, and forbidden otherwise",
    );
    let field = format!("{field}.managedIdentity.resourceID");
    let identity = credentials.managed_identity.as_ref()?;
    let text = checker.required(&field, identity.resource_id.as_ref())?;
    // The rule is evaluated whatever the length says, and its message is the one that helps.
    checker.text(&field, Some(text), 131..=345);
    let id = text.parse::<ArmResourceId>().ok().filter(|id| {
        let kind = "Microsoft.ManagedIdentity/userAssignedIdentities";
        id.resource_group().is_some()
            && id.resource_type().is_some_and(|found| found.eq_ignore_ascii_case(kind))
    });
    checker.rule(
        &field,
        id.is_some(),
        "must be a user-assigned managed identity ARM resource ID in the format /subscriptions/{subscriptionID}/resourceGroups/{resourceGroupName}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{identityName}",
    );
    id
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
