//! Storing, finding and deleting role assignments.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::access_scope::AccessScope;
use super::assignment_index::ScopeIndex;
use super::role_assignment::{PropagationDelay, RevokedAssignment, RoleAssignment};
use super::{Authorization, scopes_upwards};

/// The maximum numbers of role assignments. Source of the defaults: "Azure RBAC limits". Microsoft Support
/// raises them for some subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RoleAssignmentLimits {
    /// In a subscription, its resource groups and its resources.
    pub in_subscription: usize,
    /// On a management group.
    pub(crate) at_management_group: usize,
}

impl Default for RoleAssignmentLimits {
    fn default() -> Self {
        Self { in_subscription: 4_000, at_management_group: 500 }
    }
}

/// A role assignment could not be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The role definition does not exist.
    #[error("the role definition `{role}` does not exist")]
    RoleUnknown {
        /// The unknown id.
        role: Uuid,
    },
    /// Another assignment already assigns the role to the principal on the scope.
    #[error("the role is already assigned by `{existing}`")]
    AlreadyAssigned {
        /// The name of the existing assignment.
        existing: Uuid,
    },
    /// An assignment of this name with different content exists.
    #[error("the assignment `{name}` exists with another scope, role or principal")]
    UpdateNotPermitted {
        /// The name of the assignment.
        name: Uuid,
    },
    /// The subscription or the management group has the maximum number of assignments.
    #[error("no more role assignments can be created: the maximum is {limit}")]
    LimitExceeded {
        /// The maximum.
        limit: usize,
    },
}

/// The result of creating a role assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignOutcome {
    /// The assignment was created.
    Created,
    /// The assignment existed; its description or condition was changed.
    Updated,
    /// An identical assignment already existed.
    Unchanged,
}

impl Authorization {
    /// Adds an assignment, or updates the description and the condition of an existing one.
    pub fn assign(&mut self, assignment: RoleAssignment) -> Result<AssignOutcome, AssignError> {
        if self.role(assignment.role).is_none() {
            return Err(AssignError::RoleUnknown { role: assignment.role.0 });
        }
        if let Some(named) = self.assignments.get(&assignment.name) {
            if !named.is_same_grant(&assignment) {
                return Err(AssignError::UpdateNotPermitted { name: assignment.name });
            }
            return Ok(self.update(assignment));
        }
        if let Some(twin) = self.assignment_of_same_grant(&assignment) {
            return Err(AssignError::AlreadyAssigned { existing: twin.name });
        }
        self.check_limit(&assignment.scope)?;
        let name = assignment.name;
        self.index.assignments.insert(name, &assignment);
        self.assignments.insert(name, assignment);
        Ok(AssignOutcome::Created)
    }

    fn update(&mut self, given: RoleAssignment) -> AssignOutcome {
        let is_same = |known: &RoleAssignment| {
            known.description == given.description && known.condition == given.condition
        };
        if self.assignments.get(&given.name).is_none_or(is_same) {
            return AssignOutcome::Unchanged;
        }
        if let Some(known) = self.assignments.get_mut(&given.name) {
            known.updated = given.created_by.map(|author| (given.created_on, author));
            known.description = given.description;
            known.condition = given.condition;
        }
        AssignOutcome::Updated
    }

    fn assignment_of_same_grant(&self, wanted: &RoleAssignment) -> Option<&RoleAssignment> {
        self.index
            .assignments
            .of_principal(wanted.principal_id)?
            .at(wanted.scope.index_key())
            .filter_map(|key| self.assignments.get(&key))
            .find(|known| known.is_same_grant(wanted))
    }

    fn check_limit(&self, scope: &AccessScope) -> Result<(), AssignError> {
        let (count, limit) = if let Some(id) = scope.subscription_id() {
            (self.count_in_subscription(id), self.limits.in_subscription)
        } else if scope.management_group_name().is_some() {
            let keys = self.index.assignments.by_scope().at(scope.index_key());
            (keys.count(), self.limits.at_management_group)
        } else {
            return Ok(());
        };
        if count < limit { Ok(()) } else { Err(AssignError::LimitExceeded { limit }) }
    }

