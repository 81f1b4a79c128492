//! Role definitions: lists of permissions under an id and a name.

use lanyard_vocabulary::RoleDefinitionId;
use serde::{Deserialize, Serialize};

use super::ActionPlane;
use super::condition::{Condition, ConditionContext};
use super::pattern::ActionPattern;

/// A role with compiled permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleDefinition {
    #[serde(with = "super::role_id")]
    pub id: RoleDefinitionId,
    /// The display name.
    pub name: String,
    /// The role grants what any of its permissions grants.
    pub permissions: Vec<PermissionBlock>,
}

/// One permission of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PermissionBlock {
    pub actions: Vec<ActionPattern>,
    /// Excludes actions of this permission; another permission may still grant them.
    pub not_actions: Vec<ActionPattern>,
    pub data_actions: Vec<ActionPattern>,
    pub not_data_actions: Vec<ActionPattern>,
    /// Must be met for the permission to grant anything. Only built-in roles have conditions.
    #[serde(skip)]
    pub condition: Option<Condition>,
}

/// A role's verdict on an action. A later variant is closer to a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoleVerdict<'a> {
    NotGranted,
    /// The condition of the permission is not met.
    ConditionNotMet,
    /// A pattern grants the action, and this one excludes it.
    Excluded(&'a str),
    Permitted,
}

impl RoleDefinition {
    /// The verdict on `action`, which must be lower-case. The condition of a permission is evaluated in
    /// `context`.
    pub(crate) fn verdict_for_action(
        &self,
        plane: ActionPlane,
        action: &str,
        context: &ConditionContext<'_>,
    ) -> RoleVerdict<'_> {
        self.permissions
            .iter()
            .map(|permission| permission.verdict_for_action(plane, action, context))
            .max()
            .unwrap_or(RoleVerdict::NotGranted)
    }

    /// Whether any permission of the role has data actions.
    pub fn has_data_actions(&self) -> bool {
        self.permissions.iter().any(|permission| !permission.data_actions.is_empty())
    }
}

impl PermissionBlock {
    /// The verdict of the patterns on `action`, which must be lower-case, without the condition.
    fn verdict_of_patterns(&self, plane: ActionPlane, action: &str) -> RoleVerdict<'_> {
        let (granted, excluded) = match plane {
            ActionPlane::Control => (&self.actions, &self.not_actions),
            ActionPlane::Data => (&self.data_actions, &self.not_data_actions),
        };
        if !granted.iter().any(|pattern| pattern.covers(action)) {
            return RoleVerdict::NotGranted;
        }
        excluded
            .iter()
            .find(|pattern| pattern.covers(action))
            .map_or(RoleVerdict::Permitted, |pattern| RoleVerdict::Excluded(pattern.as_str()))
    }

    fn verdict_for_action(
        &self,
        plane: ActionPlane,
        action: &str,
        context: &ConditionContext<'_>,
    ) -> RoleVerdict<'_> {
        let verdict = self.verdict_of_patterns(plane, action);
        let is_met = |condition: &Condition| condition.is_met(context);
        if verdict == RoleVerdict::Permitted && !self.condition.as_ref().is_none_or(is_met) {
            return RoleVerdict::ConditionNotMet;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::built_in_roles::BuiltInRoles;

    fn verdict_of(
        role: RoleDefinitionId,
        plane: ActionPlane,
        action: &str,
    ) -> RoleVerdict<'static> {
        let role = BuiltInRoles::embedded().role(role).unwrap().definition();
        let scope = crate::authorization::access_scope::AccessScope::root();
        let context = ConditionContext { action, scope: &scope, role_assignment: None };
        role.verdict_for_action(plane, action, &context)
    }

    #[test]
    fn contributor_may_write_everything_but_assignments() {
        let contributor = RoleDefinitionId(uuid::uuid!("b24988ac-6180-42a0-ab88-20f7382dd24c"));
        let verdict = |action| verdict_of(contributor, ActionPlane::Control, action);
        assert_eq!(verdict("microsoft.network/dnszones/write"), RoleVerdict::Permitted);
        assert_eq!(
            verdict("microsoft.authorization/roleassignments/write"),
            RoleVerdict::Excluded("Microsoft.Authorization/*/Write")
        );
        let secret = "microsoft.keyvault/vaults/secrets/getsecret/action";
        assert_eq!(verdict_of(contributor, ActionPlane::Data, secret), RoleVerdict::NotGranted);
    }

    #[test]
    fn not_action_excludes_only_actions_of_its_own_permission() {
        let permission = |actions: &[&str], not_actions: &[&str]| PermissionBlock {
            actions: actions.iter().map(|text| ActionPattern::compile(text)).collect(),
            not_actions: not_actions.iter().map(|text| ActionPattern::compile(text)).collect(),
            ..PermissionBlock::default()
        };
        let mut role = RoleDefinition {
            id: RoleDefinitionId(uuid::Uuid::nil()),
            name: "two permissions".to_owned(),
            permissions: vec![permission(&["A.B/*"], &["A.B/c/write"])],
        };
        let scope = crate::authorization::access_scope::AccessScope::root();
        let verdict = |role: &RoleDefinition| {
            let action = "a.b/c/write";
            let context = ConditionContext { action, scope: &scope, role_assignment: None };
            role.verdict_for_action(ActionPlane::Control, action, &context)
                == RoleVerdict::Permitted
        };
        assert!(!verdict(&role));
        role.permissions.push(permission(&["A.B/c/write"], &[]));
        assert!(verdict(&role));
    }
}
