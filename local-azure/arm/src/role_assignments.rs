//! Role assignments. Reference: Microsoft.Authorization, 2015-07-01 to 2022-04-01.

use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::{
    AccessScope, AssignError, AssignOutcome, AttributeSource, RoleAssignment,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::RoleDefinitionId;
use uuid::Uuid;

use super::access::{
    authenticate, authorize_assignment_change, authorize_call, empty_reply, json_body, json_reply,
    list_reply,
};
use super::error::{ArmServiceError, bad_request, conflict};
use super::lock_check::require_unlocked;
use super::odata_filter::ODataFilter;
use super::request_scopes::extension_scope;
use super::role_assignment_body::{
    ASSIGNMENT, AssignmentApi, parse_assignment, role_assignment_json,
};
use super::role_definitions::role_definition_not_found;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "RoleAssignments_ListForScope",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/roleAssignments",
        support: OperationSupport::Full,
        handler: list_assignments,
    },
    assignment_operation(
        "RoleAssignments_Get",
        Method::GET,
        OperationSupport::Full,
        get_assignment,
    ),
    assignment_operation(
        "RoleAssignments_Create",
        Method::PUT,
        OperationSupport::Partial(
            "conditions can have attributes of role assignments and names of containers",
        ),
        create_assignment,
    ),
    assignment_operation(
        "RoleAssignments_Delete",
        Method::DELETE,
        OperationSupport::Full,
        delete_assignment,
    ),
];

/// The roles that count as the last administrator of a subscription: Owner and User Access Administrator.
const ADMINISTRATORS: [Uuid; 2] =
    [RoleDefinitionId::OWNER.0, uuid::uuid!("18d7d88d-d35e-4fb5-a5c3-7773c20a72d9")];

const fn assignment_operation(
    id: &'static str,
    method: Method,
    support: OperationSupport,
    handler: OperationHandler,
) -> ServiceOperation {
    let path = "/{*scope}/providers/Microsoft.Authorization/roleAssignments/{name}";
    ServiceOperation { id, method, path, support, handler }
}

fn list_assignments(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_call(call, &format!("{ASSIGNMENT}/read"), &at)?;
    let filter = ODataFilter::from_request(call, &["atScope", "principalId", "assignedTo"])?;
    let azure = call.azure();
    let authorization = &azure.authorization;
    let management_groups = azure.management_groups_above(&at);
    let include_below = filter.function_argument("atScope").is_none();
    let concerns = |assignment: &&RoleAssignment| {
        assignment.scope.contains(&at)
            || management_groups.contains(&assignment.scope)
            || (include_below && at.contains(&assignment.scope))
    };
    let selected: Vec<_> = match filtered_principals(call, &filter)? {
        Some(ids) => {
            ids.into_iter().flat_map(|id| authorization.of_principal(id)).filter(concerns).collect()
        }
        None if include_below => authorization
            .at_and_above(&at, &management_groups)
            .chain(authorization.below(&at))
            .collect(),
        None => authorization.at_and_above(&at, &management_groups).collect(),
    };
    let api = AssignmentApi::of_request(call);
    let items = selected
        .into_iter()
        .filter(|assignment| is_in_tenant(call, &caller, assignment))
        .map(|assignment| role_assignment_json(assignment, api))
        .collect();
    list_reply(call, items)
}

/// Returns the principals whose role assignments a filter selects: with `assignedTo`, the principal
/// and its groups. `None` if the filter selects the assignments of all principals.
fn filtered_principals(
    call: &OperationContext<'_>,
    filter: &ODataFilter,
) -> Result<Option<Vec<Uuid>>, ServiceReply> {
    let parse = |text: &str| {
        Uuid::try_parse(text).map_err(|error| {
            bad_request("InvalidFilterInQueryString", format!("'{text}' is not a GUID: {error}."))
        })
    };
    let exact = filter.equals_value("principalId").map(parse).transpose()?;
    let assigned = filter.function_argument("assignedTo").map(parse).transpose()?;
    let assigned = assigned.map(|id| call.azure().directory.principal_and_group_ids(id));
    Ok(match (exact, assigned) {
        (Some(id), Some(ids)) => Some(ids.into_iter().filter(|known| *known == id).collect()),
        (Some(id), None) => Some(vec![id]),
        (None, ids) => ids,
    })
}

/// Whether the scope of a role assignment is in the caller's tenant. Lists at the root scope span
/// all subscriptions.
fn is_in_tenant(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    assignment: &RoleAssignment,
) -> bool {
    let azure = call.azure();
    let scope = &assignment.scope;
    if let Some(name) = scope.management_group_name() {
        return azure.management_groups.is_in_tenant(name, &caller.tenant);
    }
    let subscription = scope.subscription_id().and_then(|id| azure.resources.subscription(id));
    subscription.is_none_or(|known| known.tenant == caller.tenant)
}

fn get_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    authorize_call(call, &format!("{ASSIGNMENT}/read"), &at)?;
    let name = assignment_name(call)?;
    let api = AssignmentApi::of_request(call);
    match find_assignment(call, &at, name) {
        Some(assignment) => {
            Ok(json_reply(call, StatusCode::OK, &role_assignment_json(assignment, api)))
        }
        None => Err(ArmServiceError::Other(
            StatusCode::NOT_FOUND,
            "RoleAssignmentNotFound",
            format!("The role assignment '{name}' is not found."),
        )
        .to_reply()),
    }
}

