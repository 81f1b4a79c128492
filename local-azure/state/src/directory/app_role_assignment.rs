//! App role assignments: application permissions of service principals, and access of users and groups to
//! applications.

use jiff::Timestamp;
use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::EntraDirectory;
use crate::table::Table;

/// The assignment of an app role of a resource to a principal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppRoleAssignment {
    /// The id in Microsoft Graph, base64url without padding.
    pub id: String,
    pub tenant: EntraTenantId,
    /// The object id of the service principal, user or group that has the role.
    pub principal_id: Uuid,
    /// The object id of the service principal that defines the role.
    pub resource_id: Uuid,
    /// The id of the role; the zero GUID for access without a role.
    pub app_role_id: Uuid,
    pub created: Timestamp,
}

impl EntraDirectory {
    /// Every app role assignment, by id.
    pub const fn app_role_assignments(&self) -> &Table<String, AppRoleAssignment> {
        &self.app_role_assignments
    }

    /// The direct app role assignments of a principal.
    pub fn app_role_assignments_of(
        &self,
        principal: Uuid,
    ) -> impl Iterator<Item = &AppRoleAssignment> {
        let ids = self.index.app_roles_by_principal.get(&principal).into_iter().flatten();
        ids.filter_map(|id| self.app_role_assignments.get(id))
    }

    pub fn insert_app_role_assignment(&mut self, assignment: AppRoleAssignment) {
        self.index.add_app_role_assignment(&assignment);
        self.app_role_assignments.insert(assignment.id.clone(), assignment);
    }

    pub fn remove_app_role_assignment(&mut self, id: &str) -> Option<AppRoleAssignment> {
        let removed = self.app_role_assignments.remove(id)?;
        self.index.remove_app_role_assignment(&removed);
        Some(removed)
    }
}
