//! Whether Azure accepts the names, regions and tags of new resources. A mistake found here costs no half-created
//! cluster.

use std::collections::BTreeSet;

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, FederatedCredentialBody, LoadBalancerBody,
    ManagedIdentityBody, NetworkSecurityGroupBody, PrivateDnsLinkBody, PublicIpAddressBody,
    SoftDeletedVault, StorageAccountBody, VaultBody, VirtualNetworkBody,
};
use lanyard_changes::{
    ArmResource, AzureEffect, AzureGraph, AzureResource, EffectUsage, Plan, PreflightFinding,
    ResourceChange,
};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde_json::Value;

use crate::azure_name_rules::{self as rules, AzureNameRule};
use crate::quotas::readable;

/// Checks the values of the resources that a plan creates. Sends GET requests only.
///
/// # Errors
///
/// The error of a read that failed. A missing permission to read regions or deleted vaults is no error.
pub(crate) async fn check_values(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    plan: &Plan,
    graph: &AzureGraph,
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let created = plan.resources.iter().filter(|it| it.change == ResourceChange::Create);
    let created: Vec<_> = created.filter_map(|planned| graph.get(&planned.key)).collect();
    let mut findings: Vec<_> = created
        .iter()
        .flat_map(|resource| check_name(resource).into_iter().chain(check_tags(resource)))
        .collect();
    findings.extend(check_regions(arm, subscription, &created).await?);
    for resource in created {
        findings.extend(check_recovery(arm, subscription, resource).await?);
    }
    Ok(findings)
}

fn check_name(resource: &AzureResource) -> Option<PreflightFinding> {
    let violation = name_rule(resource.id.arm()?)?.check(resource.id.name()).err()?;
    let hint =
        "choose another name; a shorter cluster name shortens the names of all its resources";
    Some(PreflightFinding::error("names", violation.to_string(), hint))
}

fn name_rule(id: &ArmResourceId) -> Option<AzureNameRule> {
    let rules_of_types = [
        (VirtualNetworkBody::RESOURCE_TYPE, rules::VIRTUAL_NETWORK),
        (NetworkSecurityGroupBody::RESOURCE_TYPE, rules::SECURITY_GROUP),
        (PublicIpAddressBody::RESOURCE_TYPE, rules::PUBLIC_IP),
        (LoadBalancerBody::RESOURCE_TYPE, rules::LOAD_BALANCER),
        (PrivateDnsLinkBody::RESOURCE_TYPE, rules::VIRTUAL_NETWORK_LINK),
        (ManagedIdentityBody::RESOURCE_TYPE, rules::MANAGED_IDENTITY),
        (FederatedCredentialBody::RESOURCE_TYPE, rules::FEDERATED_CREDENTIAL),
    ];
    if id.resource_type().is_none() {
        return id.resource_group().map(|_| rules::RESOURCE_GROUP);
    }
    rules_of_types.into_iter().find(|(kind, _)| id.has_type(kind)).map(|(_, rule)| rule)
}

/// Source: Microsoft Learn, "Use tags to organize your Azure resources": 50 tags, names of 512 characters (128 for
/// storage accounts), values of 256.
fn check_tags(resource: &AzureResource) -> Vec<PreflightFinding> {
    const FORBIDDEN: &str = "<>%&\\?/";
    let tags = body_of(resource).and_then(|body| body.get("tags")?.as_object());
    let Some(tags) = tags else { return Vec::new() };
    let mut problems = Vec::new();
    let is_account = resource.id.has_type(StorageAccountBody::RESOURCE_TYPE);
    let longest = if is_account { 128 } else { 512 };
    // Lanyard adds two tags of its own.
    if tags.len() > 48 {
        problems.push(format!("{} tags; Azure allows 50, of which lanyard sets two", tags.len()));
    }
    for (name, value) in tags {
        let value_length = value.as_str().unwrap_or_default().chars().count();
        if let Some(found) = name.chars().find(|it| FORBIDDEN.contains(*it) || it.is_control()) {
            problems.push(format!("the name of the tag `{name}` contains `{found}`"));
        }
        if !(1..=longest).contains(&name.chars().count()) {
            problems.push(format!(
                "the name of the tag `{name}` does not have 1 to {longest} characters"
            ));
        }
        if value_length > 256 {
            problems.push(format!("the value of the tag `{name}` has more than 256 characters"));
        }
    }
    let finding = |problem: String| {
        let message = format!("`{}`: {problem}", resource.id.name());
        PreflightFinding::error("tags", message, "correct the tags of the command")
    };
    problems.into_iter().map(finding).collect()
}

fn body_of(resource: &AzureResource) -> Option<&Value> {
    match &resource.effect {
        AzureEffect::Arm(ArmResource { body, usage, .. }) if *usage != EffectUsage::Existing => {
            Some(body)
        }
        _ => None,
    }
}

/// The version of the list of a subscription's regions.
const LOCATIONS_API_VERSION: &str = "2022-12-01";

