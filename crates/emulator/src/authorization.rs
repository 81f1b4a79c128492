//! Role-based access control of both planes: deny by default.
//!
//! A request is granted if one of the caller's role assignments at the request's scope, or above it, has a
//! role whose (data) actions cover the action and whose not-actions do not. The reference is Azure RBAC, "How
//! Azure RBAC determines if a user has access to a resource". Deny assignments, groups and conditions are not
//! implemented; writing an assignment with a condition is rejected, so that no assignment grants more than
//! intended.

mod access_scope;
mod explain;
mod pattern;
mod roles;

use std::collections::HashMap;

use jiff::Timestamp;
use lanyard_vocabulary::RoleDefinitionId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(crate) use access_scope::{AccessScope, ParseAccessScopeError};
pub(crate) use explain::{AccessExplanation, NearestMiss};
pub(crate) use roles::{RoleCatalog, RoleDefinition};

/// The list of a role that an action is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActionPlane {
    /// Azure Resource Manager: `actions`.
    Control,
    /// The services' data planes: `dataActions`.
    Data,
}

/// The assignment of a role to a principal at a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoleAssignment {
    /// The name: a GUID, unique in the tenant.
    pub(crate) name: Uuid,
    /// The scope, which includes everything below it.
    pub(crate) scope: AccessScope,
    #[serde(with = "role_id")]
    pub(crate) role: RoleDefinitionId,
    /// The object id of the principal.
    pub(crate) principal_id: Uuid,
    /// `ServicePrincipal`, `User` or `Group`.
    pub(crate) principal_type: String,
    /// The description, if present.
    pub(crate) description: Option<String>,
    /// When the assignment was created.
    pub(crate) created_on: Timestamp,
}

impl RoleAssignment {
    /// The resource id of the assignment.
    pub(crate) fn id(&self) -> String {
        self.scope.extension_resource_id("Microsoft.Authorization/roleAssignments", self.name)
    }
}

/// An access request: whether a principal may perform an action at a scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// The object id of the caller.
    pub(crate) principal_id: Uuid,
    /// The plane of the action.
    pub(crate) plane: ActionPlane,
    /// The action, such as `Microsoft.Network/virtualNetworks/read`.
    pub(crate) action: &'a str,
    /// The scope of the action.
    pub(crate) scope: &'a AccessScope,
}

/// Errors of creating a role assignment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssignError {
    /// The role definition does not exist.
    #[error("the role definition `{role}` does not exist")]
    RoleUnknown {
        /// The unknown id.
        role: Uuid,
    },
    /// The principal already has the role at the scope, by another assignment.
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
}

/// The result of creating a role assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AssignOutcome {
    /// The assignment was created.
    Created,
    /// An identical assignment already existed.
    Unchanged,
}

/// The role assignments, indexed by principal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<RoleAssignment>", into = "Vec<RoleAssignment>")]
pub(crate) struct Authorization {
    assignments: Vec<RoleAssignment>,
    by_principal: HashMap<Uuid, PrincipalAssignments>,
}

/// The assignments of one principal, as indices.
#[derive(Debug, Clone, Default)]
struct PrincipalAssignments {
    /// All indices, oldest first.
    indices: Vec<usize>,
    /// By lower-case scope: a decision looks up the request's scope and its ancestors, so that its cost does
    /// not grow with the number of assignments.
    indices_by_scope: HashMap<String, Vec<usize>>,
}

impl PrincipalAssignments {
    fn add(&mut self, at: usize, assignment: &RoleAssignment) {
        let scope = assignment.scope.self_and_ancestors().next().unwrap_or_default();
        self.indices.push(at);
        self.indices_by_scope.entry(scope.to_owned()).or_default().push(at);
    }
}

