//! App role assignments: application permissions of service principals, and access of users and groups.

use http::StatusCode;
use lanyard_emulator_state::directory::{
    AppRoleAssignment, DirectoryObject, EntraDirectory, first_party_by_object_id,
    graph_principal_id,
};
use serde_json::{Map, Value, json};
use uuid::{Uuid, uuid};

use super::access::GraphCall;
use super::entity::{GraphEntity, time_text};
use super::error::{GraphError, GraphResult};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::path::parse_object_id;
use super::query::ListQuery;
use super::replies::{created_reply, entity_reply, list_reply, no_content};
use super::rights::GraphRight;
use super::schema::{GraphProperty, PropertyKind, properties};
use super::tenant_objects::{path_member_id, path_principal, principal_by_object_id};

const ASSIGNMENT: &str = "AppRoleAssignment";
const ASSIGNMENTS: &str = "appRoleAssignments";
/// The role id of an assignment without a role.
const DEFAULT_ACCESS: Uuid = uuid!("00000000-0000-0000-0000-000000000000");

const ASSIGNMENT_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::read_only("deletedDateTime", PropertyKind::Text),
    GraphProperty::create_only("appRoleId", PropertyKind::Text),
    GraphProperty::read_only("createdDateTime", PropertyKind::Text),
    GraphProperty::read_only("principalDisplayName", PropertyKind::Text),
    GraphProperty::create_only("principalId", PropertyKind::Text),
    GraphProperty::read_only("principalType", PropertyKind::Text),
    GraphProperty::read_only("resourceDisplayName", PropertyKind::Text),
    GraphProperty::create_only("resourceId", PropertyKind::Text),
];

impl GraphEntity for AppRoleAssignment {
    const TARGET: FilterTarget = FilterTarget {
        resource: ASSIGNMENT,
        type_name: "appRoleAssignment",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("appRoleId"),
            FilterableProperty::text("principalId"),
            FilterableProperty::text("principalDisplayName"),
            FilterableProperty::text("resourceId"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = ASSIGNMENT_PROPERTIES;

    fn id(&self) -> String {
        self.id.clone()
    }

    fn filter_value<'a>(
        &'a self,
        directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "appRoleId" => FilterValue::text(self.app_role_id.to_string()),
            "principalId" => FilterValue::text(self.principal_id.to_string()),
            "resourceId" => FilterValue::text(self.resource_id.to_string()),
            "principalDisplayName" => match directory.object(self.principal_id) {
                Some(object) => FilterValue::text(object.display_name()),
                None => FilterValue::Null,
            },
            _ => FilterValue::Null,
        }
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let principal = directory.object(self.principal_id);
        properties([
            ("id", json!(self.id)),
            ("deletedDateTime", Value::Null),
            ("appRoleId", json!(self.app_role_id)),
            ("createdDateTime", json!(time_text(self.created))),
            ("principalDisplayName", json!(principal.map(|object| object.display_name()))),
            ("principalId", json!(self.principal_id)),
            ("principalType", json!(principal.and_then(|object| object.principal_type()))),
            ("resourceDisplayName", json!(resource_display_name(directory, self))),
            ("resourceId", json!(self.resource_id)),
        ])
    }
}

fn resource_display_name<'a>(
    directory: &'a EntraDirectory,
    assignment: &AppRoleAssignment,
) -> Option<&'a str> {
    let (tenant, id) = (&assignment.tenant, assignment.resource_id);
    let stored = directory.service_principal(id).map(|known| known.display_name.as_str());
    stored.or_else(|| first_party_by_object_id(tenant, id).map(|known| known.display_name))
}

/// The JSON of the assignments of a principal.
pub(super) fn assignments_json(directory: &EntraDirectory, principal: Uuid) -> Value {
    let assignments = directory.app_role_assignments_of(principal);
    assignments.map(|assignment| Value::Object(assignment.to_json(directory))).collect()
}

/// `GET {principal}/appRoleAssignments`: the roles that a principal has.
pub(super) fn list_assignments(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let principal = path_member_id(call)?;
    let query = ListQuery::parse::<AppRoleAssignment>(call)?;
    let assignments: Vec<_> = call.directory().app_role_assignments_of(principal).collect();
    list_reply(call, ASSIGNMENTS, &query, assignments.into_iter())
}

/// `GET {resource}/appRoleAssignedTo`: the principals that have roles of a resource.
pub(super) fn list_assigned_to(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let resource = path_principal(call)?.object_id;
    let query = ListQuery::parse::<AppRoleAssignment>(call)?;
    let directory = call.directory();
    let assignments = directory.app_role_assignments().values().filter(|assignment| {
        assignment.resource_id == resource && directory.object(assignment.principal_id).is_some()
    });
    list_reply(call, ASSIGNMENTS, &query, assignments)
}

