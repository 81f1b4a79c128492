//! The permissions of roles in requests and replies.

use std::collections::HashSet;
use std::sync::LazyLock;

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::{
    AccessScope, ActionPattern, BuiltInRoles, CustomRole, PermissionBlock, RoleDefinition,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::RoleDefinitionId;
use serde_json::{Value, json};

use super::error::bad_request;
use super::request_scopes::parse_request_scope;

/// The maximum number of characters of the name of a custom role.
const MAX_NAME: usize = 512;
/// The maximum number of characters of the description of a custom role.
const MAX_DESCRIPTION: usize = 2_048;
/// The maximum number of assignable scopes of a custom role.
const MAX_ASSIGNABLE_SCOPES: usize = 2_000;

/// Renders one permission block of a role definition as in replies.
pub(super) fn permission_json(permission: &PermissionBlock, with_data_actions: bool) -> Value {
    let mut wire = json!({
        "actions": permission.actions,
        "notActions": permission.not_actions,
    });
    if with_data_actions {
        wire["dataActions"] = json!(permission.data_actions);
        wire["notDataActions"] = json!(permission.not_data_actions);
    }
    if let Some(condition) = &permission.condition {
        wire["condition"] = json!(condition.text());
        wire["conditionVersion"] = json!(condition.version());
    }
    wire
}

/// Parses the body of a custom role.
pub(super) fn parse_custom_role(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    id: RoleDefinitionId,
    body: &Value,
) -> Result<CustomRole, ServiceReply> {
    let properties = body.get("properties").unwrap_or(&Value::Null);
    let text = |field: &str| properties.get(field).and_then(Value::as_str);
    let name = text("roleName").unwrap_or_default().trim();
    if name.is_empty() || name.chars().count() > MAX_NAME {
        return Err(invalid_role(format!(
            "`properties.roleName` has to have 1 to {MAX_NAME} characters."
        )));
    }
    let description = text("description").map(str::to_owned);
    if description.as_ref().is_some_and(|text| text.chars().count() > MAX_DESCRIPTION) {
        return Err(invalid_role(format!(
            "`properties.description` has more than {MAX_DESCRIPTION} characters."
        )));
    }
    if text("type").is_some_and(|kind| !kind.eq_ignore_ascii_case("CustomRole")) {
        return Err(invalid_role("`properties.type` is not 'CustomRole'."));
    }
    let known = call.azure().authorization.custom_role(id);
    let created = known.map_or((call.now, caller.object_id), |it| (it.created_on, it.created_by));
    Ok(CustomRole {
        definition: RoleDefinition {
            id,
            name: name.to_owned(),
            permissions: parse_permissions(properties)?,
        },
        tenant: caller.tenant.clone(),
        description,
        assignable_scopes: parse_assignable_scopes(properties)?,
        created_on: created.0,
        created_by: created.1,
        updated_on: call.now,
        updated_by: caller.object_id,
    })
}

/// Parses the permissions of a custom role.
pub(super) fn parse_permissions(properties: &Value) -> Result<Vec<PermissionBlock>, ServiceReply> {
    let permissions = properties.get("permissions").and_then(Value::as_array);
    let permissions = permissions.map(Vec::as_slice).unwrap_or_default();
    let blocks: Vec<_> = permissions.iter().map(parse_permission).collect::<Result<_, _>>()?;
    let grants =
        |block: &PermissionBlock| !block.actions.is_empty() || !block.data_actions.is_empty();
    if blocks.iter().any(grants) {
        return Ok(blocks);
    }
    Err(invalid_role("`properties.permissions` has no action and no data action."))
}

fn parse_permission(permission: &Value) -> Result<PermissionBlock, ServiceReply> {
    if permission.get("condition").is_some_and(|condition| !condition.is_null()) {
        return Err(invalid_role("Only permissions of built-in roles have conditions."));
    }
    let list = |field: &str, code| parse_patterns(permission, field, code);
    let (control, data) = ("InvalidActionOrNotAction", "InvalidDataActionOrNotDataAction");
    Ok(PermissionBlock {
        actions: list("actions", control)?,
        not_actions: list("notActions", control)?,
        data_actions: list("dataActions", data)?,
        not_data_actions: list("notDataActions", data)?,
        condition: None,
    })
}

fn parse_patterns(
    permission: &Value,
    field: &str,
    code: &'static str,
) -> Result<Vec<ActionPattern>, ServiceReply> {
    let patterns: Vec<String> = match permission.get(field) {
        None | Some(Value::Null) => Vec::new(),
        Some(given) => serde_json::from_value(given.clone())
            .map_err(|error| invalid_role(format!("`permissions[].{field}`: {error}.")))?,
    };
    for pattern in &patterns {
        if let Err(problem) = check_pattern(pattern) {
            return Err(bad_request(code, problem));
        }
    }
    Ok(patterns.iter().map(|pattern| ActionPattern::compile(pattern)).collect())
}

/// Checks an action of a custom role: at most one `*`, a resource provider that Azure has, a known
/// kind of action. The error text is for the client.
fn check_pattern(pattern: &str) -> Result<(), String> {
    let unknown =
        || format!("'{pattern}' does not match any of the actions supported by the providers.");
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '*' | '-' | '_' | ':');
    if pattern.matches('*').count() > 1 || !pattern.chars().all(is_allowed) {
        return Err(unknown());
    }
    let mut segments = pattern.split('/');
    let (provider, last) = (segments.next().unwrap_or_default(), segments.next_back());
    let Some(last) = last else {
        return if provider == "*" { Ok(()) } else { Err(unknown()) };
    };
    if !provider.contains('*') && !PROVIDERS.contains(&provider.to_ascii_lowercase()) {
        return Err(
            "The resource provider referenced in the action is not returned in the list of providers from Azure Resource Manager."
                .to_owned(),
        );
    }
    let is_kind =
        ["read", "write", "delete", "action"].iter().any(|kind| last.eq_ignore_ascii_case(kind));
    let has_empty_segment = pattern.split('/').any(str::is_empty);
    if has_empty_segment || !(is_kind || last.contains('*')) {
        return Err(unknown());
    }
    Ok(())
}