impl Authorization {
    /// Adds an assignment.
    pub(crate) fn assign(
        &mut self,
        assignment: RoleAssignment,
    ) -> Result<AssignOutcome, AssignError> {
        if RoleCatalog::built_in().role(assignment.role).is_none() {
            return Err(AssignError::RoleUnknown { role: assignment.role.0 });
        }
        let same_grant = |other: &RoleAssignment| {
            other.principal_id == assignment.principal_id
                && other.role == assignment.role
                && other.scope == assignment.scope
        };
        if let Some(named) = self.assignment(assignment.name) {
            return if same_grant(named) {
                Ok(AssignOutcome::Unchanged)
            } else {
                Err(AssignError::UpdateNotPermitted { name: assignment.name })
            };
        }
        if let Some(twin) = self.of_principal(assignment.principal_id).find(|a| same_grant(a)) {
            return Err(AssignError::AlreadyAssigned { existing: twin.name });
        }
        let at = self.assignments.len();
        self.by_principal.entry(assignment.principal_id).or_default().add(at, &assignment);
        self.assignments.push(assignment);
        Ok(AssignOutcome::Created)
    }

    /// Removes the assignments that `condemned` selects and returns them.
    pub(crate) fn revoke(
        &mut self,
        condemned: impl FnMut(&mut RoleAssignment) -> bool,
    ) -> Vec<RoleAssignment> {
        let removed = self.assignments.extract_if(.., condemned).collect();
        self.by_principal = index_by_principal(&self.assignments);
        removed
    }

    /// The assignment with this name.
    pub(crate) fn assignment(&self, name: Uuid) -> Option<&RoleAssignment> {
        self.assignments.iter().find(|assignment| assignment.name == name)
    }

    /// Every assignment, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RoleAssignment> {
        self.assignments.iter()
    }

    /// The assignments of a principal.
    pub(crate) fn of_principal(&self, principal_id: Uuid) -> impl Iterator<Item = &RoleAssignment> {
        let places = self.by_principal.get(&principal_id).map_or(&[][..], |held| &held.indices);
        places.iter().filter_map(|at| self.assignments.get(*at))
    }

    /// Returns the assignment that grants the request, or the nearest miss.
    pub(crate) fn decide_access(
        &self,
        request: AccessRequest<'_>,
    ) -> Result<&RoleAssignment, NearestMiss<'_>> {
        let action = request.action.to_ascii_lowercase();
        let catalog = RoleCatalog::built_in();
        self.assignments_effective_at(request.principal_id, request.scope)
            .find(|assignment| {
                catalog.role(assignment.role).is_some_and(|role| {
                    role.verdict_for_action(request.plane, &action) == roles::RoleVerdict::Permitted
                })
            })
            .ok_or_else(|| explain::find_nearest_miss(self, request, &action))
    }

    /// The assignments of a principal at a scope or above it.
    fn assignments_effective_at(
        &self,
        principal_id: Uuid,
        scope: &AccessScope,
    ) -> impl Iterator<Item = &RoleAssignment> {
        let held = self.by_principal.get(&principal_id);
        scope
            .self_and_ancestors()
            .filter_map(move |scope| held?.indices_by_scope.get(scope))
            .flatten()
            .filter_map(|at| self.assignments.get(*at))
    }

    /// Explains the decision on a request, with the decisive assignment or the nearest miss.
    pub(crate) fn explain_decision(&self, request: AccessRequest<'_>) -> AccessExplanation {
        AccessExplanation::of(request, &self.decide_access(request))
    }
}

impl From<Vec<RoleAssignment>> for Authorization {
    fn from(assignments: Vec<RoleAssignment>) -> Self {
        Self { by_principal: index_by_principal(&assignments), assignments }
    }
}

impl From<Authorization> for Vec<RoleAssignment> {
    fn from(authorization: Authorization) -> Self {
        authorization.assignments
    }
}

fn index_by_principal(assignments: &[RoleAssignment]) -> HashMap<Uuid, PrincipalAssignments> {
    let mut places: HashMap<Uuid, PrincipalAssignments> = HashMap::new();
    for (at, assignment) in assignments.iter().enumerate() {
        places.entry(assignment.principal_id).or_default().add(at, assignment);
    }
    places
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
mod tests;
