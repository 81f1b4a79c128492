//! Groups: create, read, change, delete, and their members.

use http::StatusCode;
use lanyard_emulator_state::directory::{DirectoryObject, Group};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::access::GraphCall;
use super::applications::check_quota;
use super::error::{GraphError, GraphResult};
use super::group_entity::{GROUP, GROUP_PROPERTIES};
use super::object_list::{list_objects, list_objects_of_type, list_references, stored_objects};
use super::owners::{
    already_referenced, bound_objects, bound_owners, invalid_reference, object_in_body,
};
use super::path::parse_object_id;
use super::query::ListQuery;
use super::replies::{count_reply, created_reply, entity_reply, list_reply, no_content};
use super::rights::GraphRight;
use super::schema::{optional_text, required_text, store_properties};
use super::tenant_objects::{path_group, path_group_for, tenant_groups};

/// The name of the collection.
pub(super) const GROUPS: &str = "groups";
/// The largest number of members that one request adds.
const MAX_BOUND_MEMBERS: usize = 20;

pub(super) fn list_groups(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let query = ListQuery::parse::<Group>(call)?;
    list_reply(call, GROUPS, &query, tenant_groups(call))
}

pub(super) fn count_groups(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    count_reply(call, tenant_groups(call))
}

pub(super) fn get_group(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    entity_reply(call, StatusCode::OK, GROUPS, path_group(call)?)
}

pub(super) fn create_group(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require_any(&[GraphRight::CreateGroups, GraphRight::WriteGroups])?;
    check_quota(call)?;
    let body = call.body()?;
    let object_id = call.context.ids.next_uuid();
    let mut group = Group {
        object_id,
        tenant: call.caller.tenant.clone(),
        display_name: required_text(&body, "displayName", GROUP)?.to_owned(),
        created: call.context.now,
        members: bound_members(call, &body, object_id)?.into_iter().collect(),
        owners: bound_owners(call, &body)?,
        properties: Map::new(),
    };
    required_text(&body, "mailNickname", GROUP)?;
    for flag in ["mailEnabled", "securityEnabled"] {
        if !body.get(flag).is_some_and(Value::is_boolean) {
            return Err(GraphError::value_required(flag, GROUP));
        }
    }
    check_group_kind(&body)?;
    store_properties(&mut group.properties, &body, GROUP_PROPERTIES, GROUP, true)?;
    if group.owners.is_empty() && call.caller.is_user {
        group.owners.push(call.caller.object_id);
    }
    let reply = created_reply(call, GROUPS, &group)?;
    call.directory_mut().insert_group(group);
    Ok(reply)
}

pub(super) fn update_group(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let mut group = path_group_for(call, GraphRight::WriteGroups)?.clone();
    let body = call.body()?;
    if let Some(name) = optional_text(&body, "displayName", GROUP)? {
        name.clone_into(&mut group.display_name);
    }
    check_group_kind(&body)?;
    store_properties(&mut group.properties, &body, GROUP_PROPERTIES, GROUP, false)?;
    for member in bound_members(call, &body, group.object_id)? {
        if !group.members.insert(member) {
            return Err(already_referenced("members"));
        }
    }
    call.directory_mut().insert_group(group);
    Ok(no_content())
}

pub(super) fn delete_group(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require_any(&[GraphRight::DeleteGroups, GraphRight::WriteOwnedGroups])?;
    let group = path_group(call)?;
    let owns = group.owners.contains(&call.caller.object_id);
    if !call.caller.has(GraphRight::DeleteGroups) && !owns {
        return Err(GraphError::denied());
    }
    let object_id = group.object_id;
    call.directory_mut().remove_group(object_id);
    Ok(no_content())
}

pub(super) fn list_members(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let members = member_ids(path_group(call)?);
    list_objects(call, &stored_objects(call, &members))
}

pub(super) fn list_members_of_type(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let members = member_ids(path_group(call)?);
    let type_name = call.path_parameter("child");
    list_objects_of_type(call, stored_objects(call, &members), type_name)
}

pub(super) fn list_member_references(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let members = member_ids(path_group(call)?);
    Ok(list_references(call, &stored_objects(call, &members)))
}

/// The members of a group and of the groups in it.
pub(super) fn list_transitive_members(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadGroups)?;
    let mut members = member_ids(path_group(call)?);
    let mut next = 0;
    while let Some(id) = members.get(next) {
        let nested = call.directory().group(*id).map(member_ids).unwrap_or_default();
        for member in nested {
            if !members.contains(&member) {
                members.push(member);
            }
        }
        next += 1;
    }
    list_objects(call, &stored_objects(call, &members))
}

pub(super) fn add_member(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let group = path_group_for(call, GraphRight::WriteGroupMembers)?;
    let group_id = group.object_id;
    let body = call.body()?;
    let member = valid_member(object_in_body(call, &body)?, group_id)?;
    if group.members.contains(&member) {
        return Err(already_referenced("members"));
    }
    call.directory_mut().add_member(group_id, member);
    Ok(no_content())
}

pub(super) fn remove_member(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let group = path_group_for(call, GraphRight::WriteGroupMembers)?.object_id;
    let key = call.path_parameter("child");
    let member = parse_object_id(key);
    let is_removed = member.is_some_and(|member| call.directory_mut().remove_member(group, member));
    if is_removed { Ok(no_content()) } else { Err(GraphError::not_found(key)) }
}

fn member_ids(group: &Group) -> Vec<Uuid> {
    group.members.iter().copied().collect()
}

/// The members that `members@odata.bind` names.
fn bound_members(
    call: &GraphCall<'_, '_>,
    body: &Map<String, Value>,
    group: Uuid,
) -> Result<Vec<Uuid>, GraphError> {
    let objects = bound_objects(call, body, "members@odata.bind")?;
    if objects.len() > MAX_BOUND_MEMBERS {
        return Err(GraphError::bad_request(format!(
            "The number of members in one request must not exceed {MAX_BOUND_MEMBERS}."
        )));
    }
    objects.into_iter().map(|object| valid_member(object, group)).collect()
}

/// The object id of a possible member of `group`: a user, a service principal or another group.
fn valid_member(object: DirectoryObject<'_>, group: Uuid) -> Result<Uuid, GraphError> {
    match object {
        DirectoryObject::Application(_) => Err(invalid_reference(object, "members")),
        other if other.object_id() == group => Err(invalid_reference(other, "members")),
        other => Ok(other.object_id()),
    }
}

/// Rejects groups other than security groups with assigned members.
fn check_group_kind(body: &Map<String, Value>) -> Result<(), GraphError> {
    let kinds = body.get("groupTypes").and_then(Value::as_array);
    if kinds.is_some_and(|kinds| !kinds.is_empty()) {
        return Err(GraphError::not_implemented(
            "The emulator implements security groups with assigned members: 'groupTypes' must be empty.",
        ));
    }
    if body.get("mailEnabled") == Some(&Value::Bool(true)) {
        return Err(GraphError::bad_request(
            "The service does not currently support writes of mail-enabled groups. Please ensure that the mail-enablement property is unset and the security-enablement property is set.",
        ));
    }
    if body.get("securityEnabled") == Some(&Value::Bool(false)) {
        return Err(GraphError::bad_request(
            "A group that is neither mail-enabled nor security-enabled is not supported.",
        )
        .with_detail("InvalidValue", "securityEnabled"));
    }
    Ok(())
}
