//! Seeds the administrator: the user with whom administrators' scripts start.
//!
//! The administrator is Owner of the subscription and manages the directory. As in Azure, these
//! roles give no permission on the content of vaults.

use lanyard_emulator_state::authorization::RoleAssignment;
use lanyard_emulator_state::directory::{DirectoryRole, DirectoryRoleAssignment, User};
use lanyard_emulator_state::keys::RedactedText;
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId};
use serde_json::Map;
use uuid::Uuid;

use super::AzureSeeder;

/// A domain that can never be registered (RFC 6761), so that no real account has this domain.
pub(super) const CUSTOM_DOMAIN: &str = "lanyard.test";

pub(super) struct SeededAdministrator {
    pub(super) object_id: Uuid,
    pub(super) principal_name: String,
    pub(super) password: RedactedText,
}

impl AzureSeeder<'_> {
    /// Adds the administrator to the subscription's tenant.
    pub(super) fn add_administrator(&mut self) -> SeededAdministrator {
        let object_id = self.ids.named_uuid("administrator");
        let secret = self.ids.named_uuid("administrator/password").simple().to_string();
        // Entra requires three kinds of characters in a password.
        let password = RedactedText::new(format!("Pw-{}", &secret[..16]));
        let principal_name = format!("admin@{CUSTOM_DOMAIN}");
        let tenant = self.plan.tenant.clone();
        let directory = &mut self.azure.directory;
        directory.insert_user(User {
            object_id,
            tenant: tenant.clone(),
            principal_name: principal_name.clone(),
            display_name: "Administrator".to_owned(),
            enabled: true,
            password: password.clone(),
            created: self.now,
            properties: Map::new(),
        });
        directory.insert_directory_role_assignment(DirectoryRoleAssignment {
            id: self.ids.named_uuid("administrator/directory-role"),
            tenant,
            principal_id: object_id,
            role: DirectoryRole::GlobalAdministrator,
        });
        let subscription = ArmResourceId::subscription_scope(&self.plan.subscription);
        let name = self.ids.named_uuid("administrator/owner");
        let assignment = RoleAssignment::new(
            name,
            subscription.into(),
            RoleDefinitionId::OWNER,
            object_id,
            self.now,
        );
        self.assign(RoleAssignment { principal_type: "User".to_owned(), ..assignment });
        SeededAdministrator { object_id, principal_name, password }
    }
}