    /// Deletes an assignment and returns it. It remains effective for `delay`.
    pub fn revoke(
        &mut self,
        name: Uuid,
        now: Timestamp,
        delay: PropagationDelay,
    ) -> Option<RoleAssignment> {
        let assignment = self.assignments.remove(&name)?;
        self.index.assignments.remove(name, &assignment);
        self.remove_ended(now);
        if !delay.is_zero() {
            let revoked =
                RevokedAssignment { assignment: assignment.clone(), revoked_on: now, delay };
            let key = revoked.key();
            self.index.revoked.insert(key, &assignment);
            self.index.revoked_by_end.insert((revoked.ends(), key));
            self.revoked.insert(key, revoked);
        }
        Some(assignment)
    }

    /// Removes the deleted assignments that are no longer effective.
    fn remove_ended(&mut self, now: Timestamp) {
        while let Some((ends, key)) = self.index.revoked_by_end.first().copied()
            && ends <= now
        {
            self.index.revoked_by_end.remove(&(ends, key));
            if let Some(revoked) = self.revoked.remove(&key) {
                self.index.revoked.remove(key, &revoked.assignment);
            }
        }
    }

    /// Deletes the assignments on a scope and below it, without a propagation delay.
    pub fn remove_within(&mut self, scope: &AccessScope) {
        let assignments = self.index.assignments.by_scope();
        let keys: Vec<_> =
            assignments.at(scope.index_key()).chain(assignments.below(scope)).collect();
        self.revoke_immediately(keys);
    }

    /// Deletes the assignments on a scope, without a propagation delay.
    pub fn revoke_at(&mut self, scope: &AccessScope) {
        let keys = self.index.assignments.by_scope().at(scope.index_key()).collect();
        self.revoke_immediately(keys);
    }

    /// Deletes the assignments of a principal, without a propagation delay.
    pub fn revoke_of_principal(&mut self, principal_id: Uuid) {
        let scopes = self.index.assignments.of_principal(principal_id);
        let keys = scopes.map(|scopes| scopes.all().collect()).unwrap_or_default();
        self.revoke_immediately(keys);
    }

    fn revoke_immediately(&mut self, names: Vec<Uuid>) {
        for name in names {
            if let Some(assignment) = self.assignments.remove(&name) {
                self.index.assignments.remove(name, &assignment);
            }
        }
    }

    /// The assignment with this name.
    pub fn assignment(&self, name: Uuid) -> Option<&RoleAssignment> {
        self.assignments.get(&name)
    }

    /// The number of assignments in all tenants.
    #[cfg(any(test, feature = "test-util"))]
    pub fn assignment_count(&self) -> usize {
        self.assignments.len()
    }

    /// The number of assignments on a subscription and below it.
    pub fn count_in_subscription(&self, id: &str) -> usize {
        self.index.assignments.count_in_subscription(id)
    }

    /// The assignments of a principal, ordered by scope.
    pub fn of_principal(&self, principal_id: Uuid) -> impl Iterator<Item = &RoleAssignment> {
        let scopes = self.index.assignments.of_principal(principal_id);
        scopes.into_iter().flat_map(ScopeIndex::all).filter_map(|key| self.assignments.get(&key))
    }

    /// The assignments on a scope.
    pub fn at(&self, scope: &AccessScope) -> impl Iterator<Item = &RoleAssignment> {
        let keys = self.index.assignments.by_scope().at(scope.index_key());
        keys.filter_map(|key| self.assignments.get(&key))
    }

    /// The assignments on a scope and above it, the nearest first.
    pub fn at_and_above<'a>(
        &'a self,
        scope: &'a AccessScope,
        management_groups: &'a [AccessScope],
    ) -> impl Iterator<Item = &'a RoleAssignment> {
        scopes_upwards(scope, management_groups)
            .flat_map(|scope| self.index.assignments.by_scope().at(scope))
            .filter_map(|key| self.assignments.get(&key))
    }

    /// The assignments below a scope, ordered by scope.
    pub fn below(&self, scope: &AccessScope) -> impl Iterator<Item = &RoleAssignment> {
        let keys = self.index.assignments.by_scope().below(scope);
        keys.filter_map(|key| self.assignments.get(&key))
    }

    /// Whether a principal or one of its groups has an assignment on a scope, above it or below it.
    pub fn has_assignment_around(
        &self,
        principal_ids: &[Uuid],
        scope: &AccessScope,
        management_groups: &[AccessScope],
    ) -> bool {
        principal_ids.iter().filter_map(|id| self.index.assignments.of_principal(*id)).any(
            |scopes| {
                scopes.below(scope).next().is_some()
                    || scopes_upwards(scope, management_groups)
                        .any(|at| scopes.at(at).next().is_some())
            },
        )
    }
}
