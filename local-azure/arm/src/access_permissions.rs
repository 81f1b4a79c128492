//! The permissions of the caller on a scope, and the number of role assignments in a subscription.
//! Reference: Microsoft.Authorization, 2022-04-01 and 2019-08-01-preview.

use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

use super::access::{authorize_call, json_reply, list_reply};
use super::request_scopes::{extension_scope, subscription_scope};
use super::role_permissions::permission_json;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "Permissions_List",
        method: Method::GET,
        path: "/{*scope}/providers/Microsoft.Authorization/permissions",
        support: OperationSupport::Full,
        handler: list_permissions,
    },
    ServiceOperation {
        id: "RoleAssignmentMetrics_GetMetricsForSubscription",
        method: Method::GET,
        path: sub!("Microsoft.Authorization/roleAssignmentsUsageMetrics"),
        support: OperationSupport::Full,
        handler: get_usage_metrics,
    },
];

/// `GET {scope}/…/permissions`: the permissions that the caller's roles grant on the scope.
fn list_permissions(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let at = extension_scope(call)?;
    let caller = authorize_call(call, "Microsoft.Authorization/permissions/read", &at)?;
    let azure = call.azure();
    let principal_ids = azure.directory.principal_and_group_ids(caller.object_id);
    let management_groups = azure.management_groups_above(&at);
    let items = azure
        .authorization
        .at_and_above(&at, &management_groups)
        .filter(|assignment| principal_ids.contains(&assignment.principal_id))
        .filter(|assignment| assignment.is_effective_on_control_plane(call.now))
        .filter_map(|assignment| azure.authorization.role(assignment.role))
        .flat_map(|role| &role.permissions)
        .map(|permission| permission_json(permission, true))
        .collect();
    list_reply(call, items)
}

/// `GET /subscriptions/{id}/…/roleAssignmentsUsageMetrics`.
fn get_usage_metrics(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let subscription = call.path_parameter("subscription");
    let at = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Authorization/roleAssignmentsUsageMetrics/read", &at)?;
    let authorization = &call.azure().authorization;
    let count = authorization.count_in_subscription(subscription);
    let limit = authorization.limits.in_subscription;
    let metrics = json!({
        "subscriptionId": subscription,
        "roleAssignmentsLimit": limit,
        "roleAssignmentsCurrentCount": count,
        "roleAssignmentsRemainingCount": limit.saturating_sub(count),
    });
    Ok(json_reply(call, StatusCode::OK, &metrics))
}

#[cfg(test)]
mod tests;