fn create_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authenticate(call)?;
    let wanted = assignment_name(call)
        .and_then(|name| Ok((name, json_body(call)?)))
        .and_then(|(name, body)| parse_assignment(call, &caller, name, at.clone(), &body));
    // Conditions of the caller's roles may limit the roles and principals that it may assign.
    // Without the permission, the reply does not reveal an error in the body.
    let attributes = wanted.as_ref().ok().map(|given| given.attributes(AttributeSource::Request));
    let write = format!("{ASSIGNMENT}/write");
    authorize_assignment_change(call, &caller, &write, &at, attributes)?;
    require_unlocked(call, &write, &at)?;
    require_scope(call, &caller, &at)?;
    let wanted = wanted?;
    let name = wanted.name;
    let status = match call.azure_mut().authorization.assign(wanted) {
        Ok(AssignOutcome::Created) => StatusCode::CREATED,
        Ok(AssignOutcome::Updated | AssignOutcome::Unchanged) => StatusCode::OK,
        Err(problem) => return Err(assign_error_reply(&problem)),
    };
    let api = AssignmentApi::of_request(call);
    let stored = call.azure().authorization.assignment(name);
    let wire = stored.map(|assignment| role_assignment_json(assignment, api)).unwrap_or_default();
    Ok(json_reply(call, status, &wire))
}

fn assign_error_reply(problem: &AssignError) -> ServiceReply {
    match problem {
        AssignError::RoleUnknown { role } => role_definition_not_found(&role.to_string()),
        AssignError::AlreadyAssigned { existing } => conflict(
            "RoleAssignmentExists",
            format!(
                "The role assignment already exists. The ID of the conflicting role assignment is {}.",
                existing.simple()
            ),
        ),
        AssignError::UpdateNotPermitted { .. } => bad_request(
            "RoleAssignmentUpdateNotPermitted",
            "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.",
        ),
        AssignError::LimitExceeded { limit } => bad_request(
            "RoleAssignmentLimitExceeded",
            format!("No more role assignments can be created. The maximum is {limit}."),
        ),
    }
}

fn delete_assignment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authenticate(call)?;
    let name = assignment_name(call);
    let assignment = name.as_ref().ok().and_then(|name| find_assignment(call, &at, *name));
    let attributes = assignment.map(|assignment| assignment.attributes(AttributeSource::Resource));
    let delete = format!("{ASSIGNMENT}/delete");
    authorize_assignment_change(call, &caller, &delete, &at, attributes)?;
    let id = at.child(&format!("providers/{ASSIGNMENT}/{}", call.path_parameter("name")));
    require_unlocked(call, &delete, &id)?;
    let is_last = assignment.is_some_and(|assignment| is_last_administrator(call, assignment));
    let exists = assignment.is_some();
    let name = name?;
    if !exists {
        return Ok(empty_reply(call, StatusCode::NO_CONTENT));
    }
    if is_last {
        return Err(ArmServiceError::Other(
            StatusCode::PRECONDITION_FAILED,
            "CannotDeleteLastRbacAdminAssignment",
            "Cannot delete the last RBAC admin assignment.".to_owned(),
        )
        .to_reply());
    }
    let (now, api) = (call.now, AssignmentApi::of_request(call));
    let azure = call.azure_mut();
    let removed = azure.authorization.revoke(name, now, *azure.propagation);
    let wire = removed.map(|assignment| role_assignment_json(&assignment, api)).unwrap_or_default();
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Whether a role assignment is the only one at its subscription whose role can manage access.
fn is_last_administrator(call: &OperationContext<'_>, assignment: &RoleAssignment) -> bool {
    let is_administrator = |assignment: &RoleAssignment| {
        ADMINISTRATORS.contains(&assignment.role.0) && assignment.condition.is_none()
    };
    let is_subscription = assignment.scope.subscription_id().is_some()
        && assignment.scope.as_str().split('/').count() == 3;
    is_subscription
        && is_administrator(assignment)
        && !call
            .azure()
            .authorization
            .at(&assignment.scope)
            .any(|other| other.name != assignment.name && is_administrator(other))
}

/// Returns the role assignment with the name, if its scope is `at`.
fn find_assignment<'c>(
    call: &'c OperationContext<'_>,
    at: &AccessScope,
    name: Uuid,
) -> Option<&'c RoleAssignment> {
    call.azure().authorization.assignment(name).filter(|assignment| assignment.scope == *at)
}

/// Rejects a scope whose management group, resource group or resource does not exist. Child scopes
/// of a resource, such as the secrets of a vault, are not checked.
fn require_scope(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    at: &AccessScope,
) -> Result<(), ServiceReply> {
    let resources = &call.azure().resources;
    if let Some(name) = at.management_group_name() {
        return if call.azure().management_groups.is_in_tenant(name, &caller.tenant) {
            Ok(())
        } else {
            let message = format!("The management group '{name}' cannot be found.");
            Err(ArmServiceError::Other(StatusCode::NOT_FOUND, "NotFound", message).to_reply())
        };
    }
    let Some(group) = at.resource_group() else { return Ok(()) };
    if resources.resource(&group).is_none() {
        let name = group.as_str().rsplit('/').next().unwrap_or_default();
        return Err(ArmServiceError::ResourceGroupNotFound(name).to_reply());
    }
    match at.top_level_resource() {
        Some(resource) if resources.resource(&resource).is_none() => {
            Err(ArmServiceError::ResourceNotFound(&resource).to_reply())
        }
        _ => Ok(()),
    }
}

fn assignment_name(call: &OperationContext<'_>) -> Result<Uuid, ServiceReply> {
    let name = call.path_parameter("name");
    Uuid::try_parse(name).map_err(|error| {
        bad_request(
            "InvalidRoleAssignmentId",
            format!("The role assignment ID '{name}' is not valid. It must be a GUID: {error}."),
        )
    })
}

#[cfg(test)]
mod tests;