/// `POST {principal}/appRoleAssignments` and `POST {resource}/appRoleAssignedTo`.
pub(super) fn create_assignment(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_any_grant(call)?;
    let target = path_member_id(call)?;
    let body = call.body()?;
    let id = |name: &str| {
        let text = body.get(name).and_then(Value::as_str);
        let text = text.ok_or_else(|| GraphError::value_required(name, ASSIGNMENT))?;
        parse_object_id(text).ok_or_else(|| GraphError::invalid_value(name, ASSIGNMENT))
    };
    let (principal, resource, role) = (id("principalId")?, id("resourceId")?, id("appRoleId")?);
    require_grant(call, resource)?;
    if target != principal && target != resource {
        return Err(GraphError::bad_request(
            "The principalId or the resourceId has to be that of the object in the URL.",
        ));
    }
    let assignment = AppRoleAssignment {
        id: call.next_opaque_id(),
        tenant: call.caller.tenant.clone(),
        principal_id: principal,
        resource_id: resource,
        app_role_id: role,
        created: call.context.now,
    };
    check_assignment(call, &assignment)?;
    let reply = created_reply(call, ASSIGNMENTS, &assignment)?;
    call.directory_mut().insert_app_role_assignment(assignment);
    Ok(reply)
}

pub(super) fn get_assignment(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let assignment = path_assignment(call)?;
    entity_reply(call, StatusCode::OK, ASSIGNMENTS, assignment)
}

pub(super) fn delete_assignment(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_any_grant(call)?;
    let assignment = path_assignment(call)?;
    require_grant(call, assignment.resource_id)?;
    let id = assignment.id.clone();
    call.directory_mut().remove_app_role_assignment(&id);
    Ok(no_content())
}

/// Rejects a caller who may not assign the roles of any resource.
fn require_any_grant(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    call.caller.require_any(&[GraphRight::GrantAppRoles, GraphRight::GrantGraphAppRoles])
}

/// Rejects a caller who may not assign the roles of a resource.
fn require_grant(call: &GraphCall<'_, '_>, resource: Uuid) -> Result<(), GraphError> {
    let is_graph = resource == graph_principal_id(&call.caller.tenant);
    let right = if is_graph { GraphRight::GrantGraphAppRoles } else { GraphRight::GrantAppRoles };
    call.caller.require(right)
}

fn path_assignment<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c AppRoleAssignment, GraphError> {
    let (target, id) = (path_member_id(call)?, call.path_parameter("child"));
    let found = call.directory().app_role_assignments().get(id);
    found
        .filter(|known| known.principal_id == target || known.resource_id == target)
        .ok_or_else(|| GraphError::not_found(id))
}

/// Checks that principal and role exist, and that the principal does not have the role yet.
fn check_assignment(
    call: &GraphCall<'_, '_>,
    assignment: &AppRoleAssignment,
) -> Result<(), GraphError> {
    let directory = call.directory();
    let principal = directory
        .object(assignment.principal_id)
        .filter(|object| call.is_own_tenant(object.tenant()))
        .filter(|object| !matches!(object, DirectoryObject::Application(_)))
        .ok_or_else(|| GraphError::not_found(assignment.principal_id))?;
    let resource = principal_by_object_id(call, assignment.resource_id)
        .ok_or_else(|| GraphError::not_found(assignment.resource_id))?;
    let member_type = match principal {
        DirectoryObject::ServicePrincipal(_) => "Application",
        _ => "User",
    };
    let json = resource.to_json(directory);
    let roles = json.get("appRoles").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_role = |role: &&Value| role.get("id") == Some(&json!(assignment.app_role_id));
    let is_allowed = |role: &Value| {
        let kinds = role.get("allowedMemberTypes").and_then(Value::as_array);
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == member_type))
    };
    let is_default = assignment.app_role_id == DEFAULT_ACCESS && roles.is_empty();
    if !is_default && !roles.iter().find(is_role).is_some_and(is_allowed) {
        return Err(GraphError::bad_request(format!(
            "Permission being assigned was not found on application '{}'.",
            resource.client_id
        )));
    }
    let mut existing = directory.app_role_assignments_of(assignment.principal_id);
    let is_twin = |known: &AppRoleAssignment| {
        known.resource_id == assignment.resource_id && known.app_role_id == assignment.app_role_id
    };
    if existing.any(is_twin) {
        return Err(GraphError::bad_request(
            "Permission being assigned already exists on the object",
        )
        .with_detail("InvalidUpdate", "appRoleId"));
    }
    Ok(())
}
