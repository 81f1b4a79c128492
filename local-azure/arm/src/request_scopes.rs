//! The scopes and the resource ids in requests: those of the path, and their parts.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::{AccessScope, ParseAccessScopeError};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{ArmResourceId, ParseArmResourceIdError};

use super::error::bad_request;

/// Returns the request path as a scope, in the case of the request.
pub fn path_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(&format!("/{}", call.request.segments().collect::<Vec<_>>().join("/")))
}

/// Returns the scope of an extension resource: the path before the resource provider.
pub(super) fn extension_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(&format!("/{}", call.path_parameter("scope")))
}

/// Parses a scope from the request.
pub fn parse_request_scope(text: &str) -> Result<AccessScope, ServiceReply> {
    text.parse()
        .map_err(|error: ParseAccessScopeError| bad_request("InvalidResourceId", error.to_string()))
}

/// Returns the scope of the subscription in the path.
pub fn subscription_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(&format!("/subscriptions/{}", call.path_parameter("subscription")))
}

/// Returns the scope of the resource group in the path.
pub fn group_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    let (subscription, group) = (call.path_parameter("subscription"), call.path_parameter("group"));
    parse_request_scope(&format!("/subscriptions/{subscription}/resourceGroups/{group}"))
}

/// Parses a scope as a resource id.
pub(super) fn resource_id(id: &AccessScope) -> Result<ArmResourceId, ServiceReply> {
    id.as_str().parse().map_err(|error: ParseArmResourceIdError| {
        bad_request("InvalidResourceId", error.to_string())
    })
}

/// Returns the resource type in an id, such as `Microsoft.Network/virtualNetworks/subnets`.
pub fn resource_type(id: &AccessScope) -> Result<String, ServiceReply> {
    let no_resource = || bad_request("InvalidResourceId", format!("'{id}' names no resource."));
    resource_id(id)?.resource_type().ok_or_else(no_resource)
}

/// Returns the id of the resource above a child resource.
pub fn parent_scope(child: &AccessScope) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(child.as_str().rsplitn(3, '/').nth(2).unwrap_or_default())
}
