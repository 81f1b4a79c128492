//! Role-based access control of the control plane and the data planes: deny by default.
//!
//! A request is granted if the caller has a role assignment on the request's scope, or above it,
//! whose (data) actions cover the action and whose not-actions do not. Assignments of the caller's
//! groups count as the caller's. There are no deny assignments. The reference is Azure RBAC, "How
//! Azure RBAC determines if a user has access to a resource".

mod access_check;
mod access_scope;
mod assignment_index;
mod built_in_roles;
mod condition;
mod custom_role;
mod explain;
mod pattern;
mod role_assignment;
mod role_assignments;
mod role_definition;

use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_vocabulary::RoleDefinitionId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::access_check::{AccessCheck, ManagementGroupsAbove};
pub use self::access_scope::{AccessScope, ParseAccessScopeError};
use self::assignment_index::AssignmentIndex;
pub use self::built_in_roles::BuiltInRoles;
pub use self::condition::{
    AssignmentAttributes, AttributeSource, Condition, ConditionContext, ConditionError,
};
pub use self::custom_role::{CustomRole, CustomRoleError, MAX_CUSTOM_ROLES};
pub use self::explain::{AccessExplanation, NearestMiss};
pub use self::pattern::ActionPattern;
use self::role_assignment::RevokedAssignment;
pub use self::role_assignment::{PropagationDelay, RoleAssignment};
pub use self::role_assignments::{AssignError, AssignOutcome, RoleAssignmentLimits};
use self::role_definition::RoleVerdict;
pub use self::role_definition::{PermissionBlock, RoleDefinition};
use crate::table::{StoredTable, Table};
use crate::tracked::Tracked;

/// Selects the actions of a role that a request is checked against: `actions` or `dataActions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionPlane {
    /// Azure Resource Manager: `actions`.
    Control,
    /// The services' data planes: `dataActions`.
    Data,
}

/// An access request: whether a principal may perform an action at a scope.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The object ids of the caller and of its groups, the nested ones included.
    pub principal_ids: &'a [Uuid],
    /// The plane of the action.
    pub plane: ActionPlane,
    /// The action, such as `Microsoft.Network/virtualNetworks/read`.
    pub action: &'a str,
    /// The scope of the action.
    pub scope: &'a AccessScope,
    pub management_groups: &'a ManagementGroupsAbove<'a>,
    /// The role assignment that the request writes or deletes, for conditions; `None` for others.
    pub role_assignment: Option<AssignmentAttributes<'a>>,
    /// The emulated time.
    pub now: Timestamp,
}

impl<'a> AccessRequest<'a> {
    /// The scope and everything above it, in lower case, the nearest first.
    fn scopes(self) -> impl Iterator<Item = &'a str> {
        let (scope, groups) = (self.scope, self.management_groups);
        upwards(scope, std::iter::once_with(|| groups.nearest_first()).flatten())
    }
}

/// A scope and everything above it, in lower case: its ancestors by path, its management groups, the root.
fn scopes_upwards<'a>(
    scope: &'a AccessScope,
    management_groups: &'a [AccessScope],
) -> impl Iterator<Item = &'a str> {
    upwards(scope, management_groups.iter())
}

fn upwards<'a>(
    scope: &'a AccessScope,
    management_groups: impl Iterator<Item = &'a AccessScope>,
) -> impl Iterator<Item = &'a str> {
    scope
        .self_and_ancestors()
        .filter(|path| !path.is_empty())
        .chain(management_groups.map(|group| &**group.index_key()))
        .chain([""])
}

/// Role assignments and custom roles.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, from = "StoredAuthorization")]
pub struct Authorization {
    /// By name.
    assignments: Table<Uuid, RoleAssignment>,
    /// Deleted assignments that are still effective, by [`RevokedAssignment::key`].
    revoked: Table<Uuid, RevokedAssignment>,
    /// By id.
    custom_roles: Table<Uuid, CustomRole>,
    pub limits: Tracked<RoleAssignmentLimits>,
    #[serde(skip)]
    index: AuthorizationIndex,
}

/// Derived from the tables. Rebuilt when the state is loaded.
#[derive(Debug, Clone, Default)]
struct AuthorizationIndex {
    assignments: AssignmentIndex,
    revoked: AssignmentIndex,
    /// The keys of the revoked assignments, by the time when their deletion takes effect.
    revoked_by_end: BTreeSet<(Timestamp, Uuid)>,
}

