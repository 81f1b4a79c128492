//! What the signed-in identity may do at a scope.

use std::collections::BTreeMap;

use lanyard_azure::{ArmClient, AzureCallError, RolePermission};
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;

/// A control plane action or data action that a command needs at a scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequiredAction {
    /// The scope at which the action is needed: an existing resource group, or the subscription.
    pub(crate) scope: String,
    /// The action, such as `Microsoft.Network/virtualNetworks/write`.
    pub(crate) action: String,
}

impl RequiredAction {
    /// Creates a requirement.
    pub(crate) fn new(scope: &ArmResourceId, action: impl Into<String>) -> Self {
        Self { scope: scope.to_string(), action: action.into() }
    }
}

/// Whether one of the permissions allows a control plane action. Azure adds up the roles of the caller: each
/// permission is one role, and its `notActions` are exceptions from its own actions only.
pub(crate) fn allows_action(permissions: &[RolePermission], action: &str) -> bool {
    permissions
        .iter()
        .any(|it| matches_any(&it.actions, action) && !matches_any(&it.not_actions, action))
}

/// Whether one of the permissions allows a data action, such as
/// `Microsoft.KeyVault/vaults/secrets/setSecret/action`.
fn allows_data_action(permissions: &[RolePermission], action: &str) -> bool {
    permissions.iter().any(|it| {
        matches_any(&it.data_actions, action) && !matches_any(&it.not_data_actions, action)
    })
}

fn matches_any(patterns: &[String], action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    patterns.iter().any(|pattern| matches_pattern(&pattern.to_ascii_lowercase(), &action))
}

/// Whether an action matches a pattern of a role definition; both in lower case. `*` matches any text, and `/*/`
/// also matches a single `/`: `userAssignedIdentities/*/assign/action` allows
/// `userAssignedIdentities/assign/action`.
///
/// The time is linear in both lengths: if a text between two stars occurs more than once, the first occurrence
/// leaves the most for the rest of the pattern.
fn matches_pattern(pattern: &str, action: &str) -> bool {
    let mut texts = pattern.split('*').peekable();
    let Some(first) = texts.next().filter(|first| action.starts_with(first)) else { return false };
    let (mut before, mut end) = (first, first.len());
    while let Some(text) = texts.next() {
        let shares_slash = before.ends_with('/') && text.starts_with('/');
        let start = end - usize::from(shares_slash);
        if texts.peek().is_none() {
            return action[start..].ends_with(text);
        }
        let Some(at) = action[start..].find(text) else { return false };
        (before, end) = (text, start + at + text.len());
    }
    end == action.len()
}

/// Reads the permissions of the signed-in identity at each scope of `required`, and returns the control plane
/// actions that are not allowed.
///
/// # Errors
///
/// The error of the first read that failed.
pub(crate) async fn missing_actions(
    arm: &ArmClient,
    required: &[RequiredAction],
) -> Result<Vec<RequiredAction>, AzureCallError> {
    find_missing(arm, required, allows_action).await
}

/// Reads the permissions of the signed-in identity at each scope of `required`, and returns the data actions that
/// are not allowed. A vault with access policies does not use these permissions.
///
/// # Errors
///
/// The error of the first read that failed.
pub(crate) async fn missing_data_actions(
    arm: &ArmClient,
    required: &[RequiredAction],
) -> Result<Vec<RequiredAction>, AzureCallError> {
    find_missing(arm, required, allows_data_action).await
}

async fn find_missing(
    arm: &ArmClient,
    required: &[RequiredAction],
    allows: fn(&[RolePermission], &str) -> bool,
) -> Result<Vec<RequiredAction>, AzureCallError> {
    let mut permissions: BTreeMap<&str, Vec<RolePermission>> = BTreeMap::new();
    for RequiredAction { scope, .. } in required {
        if !permissions.contains_key(scope.as_str()) {
            permissions.insert(scope, read_permissions(arm, scope).await?);
        }
    }
    let mut missing: Vec<_> = required
        .iter()
        .filter(|it| !permissions.get(&*it.scope).is_some_and(|all| allows(all, &it.action)))
        .cloned()
        .collect();
    missing.sort();
    missing.dedup();
    Ok(missing)
}

async fn read_permissions(
    arm: &ArmClient,
    scope: &str,
) -> Result<Vec<RolePermission>, AzureCallError> {
    let path = format!("{scope}/providers/Microsoft.Authorization/permissions");
    let listed = match arm.list(&path, RolePermission::API_VERSION, &[]).await {
        // Azure answers 403 to a caller without any role at the scope.
        Err(AzureCallError::Forbidden { .. }) => Vec::new(),
        listed => listed?,
    };
    Ok(listed.into_iter().filter_map(|body| serde_json::from_value(body).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(actions: &[&str], not_actions: &[&str]) -> RolePermission {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        RolePermission {
            actions: texts(actions),
            not_actions: texts(not_actions),
            ..RolePermission::default()
        }
    }

    #[derive(serde::Deserialize)]
    struct Case {
        pattern: String,
        action: String,
        matches: bool,
    }

    #[test]
    fn actions_match_patterns_as_azure_documents() {
        let cases = include_str!("../../../conformance/cases/action_patterns.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        for Case { pattern, action, matches } in cases {
            let permissions = [permission(&[&pattern], &[])];
            assert_eq!(allows_action(&permissions, &action), matches, "{pattern} {action}");
        }
    }

    #[test]
    fn exception_of_one_role_does_not_limit_another_role() {
        let contributor = permission(&["*"], &["Microsoft.Authorization/*/Write"]);
        let action = "Microsoft.Authorization/roleAssignments/write";
        assert!(!allows_action(std::slice::from_ref(&contributor), action));
        let administrator = permission(&[action], &[]);
        assert!(allows_action(&[contributor, administrator], action));
    }

    #[test]
    fn control_plane_actions_allow_no_data_actions() {
        let owner = permission(&["*"], &[]);
        let vault_role = RolePermission {
            data_actions: vec!["Microsoft.KeyVault/vaults/*".to_owned()],
            not_data_actions: vec!["Microsoft.KeyVault/vaults/keys/*".to_owned()],
            ..RolePermission::default()
        };
        let secret = "Microsoft.KeyVault/vaults/secrets/setSecret/action";
        assert!(!allows_action(std::slice::from_ref(&vault_role), secret));
        assert!(!allows_data_action(std::slice::from_ref(&owner), secret));
        let both = [owner, vault_role];
        assert!(allows_data_action(&both, secret));
        assert!(!allows_data_action(&both, "Microsoft.KeyVault/vaults/keys/create/action"));
    }
}
