//! Roles of the directory itself, such as Global Administrator. They are independent of the roles of Azure
//! resources.

use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use uuid::{Uuid, uuid};

use super::EntraDirectory;
use crate::table::Table;

/// A built-in role of the directory. Each variant lists what the role can manage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryRole {
    /// Everything.
    GlobalAdministrator,
    /// Every application and service principal, and consent, except to application permissions of Microsoft
    /// Graph.
    ApplicationAdministrator,
    /// Like [`Self::ApplicationAdministrator`], without the application proxy.
    CloudApplicationAdministrator,
    /// Every user and group.
    UserAdministrator,
    /// Every group.
    GroupsAdministrator,
    /// Assignments of directory roles, and consent to any permission.
    PrivilegedRoleAdministrator,
    /// Read access to the directory only, for applications and guests.
    DirectoryReaders,
}

impl DirectoryRole {
    /// The template id, which is the same in every tenant.
    pub const fn template_id(self) -> Uuid {
        match self {
            Self::GlobalAdministrator => uuid!("62e90394-69f5-4237-9190-012177145e10"),
            Self::ApplicationAdministrator => uuid!("9b895d92-2cd3-44c7-9d02-a6ac2d5ea5c3"),
            Self::CloudApplicationAdministrator => uuid!("158c047a-c907-4556-b7ef-446551a6b5f7"),
            Self::UserAdministrator => uuid!("fe930be7-5e62-47db-91af-98c3a49a38b1"),
            Self::GroupsAdministrator => uuid!("fdd7a751-b60b-444a-984c-02652fe8fa1c"),
            Self::PrivilegedRoleAdministrator => uuid!("e8611ab8-c189-46e8-94e1-60213ab1f814"),
            Self::DirectoryReaders => uuid!("88d8e3e3-8f55-4a1e-953a-9b9898b8876b"),
        }
    }

    pub const fn display_name(self) -> &'static str {
        match self {
            Self::GlobalAdministrator => "Global Administrator",
            Self::ApplicationAdministrator => "Application Administrator",
            Self::CloudApplicationAdministrator => "Cloud Application Administrator",
            Self::UserAdministrator => "User Administrator",
            Self::GroupsAdministrator => "Groups Administrator",
            Self::PrivilegedRoleAdministrator => "Privileged Role Administrator",
            Self::DirectoryReaders => "Directory Readers",
        }
    }
}

/// The assignment of a directory role to a principal, for the whole tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirectoryRoleAssignment {
    pub id: Uuid,
    pub tenant: EntraTenantId,
    /// The object id of the user, group or service principal.
    pub principal_id: Uuid,
    pub role: DirectoryRole,
}

impl EntraDirectory {
    /// Every assignment of a directory role, by id.
    pub const fn directory_role_assignments(&self) -> &Table<Uuid, DirectoryRoleAssignment> {
        &self.directory_roles
    }

    pub fn insert_directory_role_assignment(&mut self, assignment: DirectoryRoleAssignment) {
        self.directory_roles.insert(assignment.id, assignment);
    }

    /// The directory roles of a principal, those of its groups included.
    pub fn directory_roles_of(&self, principal: Uuid) -> Vec<DirectoryRole> {
        let ids = self.principal_and_group_ids(principal);
        let mut roles: Vec<_> = self
            .directory_roles
            .values()
            .filter(|assignment| ids.contains(&assignment.principal_id))
            .map(|assignment| assignment.role)
            .collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    }
}
