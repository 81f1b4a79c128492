//! The names that HyperShift's command line gave the resources of a cluster.

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, PrivateDnsZoneBody, ResourceGroupBody,
};
use lanyard_vocabulary::ArmResourceId;

use crate::infra_graph::{InfraIds, InfraParameters, LegacyNames};
use crate::resource_names::ClusterResourceNames;

/// Finds the legacy names of a cluster's resources: resource groups with the word at the end, and the private DNS
/// zone `<name>-azurecluster.<base domain>`. A legacy name counts only if nothing has the current name.
///
/// # Errors
///
/// The error of the first read that failed.
pub async fn find_legacy_names(
    arm: &ArmClient,
    parameters: &InfraParameters,
) -> Result<LegacyNames, AzureCallError> {
    let names = ClusterResourceNames::new(&parameters.identifiers);
    let ids = InfraIds::new(parameters);
    let [vnet_group, security_group_group] = names.legacy_groups();
    let group = |name: &str| ResourceGroupBody::id(&parameters.subscription, name);
    let groups_are_ours = parameters.resource_group.is_none();
    let mut legacy = LegacyNames::default();
    if groups_are_ours && parameters.network.is_none() {
        let current = group(&names.vnet_group());
        legacy.vnet_group = legacy_group(arm, &current, &group(&vnet_group)).await?;
    }
    if groups_are_ours && parameters.security_group.is_none() {
        let current = group(&names.security_group_group());
        legacy.security_group_group =
            legacy_group(arm, &current, &group(&security_group_group)).await?;
    }
    let zone =
        |name: &str| ids.main_group.provider_resource(PrivateDnsZoneBody::RESOURCE_TYPE, name);
    let current_zone = zone(&names.private_zone(&parameters.base_domain));
    let legacy_zone = zone(&names.legacy_private_zone(&parameters.base_domain));
    legacy.private_zone =
        legacy_name(arm, &current_zone, &legacy_zone, PrivateDnsZoneBody::API_VERSION).await?;
    Ok(legacy)
}

async fn legacy_group(
    arm: &ArmClient,
    current: &ArmResourceId,
    legacy: &ArmResourceId,
) -> Result<Option<String>, AzureCallError> {
    legacy_name(arm, current, legacy, ResourceGroupBody::API_VERSION).await
}

async fn legacy_name(
    arm: &ArmClient,
    current: &ArmResourceId,
    legacy: &ArmResourceId,
    api_version: &str,
) -> Result<Option<String>, AzureCallError> {
    if arm.fetch_optional(current.as_str(), api_version).await?.is_some() {
        return Ok(None);
    }
    let found = arm.fetch_optional(legacy.as_str(), api_version).await?;
    Ok(found.map(|_| legacy.name().to_owned()))
}
