//! Whether the names of new vaults and storage accounts are free. They are unique in the cloud.

use lanyard_azure::{
    ArmBody as _, ArmClient, ArmRequest, AzureCallError, SoftDeletedVault, StorageAccountBody,
    VaultBody,
};
use lanyard_changes::{
    ArmResource, AzureEffect, AzureGraph, AzureResource, Plan, PreflightFinding, ResourceChange,
};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId, VaultName};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::quotas::readable;

/// The reply of `checkNameAvailability`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameAvailability {
    name_available: bool,
    #[serde(default)]
    message: String,
}

/// Checks the names of the vaults and storage accounts that a plan creates.
///
/// Azure has no GET request for names that other subscriptions use: `checkNameAvailability` is a POST request, which
/// changes nothing and needs the permission to read. Plans promise GET requests only, so only runs call this, before
/// their first write.
///
/// # Errors
///
/// The error of a request that failed. A missing permission to check names is no error, nor is a provider that is not
/// registered, which has a finding of its own.
pub(crate) async fn check_names(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    plan: &Plan,
    graph: &AzureGraph,
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let mut findings = Vec::new();
    let created = plan.resources.iter().filter(|it| it.change == ResourceChange::Create);
    for resource in created.filter_map(|planned| graph.get(&planned.key)) {
        let Some((namespace, api_version)) = name_service(resource) else { continue };
        let scope = ArmResourceId::subscription_scope(subscription);
        let path = format!("{scope}/providers/{namespace}/checkNameAvailability");
        let body = json!({ "name": resource.id.name(), "type": resource.id.resource_type() });
        let reply = readable(arm.send(&ArmRequest::post(path, api_version, Some(body))).await)?;
        let Some(reply) = reply else { continue };
        let availability = serde_json::from_value::<NameAvailability>(reply.body);
        let Some(taken) = availability.ok().filter(|it| !it.name_available) else { continue };
        let is_deleted = find_deleted_vault(arm, subscription, resource).await?;
        let finding =
            if is_deleted { deleted_vault(resource) } else { taken_name(resource, &taken.message) };
        findings.push(finding);
    }
    Ok(findings)
}

/// The resource provider that checks the name, and its API version; `None` for names that need no check.
fn name_service(resource: &AzureResource) -> Option<(&'static str, &'static str)> {
    if resource.id.has_type(StorageAccountBody::RESOURCE_TYPE) {
        return Some(("Microsoft.Storage", StorageAccountBody::API_VERSION));
    }
    let is_vault = resource.id.has_type(VaultBody::RESOURCE_TYPE);
    let is_recovered = matches!(
        &resource.effect,
        AzureEffect::Arm(ArmResource { initial, .. })
            if initial.pointer("/properties/createMode").is_some()
    );
    (is_vault && !is_recovered).then_some(("Microsoft.KeyVault", VaultBody::API_VERSION))
}

/// Whether a deleted vault of the subscription has the name.
async fn find_deleted_vault(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    resource: &AzureResource,
) -> Result<bool, AzureCallError> {
    let AzureEffect::Arm(ArmResource { body, .. }) = &resource.effect else { return Ok(false) };
    let location = body.get("location").and_then(Value::as_str).unwrap_or_default();
    let name = match resource.id.name().parse::<VaultName>() {
        Ok(name) if resource.id.has_type(VaultBody::RESOURCE_TYPE) => name,
        _ => return Ok(false),
    };
    let id = SoftDeletedVault::id(subscription, location, &name);
    let request = SoftDeletedVault::get(&id);
    match arm.fetch_optional(&request.path, &request.api_version).await {
        Err(AzureCallError::Forbidden { .. }) => Ok(false),
        found => found.map(|found| found.is_some()),
    }
}

const CHECK: &str = "names";

fn deleted_vault(resource: &AzureResource) -> PreflightFinding {
    let name = resource.id.name();
    PreflightFinding::error(
        CHECK,
        format!("a deleted vault has the name `{name}`"),
        format!(
            "restore it with --recover, or delete it permanently with `lanyard destroy keyvault azure --name {name} --purge`, or with `az keyvault purge --name {name}` if lanyard did not create it"
        ),
    )
}

fn taken_name(resource: &AzureResource, reason: &str) -> PreflightFinding {
    PreflightFinding::error(
        CHECK,
        format!("Azure does not accept the name `{}`: {reason}", resource.id.name()),
        "choose another name: names of vaults and storage accounts are unique in the cloud, and a deleted vault keeps its name",
    )
}
