//! Why a request is granted or refused.

use std::fmt;

use serde::Serialize;

use super::roles::RoleVerdict;
use super::{AccessRequest, Authorization, RoleAssignment, RoleCatalog};

/// How near a refused request came to being granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NearestMiss<'a> {
    /// A role at the right scope covers the action and takes it away again.
    Excluded {
        /// The assignment of the role.
        assignment: &'a RoleAssignment,
        /// The not-action.
        pattern: &'a str,
    },
    /// A role of the caller permits the action, but at another scope.
    AssignedAtOtherScope(&'a RoleAssignment),
    /// The caller has a role at the right scope, which lacks the action.
    RoleLacksAction(&'a RoleAssignment),
    /// The caller has assignments, neither at this scope nor with this action.
    NoMatchingAssignment,
    /// The caller has no assignment at all.
    NoAssignment,
}

/// The nearest miss of a request that no assignment grants; `action` is lower-case.
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
                "`{}` at `{}` takes the action away by `{pattern}`",
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

/// A decision that can be shown: the answer of the control API's `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessExplanation {
    /// Whether the request is granted.
    pub(crate) granted: bool,
    /// The action that was evaluated.
    pub(crate) action: String,
    /// The scope at which it was evaluated.
    pub(crate) scope: String,
    /// The id of the assignment that decided, or that came nearest.
    pub(crate) assignment: Option<String>,
    /// The role of that assignment.
    pub(crate) role: Option<String>,
    /// The reason in words.
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
