//! Deny assignments: actions that principals cannot perform, whatever roles they have.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::access_scope::AccessScope;
use super::role_definition::{PermissionBlock, RoleVerdict};
use super::{AccessRequest, Authorization, scopes_upwards};

/// An action that no deny assignment denies, so that each can be deleted.
const ALWAYS_POSSIBLE: &str = "microsoft.authorization/denyassignments/delete";

/// A deny assignment at a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenyAssignment {
    /// The name: a GUID.
    pub name: Uuid,
    pub scope: AccessScope,
    pub display_name: String,
    pub description: Option<String>,
    /// The denied actions.
    pub permissions: Vec<PermissionBlock>,
    pub principals: Vec<DeniedPrincipal>,
    /// Principals that the deny assignment does not concern.
    pub(crate) exclude_principals: Vec<DeniedPrincipal>,
    /// Whether only the scope itself is concerned.
    #[serde(default)]
    pub(crate) only_at_scope: bool,
    /// Whether Azure created it: it cannot be changed or deleted.
    #[serde(default)]
    pub(crate) is_system_protected: bool,
    pub created_on: Timestamp,
    /// The object id of the principal that created it.
    pub created_by: Option<Uuid>,
}

/// A principal of a deny assignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedPrincipal {
    pub id: Uuid,
    /// `User`, `Group`, `ServicePrincipal` or `SystemDefined`.
    #[serde(rename = "type")]
    pub kind: String,
}

impl DeniedPrincipal {
    /// All principals: the nil GUID with the type `SystemDefined`.
    pub(crate) fn is_everyone(&self) -> bool {
        self.id.is_nil() && self.kind.eq_ignore_ascii_case("SystemDefined")
    }
}

impl DenyAssignment {
    /// The resource id of the deny assignment.
    pub fn id(&self) -> String {
        self.scope.extension_resource_id("Microsoft.Authorization/denyAssignments", self.name)
    }

    /// Whether the deny assignment, which is at the request's scope or above it, denies the request. `action`
    /// must be lower-case.
    pub fn denies(&self, request: AccessRequest<'_>, action: &str) -> bool {
        let concerns = |principal: &DeniedPrincipal| {
            principal.is_everyone() || request.principal_ids.contains(&principal.id)
        };
        action != ALWAYS_POSSIBLE
            && (!self.only_at_scope || self.scope == *request.scope)
            && self.principals.iter().any(concerns)
            && !self.exclude_principals.iter().any(concerns)
            && self.permissions.iter().any(|permission| {
                permission.verdict_of_patterns(request.plane, action) == RoleVerdict::Permitted
            })
    }
}

impl Authorization {
    /// Stores a deny assignment; one with the same name is replaced.
    pub(crate) fn put_deny_assignment(&mut self, denied: DenyAssignment) {
        self.remove_deny_assignment(denied.name);
        self.index.deny_assignments.insert(&denied.scope, denied.name);
        self.deny_assignments.insert(denied.name, denied);
    }

    /// Deletes a deny assignment and returns it.
    pub(crate) fn remove_deny_assignment(&mut self, name: Uuid) -> Option<DenyAssignment> {
        let denied = self.deny_assignments.remove(&name)?;
        self.index.deny_assignments.remove(&denied.scope, name);
        Some(denied)
    }

    /// The deny assignment with this name.
    pub(crate) fn deny_assignment(&self, name: Uuid) -> Option<&DenyAssignment> {
        self.deny_assignments.get(&name)
    }

    /// The deny assignments at a scope and above it, and those below it if `include_below`.
    pub(crate) fn deny_assignments_around<'a>(
        &'a self,
        scope: &'a AccessScope,
        management_groups: &'a [AccessScope],
        include_below: bool,
    ) -> impl Iterator<Item = &'a DenyAssignment> {
        let index = &self.index.deny_assignments;
        let upwards = scopes_upwards(scope, management_groups).flat_map(|scope| index.at(scope));
        let below = include_below.then(|| index.below(scope)).into_iter().flatten();
        upwards.chain(below).filter_map(|key| self.deny_assignments.get(&key))
    }
}
