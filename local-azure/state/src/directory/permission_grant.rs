//! Grants of delegated permissions: the consent of users to applications.

use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::EntraDirectory;
use crate::table::Table;

/// A grant of delegated permissions (`oauth2PermissionGrant`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DelegatedPermissionGrant {
    /// The id in Microsoft Graph, base64url without padding.
    pub id: String,
    pub tenant: EntraTenantId,
    /// The object id of the service principal of the client.
    pub client_id: Uuid,
    /// The object id of the user who consented; `None` for a consent for all users.
    pub principal_id: Option<Uuid>,
    /// The object id of the service principal of the resource.
    pub resource_id: Uuid,
    /// The delegated permissions, separated by spaces.
    pub scope: String,
}

impl EntraDirectory {
    /// Every grant of delegated permissions, by id.
    pub const fn permission_grants(&self) -> &Table<String, DelegatedPermissionGrant> {
        &self.permission_grants
    }

    pub fn insert_permission_grant(&mut self, grant: DelegatedPermissionGrant) {
        self.permission_grants.insert(grant.id.clone(), grant);
    }

    pub fn remove_permission_grant(&mut self, id: &str) -> Option<DelegatedPermissionGrant> {
        self.permission_grants.remove(id)
    }
}
