//! Group memberships of users, service principals and groups.

use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::entity::{GraphEntity, json_reply, list_reply};
use super::error::GraphError;
use super::filter::{FilterTarget, FilterValue};
use super::path::{ObjectKey, odata_segments, parse_object_id};
use super::query::ListQuery;
use super::rights::GraphRight;
use super::schema::GraphProperty;
use super::{service_principals, users};
use crate::directory::{DirectoryObject, DirectoryRole, EntraDirectory};
use crate::request::ServiceReply;

/// The largest number of group ids in one check.
const MAX_CHECKED_GROUPS: usize = 20;

type GraphResult = Result<ServiceReply, GraphError>;

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
        match (self, property) {
            (Self::Group(group), _) => group.filter_value(directory, property),
            (Self::Role { .. }, "id") => FilterValue::text(self.id()),
            (Self::Role { role, .. }, _) => FilterValue::text(role.display_name()),
        }
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let role = match self {
            Self::Group(group) => return group.to_json(directory),
            Self::Role { role, .. } => role,
        };
        [
            ("@odata.type", json!("#microsoft.graph.directoryRole")),
            ("id", json!(self.id())),
            ("deletedDateTime", Value::Null),
            ("description", json!(role.display_name())),
            ("displayName", json!(role.display_name())),
            ("roleTemplateId", json!(role.template_id())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
    }
}

/// `memberOf`: the groups and directory roles of which the object is a direct member.
pub(super) fn list_member_of(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let member = path_member(call)?.object_id();
    let groups = call.directory().direct_groups_of(member).map(DirectoryObject::Group).collect();
    list_memberships(call, groups, &[member])
}

/// `transitiveMemberOf`: like `memberOf`, through groups in groups.
pub(super) fn list_transitive_member_of(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let ids = call.directory().principal_and_group_ids(path_member(call)?.object_id());
    let groups = ids.iter().skip(1).filter_map(|id| call.directory().group(*id));
    let groups = groups.map(DirectoryObject::Group).collect();
    list_memberships(call, groups, &ids)
}

fn list_memberships(
    call: &GraphCall<'_, '_>,
    groups: Vec<DirectoryObject<'_>>,
    principals: &[Uuid],
) -> GraphResult {
    let query = ListQuery::parse(call)?;
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
    list_reply(call, "directoryObjects", &query, memberships.iter())
}

/// `getMemberGroups` and `getMemberObjects`: the ids of all groups, through groups in groups.
pub(super) fn get_member_groups(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let body = call.body()?;
    if !body.get("securityEnabledOnly").is_none_or(Value::is_boolean) {
        return Err(GraphError::invalid_value("securityEnabledOnly", "DirectoryObject"));
    }
    let groups = transitive_groups(call)?;
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
    let groups = transitive_groups(call)?;
    let found: Vec<_> = wanted.into_iter().filter(|id| groups.contains(id)).collect();
    Ok(ids_reply(call, &found))
}

fn transitive_groups(call: &GraphCall<'_, '_>) -> Result<Vec<Uuid>, GraphError> {
    let member = path_member(call)?.object_id();
    Ok(call.directory().principal_and_group_ids(member).split_off(1))
}

fn ids_reply(call: &GraphCall<'_, '_>, ids: &[Uuid]) -> ServiceReply {
    let context = format!("{}/$metadata#Collection(Edm.String)", call.root_url());
    json_reply(StatusCode::OK, &json!({ "@odata.context": context, "value": ids }))
}

/// Users may read their own memberships.
fn require_read(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    if call.path_parameter("id").is_empty() {
        return Ok(());
    }
    call.caller.require(GraphRight::ReadGroups)
}

/// The object in the path, of the type that the collection in the path has; the signed-in user for `/me`.
pub(super) fn path_member<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<DirectoryObject<'c>, GraphError> {
    let segment = call.path_parameter("id");
    let collection =
        odata_segments(call.context.request.segments()).into_iter().nth(1).unwrap_or_default();
    let is_collection = |name: &str| collection.eq_ignore_ascii_case(name);
    if segment.is_empty() || is_collection(users::USERS) {
        return users::path_user(call).map(DirectoryObject::User);
    }
    if is_collection(service_principals::SERVICE_PRINCIPALS) {
        return service_principals::path_stored_principal(call)
            .map(DirectoryObject::ServicePrincipal);
    }
    let found = match ObjectKey::parse(segment) {
        ObjectKey::ObjectId(id) => call.directory().object(id),
        ObjectKey::Alternate(..) | ObjectKey::Text(_) => {
            return Err(GraphError::bad_request(format!("Invalid object identifier '{segment}'.")));
        }
    };
    found
        .filter(|object| call.is_own_tenant(object.tenant()))
        .filter(|object| !is_collection("groups") || matches!(object, DirectoryObject::Group(_)))
        .ok_or_else(|| GraphError::not_found(segment))
}