/// The regions of new resources that the subscription does not have.
async fn check_regions(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    created: &[&AzureResource],
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let bodies = created.iter().filter_map(|resource| body_of(resource));
    let regions = bodies.filter_map(|body| body.get("location")?.as_str());
    let wanted: BTreeSet<&str> = regions.filter(|it| normalized(it) != "global").collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let path = format!("{}/locations", ArmResourceId::subscription_scope(subscription));
    let Some(listed) = readable(arm.list(&path, LOCATIONS_API_VERSION, &[]).await)? else {
        return Ok(Vec::new());
    };
    let known: BTreeSet<_> =
        listed.iter().filter_map(|it| it["name"].as_str()).map(normalized).collect();
    let unknown = wanted.into_iter().filter(|region| !known.contains(&normalized(region)));
    let finding = |region: &str| {
        PreflightFinding::error(
            "regions",
            format!("`{region}` is not a region of the subscription"),
            "run `az account list-locations --output table`, and name one of them",
        )
    };
    Ok(unknown.map(finding).collect())
}

/// Regions have names such as `westeurope` and display names such as `West Europe`.
fn normalized(region: &str) -> String {
    region.replace(' ', "").to_ascii_lowercase()
}

/// A vault that the command restores must be deleted, and must have been in the group and the region of the command.
async fn check_recovery(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    resource: &AzureResource,
) -> Result<Option<PreflightFinding>, AzureCallError> {
    let AzureEffect::Arm(ArmResource { body, initial, .. }) = &resource.effect else {
        return Ok(None);
    };
    let is_recovered = initial.pointer("/properties/createMode").is_some();
    if !is_recovered || !resource.id.has_type(VaultBody::RESOURCE_TYPE) {
        return Ok(None);
    }
    let path = SoftDeletedVault::list_path(subscription);
    let Some(deleted) = readable(arm.list(&path, VaultBody::API_VERSION, &[]).await)? else {
        return Ok(None);
    };
    let deleted = deleted.into_iter().filter_map(|body| serde_json::from_value(body).ok());
    let name = resource.id.name();
    let found =
        deleted.into_iter().find(|it: &SoftDeletedVault| it.name.eq_ignore_ascii_case(name));
    let region = body["location"].as_str().unwrap_or_default();
    let (message, hint) = match found {
        None => (
            format!("--recover: the subscription has no deleted vault `{name}`"),
            "leave out --recover, or correct the name".to_owned(),
        ),
        Some(vault) if resource.id != vault.properties.vault_id => (
            format!("--recover: the deleted vault is `{}`", vault.properties.vault_id),
            format!(
                "name its resource group `{}`",
                vault.properties.vault_id.resource_group().unwrap_or_default()
            ),
        ),
        Some(vault) if normalized(&vault.properties.location) != normalized(region) => (
            format!(
                "--recover: the deleted vault is in the region `{}`",
                vault.properties.location
            ),
            format!("name the region `{}`", vault.properties.location),
        ),
        Some(_) => return Ok(None),
    };
    Ok(Some(PreflightFinding::error("names", message, hint)))
}

#[cfg(test)]
mod tests {
    use lanyard_changes::ResourceKey;
    use serde_json::json;

    use super::*;
    use crate::stacks;

    fn resource(id: &str, body: Value) -> AzureResource {
        AzureResource {
            key: ResourceKey::new("r"),
            stack: stacks::INFRA,
            id: format!("/subscriptions/s/resourceGroups/{id}").parse().unwrap(),
            effect: AzureEffect::tagged("2024-01-01", body),
            depends_on: Vec::new(),
        }
    }

    #[test]
    fn names_follow_the_rule_of_their_type() {
        for (id, is_valid) in [
            ("group", true),
            ("group.", false),
            ("g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/ab", false),
            ("g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/abc", true),
            ("g/providers/Microsoft.Network/virtualNetworks/v-", false),
            ("g/providers/Microsoft.KeyVault/vaults/v-", true),
        ] {
            assert_eq!(check_name(&resource(id, json!({}))).is_none(), is_valid, "{id}");
        }
    }

    #[test]
    fn tags_follow_the_rules_of_azure() {
        let many: serde_json::Map<_, _> =
            (0..49).map(|number| (format!("t{number}"), json!("x"))).collect();
        for (tags, expected) in [
            (json!({ "bad<tag": "x" }), Some("contains `<`")),
            (json!({ "a/b": "x" }), Some("contains `/`")),
            (json!({ "": "x" }), Some("1 to 512 characters")),
            (json!({ "t": "x".repeat(257) }), Some("more than 256")),
            (Value::Object(many), Some("49 tags")),
            (json!({ "kubernetes.io_cluster.harbour": "<any>" }), None),
        ] {
            let found = check_tags(&resource("g", json!({ "tags": tags })));
            match expected {
                Some(text) => assert!(found[0].message.contains(text), "{found:?}"),
                None => assert!(found.is_empty(), "{found:?}"),
            }
        }
    }
}
