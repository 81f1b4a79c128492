//! Adopts resources that another tool created, such as HyperShift's command line.

use lanyard_clock::SharedClock;
use serde::Serialize;

use crate::effect::{Effect, EffectUsage};
use crate::journal::{Journal, JournalEntry, JournalError};
use crate::live_state::LiveState;
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;
use crate::plan::is_renamed;
use crate::resource_graph::ResourceGraph;
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey};

/// A resource that the import looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedResource {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The id of the live resource, or the id that was looked for.
    pub id: ResourceId,
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
pub(crate) async fn import_resources<E: Effect>(
    journal: &Journal,
    clock: &SharedClock,
    graph: &ResourceGraph<E>,
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
        let is_ours = OwnershipEvidence::new(record, tags).is_ours(found);
        let belongs_to_user = match resource.effect.usage() {
            EffectUsage::Adjusted | EffectUsage::Existing => true,
            EffectUsage::Shared => !is_ours,
            EffectUsage::Own => false,
        };
        // A record of another id stays as well: the plan names it as a problem.
        let is_recorded = record.is_some_and(|record| {
            is_renamed(record, resource) || (record.id == found.id && is_ours)
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
                stack: resource.stack.clone(),
                id: found.id.clone(),
                ownership: Ownership::Imported,
                depends_on: resource.depends_on.clone(),
                created: Some(found.creation.clone()),
            };
            journal.record(&entry).await?;
        }
        let differences = resource.effect.diff(found, live).len();
        imported.push(ImportedResource { key, id: found.id.clone(), result, differences });
    }
    Ok(imported)
}
