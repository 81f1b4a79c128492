//! Explains access decisions.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::role_assignment::RoleAssignment;
use super::role_definition::RoleVerdict;
use super::{AccessRequest, Authorization, keys_effective_at};

/// The maximum number of assignments at other scopes that are examined for an explanation, so that a denial
/// costs about the same for every caller.
const MAX_EXAMINED: usize = 500;

/// The nearest miss of a denied request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearestMiss<'a> {
    /// An assignment that grants the request has not taken effect yet.
    NotEffectiveYet(AssignmentWithRole<'a>, Timestamp),
    /// The condition of the assignment or of its role is not met.
    ConditionNotMet(AssignmentWithRole<'a>),
    /// A role on the right scope has the action in both its actions and its not-actions.
    Excluded {
        /// The assignment of the role.
        assignment: AssignmentWithRole<'a>,
        /// The pattern of the not-action.
        pattern: &'a str,
    },
    /// The caller has a role that permits the action on another scope.
    AssignedAtOtherScope(AssignmentWithRole<'a>),
    /// The caller has a role on the right scope that does not permit the action.
    RoleLacksAction(AssignmentWithRole<'a>),
    /// The caller has assignments, but none on this scope and none whose role has the action.
    NoMatchingAssignment,
    /// The caller has no assignments.
    NoAssignment,
}

/// A role assignment with the display name of its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignmentWithRole<'a> {
    pub assignment: &'a RoleAssignment,
    role_name: &'a str,
    /// Whether the principal of the assignment is a group of the caller.
    through_group: bool,
}

impl<'a> AssignmentWithRole<'a> {
    fn new(
        authorization: &'a Authorization,
        request: AccessRequest<'_>,
        assignment: &'a RoleAssignment,
    ) -> Self {
        let role = authorization.role(assignment.role);
        Self {
            assignment,
            role_name: role.map_or("a deleted role", |role| &role.name),
            through_group: request.principal_ids.first() != Some(&assignment.principal_id),
        }
    }
}

impl fmt::Display for AssignmentWithRole<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}`", self.role_name)?;
        if self.through_group {
            write!(formatter, " of the group `{}`", self.assignment.principal_id)?;
        }
        Ok(())
    }
}

/// Finds the nearest miss of a request that no assignment grants; `action` must be lower-case.
pub(super) fn find_nearest_miss<'a>(
    authorization: &'a Authorization,
    request: AccessRequest<'_>,
    action: &str,
) -> NearestMiss<'a> {
    let here = keys_effective_at(&authorization.index.assignments, request)
        .filter_map(|key| authorization.assignments.get(&key))
        .map(|assignment| miss_at_scope(authorization, request, action, assignment));
    let elsewhere = request
        .principal_ids
        .iter()
        .flat_map(|id| authorization.of_principal(*id))
        .filter(|assignment| request.scopes().all(|scope| scope != &**assignment.scope.index_key()))
        .take(MAX_EXAMINED)
        .map(|assignment| match authorization.verdict_of(assignment, request, action) {
            RoleVerdict::Permitted => NearestMiss::AssignedAtOtherScope(AssignmentWithRole::new(
                authorization,
                request,
                assignment,
            )),
            _ => NearestMiss::NoMatchingAssignment,
        });
    here.chain(elsewhere).min_by_key(NearestMiss::distance).unwrap_or(NearestMiss::NoAssignment)
}

fn miss_at_scope<'a>(
    authorization: &'a Authorization,
    request: AccessRequest<'_>,
    action: &str,
    assignment: &'a RoleAssignment,
) -> NearestMiss<'a> {
    let verdict = authorization.verdict_of(assignment, request, action);
    let effective_from = assignment.effective_from(request.plane);
    let assignment = AssignmentWithRole::new(authorization, request, assignment);
    match verdict {
        // Otherwise the assignment would grant the request.
        RoleVerdict::Permitted => NearestMiss::NotEffectiveYet(assignment, effective_from),
        RoleVerdict::ConditionNotMet => NearestMiss::ConditionNotMet(assignment),
        RoleVerdict::Excluded(pattern) => NearestMiss::Excluded { assignment, pattern },
        RoleVerdict::NotGranted => NearestMiss::RoleLacksAction(assignment),
    }
}

impl<'a> NearestMiss<'a> {
    fn distance(&self) -> u8 {
        match self {
            Self::NotEffectiveYet(..) => 0,
            Self::ConditionNotMet(_) => 1,
            Self::Excluded { .. } => 2,
            Self::AssignedAtOtherScope(_) => 3,
            Self::RoleLacksAction(_) => 4,
            Self::NoMatchingAssignment => 5,
            Self::NoAssignment => 6,
        }
    }

    fn assignment(&self) -> Option<AssignmentWithRole<'a>> {
        match self {
            Self::NotEffectiveYet(assignment, _)
            | Self::ConditionNotMet(assignment)
            | Self::Excluded { assignment, .. }
            | Self::AssignedAtOtherScope(assignment)
            | Self::RoleLacksAction(assignment) => Some(*assignment),
            Self::NoMatchingAssignment | Self::NoAssignment => None,
        }
    }
}

impl fmt::Display for NearestMiss<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(named) = self.assignment() {
            let scope = &named.assignment.scope;
            return match self {
                Self::NotEffectiveYet(_, from) => {
                    write!(formatter, "{named} at `{scope}` permits the action from {from} on")
                }
                Self::ConditionNotMet(_) => {
                    write!(formatter, "{named} at `{scope}` has a condition that is not met")
                }
                Self::Excluded { pattern, .. } => {
                    write!(formatter, "{named} at `{scope}` excludes the action by `{pattern}`")
                }
                Self::AssignedAtOtherScope(_) => {
                    write!(formatter, "{named} permits the action, but is assigned at `{scope}`")
                }
                _ => {
                    write!(formatter, "{named} is assigned at `{scope}`, but lacks the action")
                }
            };
        }
        match self {
            Self::NoAssignment => formatter.write_str("the caller has no role assignment"),
            _ => formatter
                .write_str("no assignment of the caller is at this scope or has this action"),
        }
    }
}

/// An explained decision: the response of the control API's `explain` operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessExplanation {
    /// Whether the request is granted.
    pub granted: bool,
    /// The action that was evaluated.
    pub action: String,
    /// The scope at which it was evaluated.
    pub scope: String,
    /// The id of the decisive role assignment, or of the nearest miss.
    pub assignment: Option<String>,
    /// The display name of that assignment's role.
    pub role: Option<String>,
    /// The object id of the group through which the caller has the assignment; `None` if the caller
    /// has it directly.
    pub group: Option<String>,
    /// The reason as text.
    pub reason: String,
}

impl AccessExplanation {
    pub fn of(
        authorization: &Authorization,
        request: AccessRequest<'_>,
        decision: &Result<&RoleAssignment, NearestMiss<'_>>,
    ) -> Self {
        let (named, reason) = match decision {
            Ok(granting) => {
                let named = AssignmentWithRole::new(authorization, request, granting);
                (Some(named), format!("{named} at `{}` permits the action", granting.scope))
            }
            Err(miss) => (miss.assignment(), miss.to_string()),
        };
        Self {
            granted: decision.is_ok(),
            action: request.action.to_owned(),
            scope: request.scope.to_string(),
            assignment: named.map(|named| named.assignment.id()),
            role: named.map(|named| named.role_name.to_owned()),
            group: named
                .filter(|named| named.through_group)
                .map(|named| named.assignment.principal_id.to_string()),
            reason,
        }
    }
}
