//! Live resources of Azure Resource Manager: their creators, and whether their types have tags.

use lanyard_azure::{
    ArmBody as _, BlobContainerBody, FederatedCredentialBody, NsRecordSetBody, RoleAssignmentBody,
    RoleDefinitionBody,
};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::creation_evidence::CreationMark;
use crate::live_state::LiveResource;
use crate::resource_id::ResourceId;

/// A live resource of Azure Resource Manager.
///
/// Most resource types have `systemData` (`createdAt`, `createdBy`); role assignments and role definitions have
/// `createdOn` and `createdBy` in their properties. Resource groups and some child resources have neither.
pub fn arm_resource(id: ResourceId, body: Value) -> LiveResource {
    let (system, properties) = (&body["systemData"], &body["properties"]);
    let first =
        |one: &Value, other: &Value| one.as_str().or_else(|| other.as_str()).map(str::to_owned);
    let creation = CreationMark {
        at: first(&system["createdAt"], &properties["createdOn"]),
        by: first(&system["createdBy"], &properties["createdBy"]),
        id: assigned_id(properties),
    };
    let has_tags = id.arm().is_some_and(has_ownership_tags);
    LiveResource { id, body, creation, has_tags }
}

/// The id that Azure gave the resource. The principal of a role assignment is no id of the assignment.
fn assigned_id(properties: &Value) -> Option<String> {
    let is_identity = properties.get("clientId").is_some();
    let principal = || properties["principalId"].as_str().filter(|_| is_identity);
    properties["resourceGuid"].as_str().or_else(principal).map(str::to_owned)
}

/// Whether lanyard sets its ownership tags when it creates a resource of this type.
fn has_ownership_tags(id: &ArmResourceId) -> bool {
    const TYPES_WITHOUT_TAGS: [&str; 5] = [
        BlobContainerBody::RESOURCE_TYPE,
        FederatedCredentialBody::RESOURCE_TYPE,
        NsRecordSetBody::RESOURCE_TYPE,
        RoleAssignmentBody::RESOURCE_TYPE,
        RoleDefinitionBody::RESOURCE_TYPE,
    ];
    !TYPES_WITHOUT_TAGS.iter().any(|resource_type| id.has_type(resource_type))
}

/// A member of a list; `None` without an id that can be read.
pub(super) fn listed_resource(body: Value) -> Option<LiveResource> {
    let id: ArmResourceId = body["id"].as_str()?.parse().ok()?;
    Some(arm_resource(id.into(), body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mark_is_in_system_data_or_in_the_properties() {
        let mark = |body| arm_resource("/subscriptions/s".parse().unwrap(), body).creation;
        let (at, by) = ("2026-01-01T00:00:00Z", "11111111-2222-3333-4444-555555555555");
        let expected = CreationMark { at: Some(at.to_owned()), by: Some(by.to_owned()), id: None };
        assert_eq!(mark(json!({ "systemData": { "createdAt": at, "createdBy": by } })), expected);
        assert_eq!(mark(json!({ "properties": { "createdOn": at, "createdBy": by } })), expected);
        assert_eq!(mark(json!({ "properties": { "createdBy": null } })), CreationMark::default());
        let network = mark(json!({ "properties": { "resourceGuid": "a" } }));
        assert_eq!(network.id.as_deref(), Some("a"));
        // The principal of a role assignment is no id of the assignment.
        let role = mark(json!({ "properties": { "principalId": "p" } }));
        assert_eq!(role, CreationMark::default());
    }
}
