//! Access checks of the services: an access request with the groups of the caller and the management groups
//! of the scope.

use std::cell::OnceCell;

use jiff::Timestamp;
use uuid::Uuid;

use super::access_scope::AccessScope;
use super::condition::AssignmentAttributes;
use super::explain::{AccessExplanation, NearestMiss};
use super::role_assignment::RoleAssignment;
use super::{AccessRequest, ActionPlane};
use crate::azure_state::AzureState;

/// The management groups above a scope. They are determined when they are first needed: most requests are granted
/// by an assignment at a lower scope.
#[derive(Debug, Default)]
pub struct ManagementGroupsAbove<'a> {
    source: Option<(&'a AzureState, &'a AccessScope)>,
    groups: OnceCell<Vec<AccessScope>>,
}

impl<'a> ManagementGroupsAbove<'a> {
    fn new(azure: &'a AzureState, scope: &'a AccessScope) -> Self {
        Self { source: Some((azure, scope)), groups: OnceCell::new() }
    }

    pub(crate) fn nearest_first(&self) -> &[AccessScope] {
        self.groups.get_or_init(|| {
            self.source.map_or_else(Vec::new, |(azure, scope)| azure.management_groups_above(scope))
        })
    }
}

#[cfg(test)]
impl From<Vec<AccessScope>> for ManagementGroupsAbove<'_> {
    fn from(groups: Vec<AccessScope>) -> Self {
        Self { source: None, groups: groups.into() }
    }
}

/// Asks whether a principal may perform an action on a scope. The groups of the principal and the
/// management groups above the scope are read from the state.
#[derive(Debug, Clone, Copy)]
pub struct AccessCheck<'a> {
    /// The object id of the caller.
    pub principal_id: Uuid,
    /// The plane of the action.
    pub plane: ActionPlane,
    /// The action, such as `Microsoft.Network/virtualNetworks/read`.
    pub action: &'a str,
    /// The scope of the action.
    pub scope: &'a AccessScope,
    /// The role assignment that the request writes or deletes, for conditions; `None` for others.
    pub role_assignment: Option<AssignmentAttributes<'a>>,
    /// The emulated time.
    pub now: Timestamp,
}

impl AccessCheck<'_> {
    /// Returns the assignment that grants access, or the reason for the denial.
    pub fn decide<'a>(&self, azure: &'a AzureState) -> Result<&'a RoleAssignment, NearestMiss<'a>> {
        self.with_request(azure, |request| azure.authorization.decide_access(request))
    }

    /// Whether access is granted. Cheaper than [`Self::decide`], which explains a denial.
    pub fn is_granted(&self, azure: &AzureState) -> bool {
        self.with_request(azure, |request| azure.authorization.is_granted(request))
    }

    /// Explains the decision.
    pub fn explain(&self, azure: &AzureState) -> AccessExplanation {
        self.with_request(azure, |request| azure.authorization.explain_decision(request))
    }

    fn with_request<T>(
        &self,
        azure: &AzureState,
        decide: impl FnOnce(AccessRequest<'_>) -> T,
    ) -> T {
        decide(AccessRequest {
            principal_ids: &azure.directory.principal_and_group_ids(self.principal_id),
            plane: self.plane,
            action: self.action,
            scope: self.scope,
            management_groups: &ManagementGroupsAbove::new(azure, self.scope),
            role_assignment: self.role_assignment,
            now: self.now,
        })
    }
}
