//! Management groups. Reference: Microsoft.Management, 2020-05-01 to 2021-04-01. Changes are complete with the
//! reply.

use http::StatusCode;
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::{Value, json};

use super::access::{
    authenticate, authorize, authorize_call, empty_reply, json_body, json_reply, list_reply,
};
use super::error::{ArmServiceError, bad_request, conflict};
use crate::authorization::{AccessScope, RoleAssignment};
use crate::management_groups::{ManagementGroup, ManagementGroupError};
use crate::operation_context::OperationContext;
use crate::operations::ServiceOperation;
use crate::request::ServiceReply;
use crate::token::AuthenticatedCaller;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!(
        "ManagementGroups_List",
        GET,
        "/providers/Microsoft.Management/managementGroups",
        list_groups
    ),
    full!(
        "ManagementGroups_Get",
        GET,
        "/providers/Microsoft.Management/managementGroups/{name}",
        get_group
    ),
    full!(
        "ManagementGroups_CreateOrUpdate",
        PUT,
        "/providers/Microsoft.Management/managementGroups/{name}",
        put_group
    ),
    full!(
        "ManagementGroups_Delete",
        DELETE,
        "/providers/Microsoft.Management/managementGroups/{name}",
        delete_group
    ),
    full!(
        "ManagementGroupSubscriptions_Create",
        PUT,
        "/providers/Microsoft.Management/managementGroups/{name}/subscriptions/{member}",
        add_subscription
    ),
    full!(
        "ManagementGroupSubscriptions_Delete",
        DELETE,
        "/providers/Microsoft.Management/managementGroups/{name}/subscriptions/{member}",
        remove_subscription
    ),
];

const GROUP: &str = "Microsoft.Management/managementGroups";

/// Lists the groups that the caller may read.
fn list_groups(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let root = root_group(call, &caller);
    let groups: Vec<_> =
        call.azure().management_groups.of_tenant(&caller.tenant).cloned().collect();
    let items = std::iter::once(root)
        .chain(groups)
        .filter(|group| {
            let scope = AccessScope::management_group(&group.name);
            super::access::is_authorized(call, &caller, &format!("{GROUP}/read"), &scope)
        })
        .map(|group| {
            let properties = json!({ "tenantId": group.tenant, "displayName": group.display_name });
            resource_json(&group, &properties)
        })
        .collect();
    list_reply(call, items)
}

