//! Role-based access control of both planes: deny by default.
//!
//! A request is granted when one of the caller's role assignments at the scope of the request, or
//! above it, has a role whose (data) actions cover the action and whose not-actions do not. The
//! reference is Azure RBAC, "How Azure RBAC determines if a user has access to a resource".
//! Deny assignments, groups and conditions are not modelled; an assignment with a condition is
//! refused when it is written, so none is ever granted more than it says.

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

/// Which of a role's two lists an action is looked up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActionPlane {
    /// Azure Resource Manager: `actions`.
    Control,
    /// The services themselves: `dataActions`.
    Data,
}

/// A role given to a principal at a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoleAssignment {
    /// The name: a GUID, unique in the tenant.
    pub(crate) name: Uuid,
    /// Where the role holds, with everything below.
    pub(crate) scope: AccessScope,
    /// The role.
    #[serde(with = "role_id")]
    pub(crate) role: RoleDefinitionId,
    /// The object id of the principal.
    pub(crate) principal_id: Uuid,
    /// `ServicePrincipal`, `User` or `Group`.
    pub(crate) principal_type: String,
    /// The description, if the creator gave one.
    pub(crate) description: Option<String>,
    /// When the assignment was made.
    pub(crate) created_on: Timestamp,
}

impl RoleAssignment {
    /// The id of the assignment as a resource.
    pub(crate) fn id(&self) -> String {
        self.scope.extension_resource_id("Microsoft.Authorization/roleAssignments", self.name)
    }
}

/// A question: may this principal do this, here?
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// The object id of the caller.
    pub(crate) principal_id: Uuid,
    /// The plane of the action.
    pub(crate) plane: ActionPlane,
    /// The action, such as `Microsoft.Network/virtualNetworks/read`.
    pub(crate) action: &'a str,
    /// What the action is done to.
    pub(crate) scope: &'a AccessScope,
}

/// Why an assignment was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssignError {
    /// There is no such role definition.
    #[error("the role definition `{role}` does not exist")]
    RoleUnknown {
        /// The id that names nothing.
        role: Uuid,
    },
    /// The principal already holds the role at the scope, under another name.
    #[error("the role is already assigned by `{existing}`")]
    AlreadyAssigned {
        /// The name of the assignment that says the same.
        existing: Uuid,
    },
    /// The name is taken by an assignment with other content.
    #[error("the assignment `{name}` exists with another scope, role or principal")]
    UpdateNotPermitted {
        /// The name that is taken.
        name: Uuid,
    },
}

/// Whether an assignment was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AssignOutcome {
    /// It was made.
    Created,
    /// The same assignment existed under the same name.
    Unchanged,
}

/// The role assignments of the world, indexed by principal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<RoleAssignment>", into = "Vec<RoleAssignment>")]
pub(crate) struct Authorization {
    assignments: Vec<RoleAssignment>,
    by_principal: HashMap<Uuid, PrincipalAssignments>,
}

/// Where the assignments of one principal are.
#[derive(Debug, Clone, Default)]
struct PrincipalAssignments {
    /// All of them, oldest first.
    indices: Vec<usize>,
    /// By scope in lower case: a decision looks up the scope of the request and those above it,
    /// so that its cost does not grow with the number of assignments.
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

    /// Removes the assignments that `condemned` picks and returns them.
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

    /// The assignment that grants the request, or why none does.
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

    /// The assignments of a principal that hold at a scope.
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

    /// The decision on a request in words, with the assignment or the miss behind it.
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

/// Role ids as plain GUIDs in a snapshot.
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
