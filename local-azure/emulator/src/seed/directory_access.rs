//! Seeds the permissions of Microsoft Graph that a test client has.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_emulator_state::directory::{AppRoleAssignment, GraphPermission, graph_principal_id};
use lanyard_vocabulary::EntraClientId;

use super::AzureSeeder;
use super::plan::DirectoryAccess;

impl DirectoryAccess {
    const fn permissions(self) -> &'static [GraphPermission] {
        match self {
            Self::None => &[],
            Self::Read => &[GraphPermission::DirectoryReadAll],
            Self::Full => &[
                GraphPermission::DirectoryReadAll,
                GraphPermission::ApplicationReadWriteAll,
                GraphPermission::AppRoleAssignmentReadWriteAll,
                GraphPermission::GroupReadWriteAll,
                GraphPermission::UserReadWriteAll,
            ],
        }
    }
}

impl AzureSeeder<'_> {
    /// Assigns the app roles of Microsoft Graph that the plan gives to a test client.
    pub(super) fn grant_directory_access(&mut self, client: EntraClientId) {
        let directory = &mut self.azure.directory;
        let Some(principal) = directory.service_principal_by_client_id(client) else { return };
        let (principal_id, tenant) = (principal.object_id, principal.tenant.clone());
        for permission in self.plan.directory_access.permissions() {
            let name = permission.value();
            let ids = ["principal", "resource"]
                .map(|part| self.ids.named_uuid(&format!("test-secret/{name}/{part}")));
            directory.insert_app_role_assignment(AppRoleAssignment {
                id: URL_SAFE_NO_PAD.encode(ids.map(uuid::Uuid::into_bytes).concat()),
                tenant: tenant.clone(),
                principal_id,
                resource_id: graph_principal_id(&tenant),
                app_role_id: permission.id(),
                created: self.now,
            });
        }
    }
}
