//! Explains access decisions.

use std::fmt;

use serde::Serialize;

use super::roles::RoleVerdict;
use super::{AccessRequest, Authorization, RoleAssignment, RoleCatalog};

/// The nearest miss of a denied request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NearestMiss<'a> {
    /// A role at the right scope has the action in both its actions and its not-actions.
    Excluded {
        /// The assignment of the role.
        assignment: &'a RoleAssignment,
        /// The pattern of the not-action.
        pattern: &'a str,
    },
    /// A role of the caller permits the action at another scope.
    AssignedAtOtherScope(&'a RoleAssignment),
    /// The caller has a role at the right scope that does not permit the action.
    RoleLacksAction(&'a RoleAssignment),
    /// The caller has assignments, but neither at this scope nor with this action.
    NoMatchingAssignment,
    /// The caller has no assignments.
    NoAssignment,
}

/// Finds the nearest miss of a denied request; `action` must be lower-case.
pub(super) fn find_nearest_miss<'a>(
    authorization: &'a Authorization,
    request: AccessRequest<'_>,
    action: &str,
) -> NearestMiss<'a> {
    let catalog = RoleCatalog::built_in();
    let mut miss = NearestMiss::NoAssignment;
    for assignment in authorization.of_principal(request.principal_id) {
        let here = assignment.scope.contains(request.scope);
        let verdict = catalog
            .role(assignment.role)
            .map_or(RoleVerdict::NotGranted, |role| role.verdict_for_action(request.plane, action));
        let found = match (here, verdict) {
            (true, RoleVerdict::Excluded(pattern)) => NearestMiss::Excluded { assignment, pattern },
            (false, RoleVerdict::Permitted) => NearestMiss::AssignedAtOtherScope(assignment),
            (true, _) => NearestMiss::RoleLacksAction(assignment),
            (false, _) => NearestMiss::NoMatchingAssignment,
        };
        if found.distance() < miss.distance() {
            miss = found;
        }
    }
    miss
}

impl NearestMiss<'_> {
    fn distance(&self) -> u8 {
        match self {
            Self::Excluded { .. } => 0,
            Self::AssignedAtOtherScope(_) => 1,
            Self::RoleLacksAction(_) => 2,
            Self::NoMatchingAssignment => 3,
            Self::NoAssignment => 4,
        }
    }
}

impl fmt::Display for NearestMiss<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded { assignment, pattern } => write!(
                formatter,
                "`{}` at `{}` excludes the action by `{pattern}`",
                role_name(assignment),
                assignment.scope
            ),
            Self::AssignedAtOtherScope(assignment) => write!(
                formatter,
                "`{}` permits the action, but is assigned at `{}`",
                role_name(assignment),
                assignment.scope
            ),
            Self::RoleLacksAction(assignment) => write!(
                formatter,
                "`{}` is assigned at `{}`, but lacks the action",
                role_name(assignment),
                assignment.scope
            ),
            Self::NoMatchingAssignment => formatter
                .write_str("no assignment of the caller is at this scope or has this action"),
            Self::NoAssignment => formatter.write_str("the caller has no role assignment"),
        }
    }
}

/// An explained decision: the response of the control API's `explain` operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessExplanation {
    /// Whether the request is granted.
    pub(crate) granted: bool,
    /// The action that was evaluated.
    pub(crate) action: String,
    /// The scope at which it was evaluated.
    pub(crate) scope: String,
    /// The id of the decisive assignment, or of the nearest miss.
    pub(crate) assignment: Option<String>,
    /// The role of that assignment.
    pub(crate) role: Option<String>,
    /// The reason as text.
    pub(crate) reason: String,
}

impl AccessExplanation {
    pub(super) fn of(
        request: AccessRequest<'_>,
        decision: &Result<&RoleAssignment, NearestMiss<'_>>,
    ) -> Self {
        let assignment = match decision {
            Ok(assignment)
            | Err(
                NearestMiss::Excluded { assignment, .. }
                | NearestMiss::AssignedAtOtherScope(assignment)
                | NearestMiss::RoleLacksAction(assignment),
            ) => Some(*assignment),
            Err(NearestMiss::NoMatchingAssignment | NearestMiss::NoAssignment) => None,
        };
        let reason = match decision {
            Ok(by) => format!("`{}` at `{}` permits the action", role_name(by), by.scope),
            Err(miss) => miss.to_string(),
        };
        Self {
            granted: decision.is_ok(),
            action: request.action.to_owned(),
            scope: request.scope.to_string(),
            assignment: assignment.map(RoleAssignment::id),
            role: assignment.map(|assignment| role_name(assignment).to_owned()),
            reason,
        }
    }
}

fn role_name(assignment: &RoleAssignment) -> &'static str {
    RoleCatalog::built_in().role(assignment.role).map_or("a removed role", |role| &role.name)
}