/// The namespaces of the resource providers that have an action in a built-in role, in lower case.
static PROVIDERS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    BuiltInRoles::embedded()
        .iter()
        .flat_map(|role| &role.definition().permissions)
        .flat_map(|block| {
            [&block.actions, &block.not_actions, &block.data_actions, &block.not_data_actions]
        })
        .flatten()
        .filter_map(|pattern| pattern.as_str().split_once('/'))
        .map(|(provider, _)| provider.to_ascii_lowercase())
        .collect()
});

fn parse_assignable_scopes(properties: &Value) -> Result<Vec<AccessScope>, ServiceReply> {
    let given = properties.get("assignableScopes").and_then(Value::as_array);
    let given = given.map(Vec::as_slice).unwrap_or_default();
    if !(1..=MAX_ASSIGNABLE_SCOPES).contains(&given.len()) {
        return Err(invalid_role(format!(
            "`properties.assignableScopes` has to have 1 to {MAX_ASSIGNABLE_SCOPES} scopes."
        )));
    }
    let scopes: Vec<_> = given
        .iter()
        .map(|scope| parse_request_scope(scope.as_str().unwrap_or_default()))
        .collect::<Result<_, _>>()?;
    let is_group = |scope: &&AccessScope| scope.management_group_name().is_some();
    if scopes.iter().filter(is_group).count() > 1 {
        return Err(invalid_role("`properties.assignableScopes` has several management groups."));
    }
    for scope in &scopes {
        let is_subscription_or_group = scope.subscription_id().is_some_and(|id| {
            let length = scope.as_str().split('/').count();
            id != "*" && (length == 3 || (length == 5 && scope.resource_group().is_some()))
        });
        if scope.as_str().contains('*') || !(is_group(&scope) || is_subscription_or_group) {
            return Err(invalid_role(format!(
                "The assignable scope '{scope}' is not a management group, a subscription or a resource group."
            )));
        }
    }
    Ok(scopes)
}

fn invalid_role(message: impl Into<String>) -> ServiceReply {
    bad_request("InvalidRoleDefinition", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_custom_roles_are_checked_as_azure_does() {
        for good in [
            "*",
            "*/read",
            "Microsoft.Compute/*",
            "microsoft.web/sites/restart/Action",
            "Microsoft.Compute/*/read",
            "Microsoft.Compute/virtualMachines/*",
            "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action",
        ] {
            assert_eq!(check_pattern(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "Microsoft.Compute",
            "Microsoft.Compute/virtualMachines",
            "Microsoft.Compute/virtualMachines/start",
            "Microsoft.Compute/*/virtualMachines/*",
            "Microsoft.Compute//read",
            "Microsoft.Compute/virtual machines/read",
            "Microsoft.DoesNotExist/things/read",
            "/read",
        ] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }
}
