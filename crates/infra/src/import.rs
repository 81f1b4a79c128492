//! Adopts resources that another tool created for a cluster, such as HyperShift's command line.

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, PrivateDnsZoneBody, ResourceGroupBody,
};
use lanyard_clock::SharedClock;
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;

use crate::infra_graph::{InfraIds, InfraParameters, LegacyNames};
use crate::journal::{CreationMark, Journal, JournalEntry, JournalError};
use crate::live_state::LiveState;
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;
use crate::plan::live_differences;
use crate::resource::{Ownership, ResourceDefinition, ResourceKey};
use crate::resource_graph::ResourceGraph;
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

/// A resource that the import looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedResource {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The id of the live resource, or the id that was looked for.
    pub id: ArmResourceId,
    /// The result.
    pub result: ImportResult,
    /// The number of properties that differ from the desired ones.
    pub differences: usize,
}

/// What the import did with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ImportResult {
    /// The journal now records that the resource belongs to the cluster.
    Imported,
    /// The journal has the resource already.
    Recorded,
    /// The resource belongs to the user or may serve other purposes, so it is not removed with the cluster.
    Existing,
    /// The resource does not exist.
    Missing,
}

/// Records the live resources of the graph as resources of the cluster. Does not change them.
///
/// # Errors
///
/// [`JournalError`] if the journal cannot be written.
pub async fn import_resources(
    journal: &Journal,
    clock: &SharedClock,
    graph: &ResourceGraph,
    live: &LiveState,
    tags: &OwnershipTags,
) -> Result<Vec<ImportedResource>, JournalError> {
    let recorded = journal.state();
    let mut imported = Vec::new();
    for resource in graph.resources() {
        let key = resource.key.clone();
        let Some(found) = live.get(&key) else {
            let (id, result) = (resource.id.clone(), ImportResult::Missing);
            imported.push(ImportedResource { key, id, result, differences: 0 });
            continue;
        };
        let record = recorded.get(&key).filter(|record| record.ownership.is_ours());
        let is_ours = OwnershipEvidence::new(record, tags).is_ours(&found.id, &found.body);
        let belongs_to_user = match resource.definition {
            ResourceDefinition::Existing { .. } => true,
            ResourceDefinition::Shared { .. } => !is_ours,
            _ => false,
        };
        // A record of another id stays as well: the plan names it as a problem.
        let is_recorded = record.is_some_and(|record| {
            record.is_renamed(resource) || (record.id == found.id && is_ours)
        });
        let result = match (belongs_to_user, is_recorded) {
            (true, _) => ImportResult::Existing,
            (false, true) => ImportResult::Recorded,
            (false, false) => ImportResult::Imported,
        };
        if result == ImportResult::Imported {
            let entry = JournalEntry::Recorded {
                at: clock.now(),
                key: key.clone(),
                stack: resource.stack,
                id: found.id.clone(),
                ownership: Ownership::Imported,
                depends_on: resource.depends_on.clone(),
                created: Some(CreationMark::of(&found.body)),
            };
            journal.record(&entry).await?;
        }
        let differences = live_differences(resource, found, live).len();
        imported.push(ImportedResource { key, id: found.id.clone(), result, differences });
    }
    Ok(imported)
}