impl Authorization {
    /// Calls `visit` with the name and the content of every stored table.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self { assignments, revoked, custom_roles, limits, index: _ } = self;
        visit("authorization.role-assignments", assignments);
        visit("authorization.revoked-assignments", revoked);
        visit("authorization.custom-roles", custom_roles);
        visit("authorization.limits", limits);
    }

    /// Rebuilds the indexes after the tables were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        self.index = AuthorizationIndex::default();
        for (key, assignment) in self.assignments.iter() {
            self.index.assignments.insert(*key, assignment);
        }
        for (key, revoked) in self.revoked.iter() {
            self.index.revoked.insert(*key, &revoked.assignment);
            self.index.revoked_by_end.insert((revoked.ends(), *key));
        }
    }

    /// The role with this id, built-in or custom.
    pub fn role(&self, id: RoleDefinitionId) -> Option<&RoleDefinition> {
        match self.custom_roles.get(&id.0) {
            Some(custom) => Some(&custom.definition),
            None => BuiltInRoles::embedded().role(id).map(built_in_roles::BuiltInRole::definition),
        }
    }

    /// Returns the assignment that grants the request, or the reason for the denial.
    pub(crate) fn decide_access(
        &self,
        request: AccessRequest<'_>,
    ) -> Result<&RoleAssignment, NearestMiss<'_>> {
        let action = request.action.to_ascii_lowercase();
        self.find_grant(request, &action)
            .ok_or_else(|| explain::find_nearest_miss(self, request, &action))
    }

    /// Whether the request is granted.
    pub fn is_granted(&self, request: AccessRequest<'_>) -> bool {
        self.find_grant(request, &request.action.to_ascii_lowercase()).is_some()
    }

    /// The assignment that grants a request; `action` is the request's action in lower case.
    fn find_grant(&self, request: AccessRequest<'_>, action: &str) -> Option<&RoleAssignment> {
        let grants = |assignment: &RoleAssignment| {
            self.verdict_of(assignment, request, action) == RoleVerdict::Permitted
        };
        keys_effective_at(&self.index.assignments, request)
            .filter_map(|key| self.assignments.get(&key))
            .find(|assignment| {
                assignment.effective_from(request.plane) <= request.now && grants(assignment)
            })
            .or_else(|| self.find_revoked_grant(request, &grants))
    }

    fn find_revoked_grant(
        &self,
        request: AccessRequest<'_>,
        grants: &dyn Fn(&RoleAssignment) -> bool,
    ) -> Option<&RoleAssignment> {
        keys_effective_at(&self.index.revoked, request)
            .filter_map(|key| self.revoked.get(&key))
            .filter(|revoked| revoked.is_effective(request.plane, request.now))
            .map(|revoked| &revoked.assignment)
            .find(|assignment| grants(assignment))
    }

    /// The verdict of an assignment's role and condition; `action` is the request's action in lower case.
    fn verdict_of(
        &self,
        assignment: &RoleAssignment,
        request: AccessRequest<'_>,
        action: &str,
    ) -> RoleVerdict<'_> {
        let Some(role) = self.role(assignment.role) else { return RoleVerdict::NotGranted };
        let context = ConditionContext {
            action,
            scope: request.scope,
            role_assignment: request.role_assignment,
        };
        let verdict = role.verdict_for_action(request.plane, action, &context);
        let is_met = |condition: &Condition| condition.is_met(&context);
        if verdict == RoleVerdict::Permitted && !assignment.condition.as_ref().is_none_or(is_met) {
            return RoleVerdict::ConditionNotMet;
        }
        verdict
    }

    /// Explains the decision on a request, with the decisive assignment or the nearest miss.
    pub(crate) fn explain_decision(&self, request: AccessRequest<'_>) -> AccessExplanation {
        AccessExplanation::of(self, request, &self.decide_access(request))
    }
}

/// The keys of the role assignments on the scope of a request and above it. The caller's own come
/// first, then those of each of its groups; for each principal, the nearest scope first.
fn keys_effective_at<'a>(
    index: &'a AssignmentIndex,
    request: AccessRequest<'a>,
) -> impl Iterator<Item = Uuid> {
    request
        .principal_ids
        .iter()
        .filter_map(|id| index.of_principal(*id))
        .flat_map(move |scopes| request.scopes().flat_map(move |scope| scopes.at(scope)))
}

/// The tables of [`Authorization`], as stored.
#[derive(Deserialize, Default)]
#[serde(default)]
struct StoredAuthorization {
    assignments: Table<Uuid, RoleAssignment>,
    revoked: Table<Uuid, RevokedAssignment>,
    custom_roles: Table<Uuid, CustomRole>,
    limits: Tracked<RoleAssignmentLimits>,
}

impl From<StoredAuthorization> for Authorization {
    fn from(stored: StoredAuthorization) -> Self {
        let StoredAuthorization { assignments, revoked, custom_roles, limits } = stored;
        let mut authorization = Self {
            assignments,
            revoked,
            custom_roles,
            limits,
            index: AuthorizationIndex::default(),
        };
        authorization.rebuild_index();
        authorization
    }
}

/// Serializes role ids as plain GUIDs.
mod role_id {
    use lanyard_vocabulary::RoleDefinitionId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(
        role: &RoleDefinitionId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        role.0.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RoleDefinitionId, D::Error> {
        Uuid::deserialize(deserializer).map(RoleDefinitionId)
    }
}

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;
