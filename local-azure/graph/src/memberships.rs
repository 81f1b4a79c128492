//! Group memberships of users, service principals and groups.

use http::StatusCode;
use lanyard_emulator_state::directory::{DirectoryObject, DirectoryRole, EntraDirectory};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::directory_objects::DIRECTORY_OBJECTS;
use super::entity::GraphEntity;
use super::error::{GraphError, GraphResult};
use super::filter::{FilterTarget, FilterValue};
use super::path::{PathCollection, parse_object_id};
use super::query::ListQuery;
use super::replies::{json_reply, list_reply};
use super::rights::GraphRight;
use super::schema::{GraphProperty, properties};
use super::tenant_objects::path_member_id;

/// The largest number of group ids in one check.
const MAX_CHECKED_GROUPS: usize = 20;

/// A group or a directory role of which an object is a member.
enum Membership<'a> {
    Group(DirectoryObject<'a>),
    Role { role: DirectoryRole, tenant: &'a str },
}

impl GraphEntity for Membership<'_> {
    const TARGET: FilterTarget = <DirectoryObject<'_> as GraphEntity>::TARGET;
    const PROPERTIES: &'static [GraphProperty] = &[];

    fn id(&self) -> String {
        match self {
            Self::Group(group) => group.object_id().to_string(),
            Self::Role { role, tenant } => {
                Uuid::new_v5(&role.template_id(), tenant.as_bytes()).to_string()
            }
        }
    }

    fn filter_value<'a>(
        &'a self,
        directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match self {
            Self::Group(group) => group.filter_value(directory, property),
            Self::Role { role, .. } => FilterValue::text(role.display_name()),
        }
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let role = match self {
            Self::Group(group) => return group.to_json(directory),
            Self::Role { role, .. } => role,
        };
        properties([
            ("@odata.type", json!("#microsoft.graph.directoryRole")),
            ("id", json!(self.id())),
            ("deletedDateTime", Value::Null),
            ("description", json!(role.display_name())),
            ("displayName", json!(role.display_name())),
            ("roleTemplateId", json!(role.template_id())),
        ])
    }
}

/// `memberOf`: the groups and directory roles of which the object is a direct member.
pub(super) fn list_member_of(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let member = path_member_id(call)?;
    let groups = call.directory().direct_groups_of(member).map(DirectoryObject::Group).collect();
    list_memberships(call, groups, &[member])
}

/// `transitiveMemberOf`: like `memberOf`, through groups in groups.
pub(super) fn list_transitive_member_of(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let ids = call.directory().principal_and_group_ids(path_member_id(call)?);
    let groups = ids.iter().skip(1).filter_map(|id| call.directory().group(*id));
    let groups = groups.map(DirectoryObject::Group).collect();
    list_memberships(call, groups, &ids)
}

fn list_memberships(
    call: &GraphCall<'_, '_>,
    groups: Vec<DirectoryObject<'_>>,
    principals: &[Uuid],
) -> GraphResult {
    let query = ListQuery::parse::<Membership<'_>>(call)?;
    let type_name = call.path_parameter("child");
    let wants = |kind: &str| type_name.is_empty() || type_name.eq_ignore_ascii_case(kind);
    if !wants("group") && !wants("directoryRole") {
        return Err(GraphError::malformed(format!(
            "Resource not found for the segment '{type_name}'."
        )));
    }
    let tenant = call.caller.tenant.as_str();
    let roles = call
        .directory()
        .directory_role_assignments()
        .values()
        .filter(|assignment| principals.contains(&assignment.principal_id))
        .filter(|_| wants("directoryRole"))
        .map(|assignment| Membership::Role { role: assignment.role, tenant });
    let groups = groups.into_iter().filter(|_| wants("group")).map(Membership::Group);
    let memberships: Vec<_> = groups.chain(roles).collect();
    list_reply(call, DIRECTORY_OBJECTS, &query, memberships.iter())
}

/// `getMemberGroups` and `getMemberObjects`: the ids of all groups, through groups in groups.
pub(super) fn get_member_groups(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let groups = transitive_groups(call)?;
    if !call.body()?.get("securityEnabledOnly").is_none_or(Value::is_boolean) {
        return Err(GraphError::invalid_value("securityEnabledOnly", "DirectoryObject"));
    }
    Ok(ids_reply(call, &groups))
}

/// `checkMemberGroups`: those of the given groups of which the object is a member.
pub(super) fn check_member_groups(call: &mut GraphCall<'_, '_>) -> GraphResult {
    check_groups(call, "groupIds")
}

/// `checkMemberObjects`: like `checkMemberGroups`.
pub(super) fn check_member_objects(call: &mut GraphCall<'_, '_>) -> GraphResult {
    check_groups(call, "ids")
}

fn check_groups(call: &GraphCall<'_, '_>, property: &str) -> GraphResult {
    require_read(call)?;
    let groups = transitive_groups(call)?;
    let body = call.body()?;
    let given = body.get(property).and_then(Value::as_array);
    let given = given.ok_or_else(|| GraphError::value_required(property, "DirectoryObject"))?;
    if given.len() > MAX_CHECKED_GROUPS {
        return Err(GraphError::bad_request(format!(
            "Too many group ids were provided. The maximum is {MAX_CHECKED_GROUPS}."
        )));
    }
    let parse = |id: &Value| {
        let id = id.as_str().unwrap_or_default();
        parse_object_id(id).ok_or_else(|| GraphError::bad_request(format!("Invalid GUID:{id}")))
    };
    let wanted = given.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let found: Vec<_> = wanted.into_iter().filter(|id| groups.contains(id)).collect();
    Ok(ids_reply(call, &found))
}

fn transitive_groups(call: &GraphCall<'_, '_>) -> Result<Vec<Uuid>, GraphError> {
    let member = path_member_id(call)?;
    Ok(call.directory().principal_and_group_ids(member).split_off(1))
}

fn ids_reply(call: &GraphCall<'_, '_>, ids: &[Uuid]) -> ServiceReply {
    let context = format!("{}/$metadata#Collection(Edm.String)", call.root_url());
    json_reply(StatusCode::OK, &json!({ "@odata.context": context, "value": ids }))
}

/// Rejects a caller who may not read group memberships; users may read their own.
fn require_read(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    match call.collection() {
        Some(PathCollection::Me) => Ok(()),
        _ => call.caller.require(GraphRight::ReadGroups),
    }
}
