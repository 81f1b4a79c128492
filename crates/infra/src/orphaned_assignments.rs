//! Role assignments whose principal does not exist any more. They count against the limit of the subscription.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_azure::{
    ArmBody as _, ArmClient, ArmRequest, AssignedRole, AzureCallError, GraphClient,
    RoleAssignmentBody,
};
use lanyard_changes::{
    CreationEvidence, CreationMark, Ownership, OwnershipEvidence, RecordedResource, WritePhase,
    arm_resource,
};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::listed_role_assignments::{UnreadableRoleAssignment, assignments_within};
use crate::stacks;

/// A role assignment without a principal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedAssignment {
    /// The id of the assignment.
    pub id: ArmResourceId,
    /// The object id of the missing principal.
    pub principal: Uuid,
    /// The id of the role definition.
    pub role: String,
    /// The scope of the assignment.
    pub scope: String,
    /// What the search found, as if it had been imported.
    #[serde(skip)]
    found: RecordedResource,
}

/// The search for orphaned role assignments failed, or its result would be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrphanSearchError {
    /// The role assignments cannot be listed.
    #[error("listing the role assignments failed")]
    List(#[source] Box<AzureCallError>),
    /// The principals cannot be looked up.
    #[error("looking up the principals in Microsoft Graph failed")]
    Graph(#[source] Box<AzureCallError>),
    /// Microsoft Graph does not return the signed-in identity, so it may hide others as well.
    #[error(
        "Microsoft Graph does not show the signed-in identity `{0}`, so a missing principal proves nothing"
    )]
    Blind(Uuid),
    /// A role assignment cannot be read, so nothing shows whether its principal exists.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRoleAssignment),
}

const GRANT_DIRECTORY_READ: &str =
    "give the signed-in identity the Graph permission `Directory.Read.All`";

impl ErrorHint for OrphanSearchError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::List(source) => return source.hint(),
            Self::Graph(source) => return source.permission_hint(GRANT_DIRECTORY_READ),
            Self::Blind(_) => GRANT_DIRECTORY_READ,
            Self::Unreadable(source) => return source.hint(),
        }))
    }
}

/// Finds the role assignments at or below `scope` whose principals do not exist. Sends reads only.
///
/// Assignments younger than `min_age` do not count, because the directory may not know their principals everywhere
/// yet, and neither do those of principals of other tenants, which Microsoft Graph does not show.
///
/// # Errors
///
/// [`OrphanSearchError`], also if Microsoft Graph does not return `caller`, the signed-in identity.
pub async fn find_orphaned_assignments(
    arm: &ArmClient,
    graph: &GraphClient,
    scope: &ArmResourceId,
    caller: Uuid,
    (now, min_age): (Timestamp, Duration),
) -> Result<Vec<OrphanedAssignment>, OrphanSearchError> {
    let path = format!("{scope}/providers/{}", RoleAssignmentBody::RESOURCE_TYPE);
    let listed = arm.list(&path, RoleAssignmentBody::API_VERSION, &[]).await;
    let listed = listed.map_err(|error| OrphanSearchError::List(Box::new(error)))?;
    let assignments = assignments_within(scope, listed)?;
    let principals = assignments.iter().map(|(_, it)| it.properties.principal_id);
    let principals: BTreeSet<_> = principals.chain([caller]).collect();
    let principals: Vec<_> = principals.into_iter().collect();
    let found = graph.directory_objects(&principals, &[]).await;
    let found = found.map_err(|error| OrphanSearchError::Graph(Box::new(error)))?;
    let known: BTreeSet<_> = found.into_iter().map(|object| object.id).collect();
    if !known.contains(&caller) {
        return Err(OrphanSearchError::Blind(caller));
    }
    let newest = now.checked_sub(min_age).unwrap_or(Timestamp::MIN);
    Ok(orphans(assignments, &known, newest))
}

/// The assignments that are not younger than `newest`, and whose principals are not `known`.
fn orphans(
    assignments: Vec<(ArmResourceId, AssignedRole)>,
    known: &BTreeSet<Uuid>,
    newest: Timestamp,
) -> Vec<OrphanedAssignment> {
    let mut orphans: Vec<_> = assignments
        .into_iter()
        .map(|(id, assignment)| (id, assignment.properties))
        .filter(|(_, it)| !known.contains(&it.principal_id))
        .filter(|(_, it)| it.created_on.is_some_and(|created| created <= newest))
        .filter(|(_, it)| it.principal_type.as_deref() != Some("ForeignGroup"))
        .map(|(id, properties)| OrphanedAssignment {
            found: found_record(&id, properties.created_on),
            id,
            principal: properties.principal_id,
            role: properties.role_definition_id,
            scope: properties.scope,
        })
        .collect();
    orphans.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    orphans
}

fn found_record(id: &ArmResourceId, created: Option<Timestamp>) -> RecordedResource {
    RecordedResource {
        stack: stacks::INFRA,
        id: id.clone().into(),
        ownership: Ownership::Imported,
        depends_on: Vec::new(),
        phase: WritePhase::Complete,
        creation: CreationEvidence::Confirmed(created.map(CreationMark::at).unwrap_or_default()),
    }
}

/// Deletes the role assignment, unless another one has its id by now. Returns whether it does not exist any more.
///
/// # Errors
///
/// The error of the request.
pub async fn delete_orphaned_assignment(
    arm: &ArmClient,
    assignment: &OrphanedAssignment,
) -> Result<bool, AzureCallError> {
    let (id, version) = (&assignment.id, RoleAssignmentBody::API_VERSION);
    let Some(live) = arm.fetch_optional(id.as_str(), version).await? else { return Ok(true) };
    let principal = live.body.pointer("/properties/principalId").and_then(Value::as_str);
    let is_same_principal = principal.and_then(|id| id.parse().ok()) == Some(assignment.principal);
    let evidence = OwnershipEvidence::of_untagged(&assignment.found);
    let live = arm_resource(id.clone().into(), live.body);
    if !is_same_principal || !evidence.is_ours(&live) {
        return Ok(false);
    }
    arm.send(&ArmRequest::delete(id.as_str(), version)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assignment(
        scope: &str,
        principal: u128,
        created: &str,
        kind: &str,
    ) -> (ArmResourceId, AssignedRole) {
        let id = format!("{scope}/providers/Microsoft.Authorization/roleAssignments/a{principal}");
        let assignment = serde_json::from_value(json!({
            "name": "a", "id": id,
            "properties": {
                "principalId": Uuid::from_u128(principal),
                "principalType": kind,
                "roleDefinitionId": "r",
                "scope": scope,
                "createdOn": created,
            },
        }));
        (id.parse().unwrap(), assignment.unwrap())
    }

    #[test]
    fn only_old_assignments_of_missing_principals_are_orphans() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let scope = "/subscriptions/s";
        let all = vec![
            assignment(scope, 1, old, "ServicePrincipal"),
            assignment(scope, 2, old, "ServicePrincipal"),
            assignment(scope, 3, new, "ServicePrincipal"),
            assignment(scope, 4, old, "ForeignGroup"),
            assignment("/subscriptions/s/resourceGroups/g", 6, old, "User"),
        ];
        let known = BTreeSet::from([Uuid::from_u128(1)]);
        let newest = old.parse().unwrap();
        let found = orphans(all, &known, newest);
        let found: Vec<_> = found.iter().map(|it| it.principal.as_u128()).collect();
        assert_eq!(found, [2, 6]);
    }
}