fn get_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = requested_group(call);
    let caller = authorize_call(call, &format!("{GROUP}/read"), &scope)?;
    let group = find_group(call, &caller)?;
    let mut wire = group_json(call, &group);
    let expands_children =
        call.request.query("$expand").is_some_and(|expand| expand.eq_ignore_ascii_case("children"));
    if expands_children {
        wire["properties"]["children"] = children_json(call, &group);
    }
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `PUT`: every caller may create a group below the root group, and becomes its owner.
fn put_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = requested_group(call);
    let caller = authenticate(call)?;
    let write = format!("{GROUP}/write");
    let name = call.path_parameter("name");
    if call.azure().directory.tenants.iter().any(|tenant| tenant.has_id(name)) {
        return put_root_group(call, &caller, &scope);
    }
    let existing = call.azure().management_groups.group(name).cloned();
    if existing.is_some() {
        authorize(call, &caller, &write, &scope)?;
    }
    let body = json_body(call)?;
    let given_parent = body.pointer("/properties/details/parent/id").and_then(Value::as_str);
    let parent = match given_parent {
        None => existing.as_ref().and_then(|group| group.parent.clone()),
        Some(id) => parse_parent(call, &caller, &write, id)?,
    };
    check_group_name(name)?;
    let display_name = body.pointer("/properties/displayName").and_then(Value::as_str);
    let known_name = existing.as_ref().map(|group| group.display_name.clone());
    let group = ManagementGroup {
        display_name: display_name
            .map(str::to_owned)
            .or(known_name)
            .unwrap_or_else(|| name.to_owned()),
        name: existing.as_ref().map_or_else(|| name.to_owned(), |group| group.name.clone()),
        tenant: caller.tenant.clone(),
        parent,
        updated_on: call.now,
        updated_by: caller.object_id,
    };
    if let Err(problem) = call.azure_mut().management_groups.put(group.clone()) {
        return Err(management_group_error(problem));
    }
    if existing.is_none() {
        make_owner(call, &caller, scope);
    }
    let wire = group_json(call, &group);
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `PUT` of the root group: changes its display name. The root group has the id of the tenant, so no other
/// group can have the id of a tenant.
fn put_root_group(
    call: &mut OperationContext<'_>,
    caller: &AuthenticatedCaller,
    scope: &AccessScope,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    if !caller.tenant.as_str().eq_ignore_ascii_case(name) {
        let message = format!("The management group ID '{name}' is that of another tenant.");
        return Err(bad_request("InvalidManagementGroupId", message));
    }
    authorize(call, caller, &format!("{GROUP}/write"), scope)?;
    let body = json_body(call)?;
    if body.pointer("/properties/details/parent/id").is_some_and(|parent| !parent.is_null()) {
        return Err(management_group_error(ManagementGroupError::RootGroup));
    }
    if let Some(name) = body.pointer("/properties/displayName").and_then(Value::as_str) {
        let (tenant, name) = (caller.tenant.clone(), name.to_owned());
        call.azure_mut().management_groups.rename_root(tenant, name);
    }
    let wire = group_json(call, &root_group(call, caller));
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn make_owner(call: &mut OperationContext<'_>, caller: &AuthenticatedCaller, scope: AccessScope) {
    let (name, now) = (call.ids.next_uuid(), call.now);
    let principal = call.azure().directory.object(caller.object_id);
    let principal_type = principal.and_then(|object| object.principal_type());
    let assignment = RoleAssignment {
        principal_type: principal_type.unwrap_or("ServicePrincipal").to_owned(),
        created_by: Some(caller.object_id),
        ..RoleAssignment::new(name, scope, RoleDefinitionId::OWNER, caller.object_id, now)
    };
    if let Err(problem) = call.azure_mut().authorization.assign(assignment) {
        tracing::debug!(%problem, "the creator of a management group is its owner already");
    }
}

/// The name of the parent in a body, for which the caller needs the permission to write; `None` for the root
/// group, for which it does not.
fn parse_parent(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    write: &str,
    id: &str,
) -> Result<Option<String>, ServiceReply> {
    let scope: AccessScope = super::access::parse_request_scope(id)?;
    let Some(name) = scope.management_group_name() else {
        return Err(bad_request("InvalidParentId", format!("'{id}' is no management group.")));
    };
    if name.eq_ignore_ascii_case(caller.tenant.as_str()) {
        return Ok(None);
    }
    authorize(call, caller, write, &scope)?;
    Ok(Some(name.to_owned()))
}

fn delete_group(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = requested_group(call);
    let caller = authorize_call(call, &format!("{GROUP}/delete"), &scope)?;
    let name = call.path_parameter("name");
    if caller.tenant.as_str().eq_ignore_ascii_case(name) {
        return Err(management_group_error(ManagementGroupError::RootGroup));
    }
    match call.azure_mut().management_groups.remove(name) {
        Ok(None) => Ok(empty_reply(call, StatusCode::NO_CONTENT)),
        Ok(Some(_)) => {
            call.azure_mut().authorization.remove_within(&scope);
            Ok(empty_reply(call, StatusCode::OK))
        }
        Err(problem) => Err(management_group_error(problem)),
    }
}

fn add_subscription(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let group = authorize_move(call, &caller)?;
    let member = call.path_parameter("member");
    let is_root = group.name.eq_ignore_ascii_case(caller.tenant.as_str());
    let target = (!is_root).then(|| group.name.clone());
    call.azure_mut().management_groups.move_subscription(member, target.as_deref());
    let wire = json!({
        "id": format!("/providers/{GROUP}/{}/subscriptions/{member}", group.name),
        "type": format!("{GROUP}/subscriptions"),
        "name": member,
        "properties": {
            "tenant": caller.tenant,
            "displayName": call.azure().resources.subscription(member).map(|it| it.name.clone()),
            "parent": { "id": format!("/providers/{GROUP}/{}", group.name) },
            "state": "Active",
        },
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `DELETE`: moves the subscription back to the root group.
fn remove_subscription(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let group = authorize_move(call, &caller)?;
    let member = call.path_parameter("member");
    let current = call.azure().management_groups.group_of_subscription(member);
    if current.is_some_and(|current| current.name == group.name) {
        call.azure_mut().management_groups.move_subscription(member, None);
    }
    Ok(empty_reply(call, StatusCode::NO_CONTENT))
}

/// Checks the permissions to move the subscription in the path, and returns the group in the path. Neither the
/// old nor the new parent needs a permission if it is the root group.
fn authorize_move(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
) -> Result<ManagementGroup, ServiceReply> {
    let member = call.path_parameter("member");
    let subscription = call.azure().resources.subscription(member);
    if subscription.is_none_or(|known| known.tenant != caller.tenant) {
        return Err(ArmServiceError::SubscriptionNotFound(member).to_reply());
    }
    let scope = super::access::parse_request_scope(&format!("/subscriptions/{member}"))?;
    for action in ["write", "delete"] {
        let action = format!("Microsoft.Authorization/roleAssignments/{action}");
        authorize(call, caller, &action, &scope)?;
    }
    let write = format!("{GROUP}/write");
    let target = requested_group(call);
    if target != AccessScope::management_group(caller.tenant.as_str()) {
        authorize(call, caller, &write, &target)?;
    }
    if let Some(current) = call.azure().management_groups.group_of_subscription(member) {
        authorize(call, caller, &write, &AccessScope::management_group(&current.name))?;
    }
    find_group(call, caller)
}

/// The scope of the group in the path.
fn requested_group(call: &OperationContext<'_>) -> AccessScope {
    AccessScope::management_group(call.path_parameter("name"))
}

fn find_group(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
) -> Result<ManagementGroup, ServiceReply> {
    let name = call.path_parameter("name");
    let root = root_group(call, caller);
    if root.name.eq_ignore_ascii_case(name) {
        return Ok(root);
    }
    let group = call.azure().management_groups.group_in_tenant(name, &caller.tenant);
    group.cloned().ok_or_else(|| group_not_found(name))
}

/// The error for a management group that does not exist.
pub(super) fn group_not_found(name: &str) -> ServiceReply {
    let message = format!("The management group '{name}' cannot be found.");
    ArmServiceError::Other(StatusCode::NOT_FOUND, "NotFound", message).to_reply()
}

fn root_group(call: &OperationContext<'_>, caller: &AuthenticatedCaller) -> ManagementGroup {
    ManagementGroup {
        name: caller.tenant.to_string(),
        display_name: call.azure().management_groups.root_name(&caller.tenant).to_owned(),
        tenant: caller.tenant.clone(),
        parent: None,
        updated_on: call.now,
        updated_by: uuid::Uuid::nil(),
    }
}

/// Checks a new group's name: 1 to 90 characters.
fn check_group_name(name: &str) -> Result<(), ServiceReply> {
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '(' | ')' | '.');
    if (1..=90).contains(&name.len()) && name.chars().all(is_allowed) && !name.ends_with('.') {
        return Ok(());
    }
    let message = format!(
        "The management group ID '{name}' has to have 1 to 90 letters, digits, '-', '_', '(', ')' and '.', and must not end with '.'."
    );
    Err(bad_request("InvalidManagementGroupId", message))
}

fn management_group_error(problem: ManagementGroupError) -> ServiceReply {
    let code = match problem {
        ManagementGroupError::ParentNotFound => "ParentManagementGroupNotFound",
        ManagementGroupError::Cycle | ManagementGroupError::TooDeep => "InvalidParentId",
        ManagementGroupError::RootGroup => "InvalidManagementGroupId",
        ManagementGroupError::HasChildren => "ManagementGroupHasChildren",
        ManagementGroupError::OtherTenant => {
            return conflict("ManagementGroupIdInUse", format!("{problem}."));
        }
    };
    bad_request(code, format!("The management group cannot be changed: {problem}."))
}

fn group_json(call: &OperationContext<'_>, group: &ManagementGroup) -> Value {
    let groups = &call.azure().management_groups;
    let is_root = group.name.eq_ignore_ascii_case(group.tenant.as_str());
    let parent_name = group.parent.as_deref().unwrap_or(group.tenant.as_str());
    let parent_title = match &group.parent {
        None => groups.root_name(&group.tenant),
        Some(parent) => groups.group(parent).map_or("", |parent| &parent.display_name),
    };
    let parent = json!({
        "id": format!("/providers/{GROUP}/{parent_name}"),
        "name": parent_name,
        "displayName": parent_title,
    });
    let properties = json!({
        "tenantId": group.tenant,
        "displayName": group.display_name,
        "details": {
            "version": 1,
            "updatedTime": group.updated_on.to_string(),
            "updatedBy": group.updated_by,
            "parent": if is_root { Value::Null } else { parent },
        },
    });
    resource_json(group, &properties)
}

fn resource_json(group: &ManagementGroup, properties: &Value) -> Value {
    json!({
        "id": format!("/providers/{GROUP}/{}", group.name),
        "type": GROUP,
        "name": group.name,
        "properties": properties,
    })
}

/// The groups and subscriptions directly below a group.
fn children_json(call: &OperationContext<'_>, group: &ManagementGroup) -> Value {
    let azure = call.azure();
    let is_root = group.name.eq_ignore_ascii_case(group.tenant.as_str());
    let parent = (!is_root).then_some(group.name.as_str());
    let groups = azure.management_groups.children_of(&group.tenant, parent).map(|child| {
        json!({
            "type": GROUP,
            "id": format!("/providers/{GROUP}/{}", child.name),
            "name": child.name,
            "displayName": child.display_name,
        })
    });
    let subscriptions = azure
        .resources
        .subscriptions
        .iter()
        .filter(|subscription| subscription.tenant == group.tenant)
        .filter(|subscription| {
            let of = azure.management_groups.group_of_subscription(subscription.id.as_str());
            of.map(|of| of.name.as_str()) == parent
        })
        .map(|subscription| {
            json!({
                "type": "/subscriptions",
                "id": format!("/subscriptions/{}", subscription.id),
                "name": subscription.id,
                "displayName": subscription.name,
            })
        });
    groups.chain(subscriptions).collect()
}

#[cfg(test)]
mod tests;
