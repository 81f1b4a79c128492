//! Directory roles and their assignments (`roleManagement/directory`).

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::access::GraphCall;
use super::entity::{GraphEntity, created_reply, entity_reply, list_reply, no_content};
use super::error::{GraphError, GraphResult};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::path::parse_object_id;
use super::query::ListQuery;
use super::rights::GraphRight;
use super::schema::{GraphProperty, PropertyKind, properties};
use crate::directory::{DirectoryObject, DirectoryRole, DirectoryRoleAssignment, EntraDirectory};

const ASSIGNMENT: &str = "UnifiedRoleAssignment";
const ASSIGNMENTS: &str = "roleManagement/directory/roleAssignments";
const DEFINITIONS: &str = "roleManagement/directory/roleDefinitions";

impl GraphEntity for DirectoryRole {
    const TARGET: FilterTarget = FilterTarget {
        resource: "UnifiedRoleDefinition",
        type_name: "unifiedRoleDefinition",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("displayName"),
            FilterableProperty::boolean("isBuiltIn"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = &[];

    fn id(&self) -> String {
        self.template_id().to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "isBuiltIn" => FilterValue::Boolean(true),
            _ => FilterValue::text(self.display_name()),
        }
    }

    fn to_json(&self, _directory: &EntraDirectory) -> Map<String, Value> {
        properties([
            ("id", json!(self.template_id())),
            ("description", json!(self.display_name())),
            ("displayName", json!(self.display_name())),
            ("isBuiltIn", json!(true)),
            ("isEnabled", json!(true)),
            ("resourceScopes", json!(["/"])),
            ("templateId", json!(self.template_id())),
            ("version", json!("1")),
            ("rolePermissions", json!([])),
        ])
    }
}

const ASSIGNMENT_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::create_only("principalId", PropertyKind::Text),
    GraphProperty::create_only("directoryScopeId", PropertyKind::Text),
    GraphProperty::create_only("roleDefinitionId", PropertyKind::Text),
];

impl GraphEntity for DirectoryRoleAssignment {
    const TARGET: FilterTarget = FilterTarget {
        resource: ASSIGNMENT,
        type_name: "unifiedRoleAssignment",
        properties: &[
            FilterableProperty::text("principalId"),
            FilterableProperty::text("roleDefinitionId"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = ASSIGNMENT_PROPERTIES;

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "principalId" => FilterValue::text(self.principal_id.to_string()),
            _ => FilterValue::text(self.role.template_id().to_string()),
        }
    }

    fn to_json(&self, _directory: &EntraDirectory) -> Map<String, Value> {
        properties([
            ("id", json!(self.id)),
            ("principalId", json!(self.principal_id)),
            ("directoryScopeId", json!("/")),
            ("roleDefinitionId", json!(self.role.template_id())),
        ])
    }
}

pub(super) fn list_role_definitions(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadDirectoryRoles)?;
    let query = ListQuery::parse::<DirectoryRole>(call)?;
    list_reply(call, DEFINITIONS, &query, DirectoryRole::ALL.iter())
}

pub(super) fn get_role_definition(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadDirectoryRoles)?;
    let segment = call.path_parameter("id");
    let role = parse_object_id(segment).and_then(DirectoryRole::from_template_id);
    let role = role.ok_or_else(|| GraphError::not_found(segment))?;
    entity_reply(call, StatusCode::OK, DEFINITIONS, &role)
}

pub(super) fn list_role_assignments(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadDirectoryRoles)?;
    let query = ListQuery::parse::<DirectoryRoleAssignment>(call)?;
    let assignments = call.directory().directory_role_assignments().values();
    let own = assignments.filter(|assignment| call.is_own_tenant(&assignment.tenant));
    list_reply(call, ASSIGNMENTS, &query, own)
}

pub(super) fn get_role_assignment(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadDirectoryRoles)?;
    entity_reply(call, StatusCode::OK, ASSIGNMENTS, path_assignment(call)?)
}

pub(super) fn create_role_assignment(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::AssignDirectoryRoles)?;
    let body = call.body()?;
    let text = |name: &str| {
        let text = body.get(name).and_then(Value::as_str);
        text.ok_or_else(|| GraphError::value_required(name, ASSIGNMENT))
    };
    let principal = text("principalId")?;
    let object = parse_object_id(principal).and_then(|id| call.directory().object(id));
    let object = object
        .filter(|object| call.is_own_tenant(object.tenant()))
        .filter(|object| !matches!(object, DirectoryObject::Application(_)))
        .ok_or_else(|| GraphError::not_found(principal))?;
    let role = text("roleDefinitionId")?;
    let role = parse_object_id(role)
        .and_then(DirectoryRole::from_template_id)
        .ok_or_else(|| GraphError::not_found(role))?;
    if text("directoryScopeId")? != "/" {
        return Err(GraphError::not_implemented(
            "The emulator assigns directory roles in the scope '/'.",
        ));
    }
    let assignment = DirectoryRoleAssignment {
        principal_id: object.object_id(),
        tenant: call.caller.tenant.clone(),
        role,
        id: call.context.ids.next_uuid(),
    };
    let is_twin = |known: &DirectoryRoleAssignment| {
        known.principal_id == assignment.principal_id && known.role == assignment.role
    };
    if call.directory().directory_role_assignments().values().any(is_twin) {
        return Err(GraphError::bad_request(
            "A conflicting object with one or more of the specified property values is present in the directory.",
        ));
    }
    let reply = created_reply(call, ASSIGNMENTS, &assignment)?;
    call.directory_mut().insert_directory_role_assignment(assignment);
    Ok(reply)
}

pub(super) fn delete_role_assignment(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::AssignDirectoryRoles)?;
    let id = path_assignment(call)?.id;
    call.directory_mut().remove_directory_role_assignment(id);
    Ok(no_content())
}

fn path_assignment<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<&'c DirectoryRoleAssignment, GraphError> {
    let segment = call.path_parameter("id");
    let assignments = call.directory().directory_role_assignments();
    let found = parse_object_id(segment).and_then(|id| assignments.get(&id));
    found
        .filter(|assignment| call.is_own_tenant(&assignment.tenant))
        .ok_or_else(|| GraphError::not_found(segment))
}
