//! Permissions of Microsoft Graph. Reference: "Microsoft Graph permissions reference", limited to the parts of
//! the directory that the emulator has.

use serde_json::{Value, json};
use uuid::{Uuid, uuid};

/// An application permission of Microsoft Graph (an app role).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GraphPermission {
    ApplicationReadAll,
    ApplicationReadWriteAll,
    ApplicationReadWriteOwnedBy,
    AppRoleAssignmentReadWriteAll,
    DelegatedPermissionGrantReadWriteAll,
    DirectoryReadAll,
    DirectoryReadWriteAll,
    DomainReadAll,
    GroupCreate,
    GroupReadAll,
    GroupReadWriteAll,
    GroupMemberReadAll,
    GroupMemberReadWriteAll,
    OrganizationReadAll,
    RoleManagementReadDirectory,
    RoleManagementReadWriteDirectory,
    UserReadAll,
    UserReadBasicAll,
    UserReadWriteAll,
}

impl GraphPermission {
    /// Every permission.
    pub const ALL: [Self; 19] = [
        Self::ApplicationReadAll,
        Self::ApplicationReadWriteAll,
        Self::ApplicationReadWriteOwnedBy,
        Self::AppRoleAssignmentReadWriteAll,
        Self::DelegatedPermissionGrantReadWriteAll,
        Self::DirectoryReadAll,
        Self::DirectoryReadWriteAll,
        Self::DomainReadAll,
        Self::GroupCreate,
        Self::GroupReadAll,
        Self::GroupReadWriteAll,
        Self::GroupMemberReadAll,
        Self::GroupMemberReadWriteAll,
        Self::OrganizationReadAll,
        Self::RoleManagementReadDirectory,
        Self::RoleManagementReadWriteDirectory,
        Self::UserReadAll,
        Self::UserReadBasicAll,
        Self::UserReadWriteAll,
    ];

    /// The id of the app role.
    pub const fn id(self) -> Uuid {
        match self {
            Self::ApplicationReadAll => uuid!("9a5d68dd-52b0-4cc2-bd40-abcf44ac3a30"),
            Self::ApplicationReadWriteAll => uuid!("1bfefb4e-e0b5-418b-a88f-73c46d2cc8e9"),
            Self::ApplicationReadWriteOwnedBy => uuid!("18a4783c-866b-4cc7-a460-3d5e5662c884"),
            Self::AppRoleAssignmentReadWriteAll => uuid!("06b708a9-e830-4db3-a914-8e69da51d44f"),
            Self::DelegatedPermissionGrantReadWriteAll => {
                uuid!("8e8e4742-1d95-4f68-9d56-6ee75648c72a")
            }
            Self::DirectoryReadAll => uuid!("7ab1d382-f21e-4acd-a863-ba3e13f7da61"),
            Self::DirectoryReadWriteAll => uuid!("19dbc75e-c2e2-444c-a770-ec69d8559fc7"),
            Self::DomainReadAll => uuid!("dbb9058a-0e50-45d7-ae91-66909b5d4664"),
            Self::GroupCreate => uuid!("bf7b1a76-6e77-406b-b258-bf5c7720e98f"),
            Self::GroupReadAll => uuid!("5b567255-7703-4780-807c-7be8301ae99b"),
            Self::GroupReadWriteAll => uuid!("62a82d76-70ea-41e2-9197-370581804d09"),
            Self::GroupMemberReadAll => uuid!("98830695-27a2-44f7-8c18-0c3ebc9698f6"),
            Self::GroupMemberReadWriteAll => uuid!("dbaae8cf-10b5-4b86-a4a1-f871c94c6695"),
            Self::OrganizationReadAll => uuid!("498476ce-e0fe-48b0-b801-37ba7e2685c6"),
            Self::RoleManagementReadDirectory => uuid!("483bed4a-2ad3-4361-a73b-c83ccdbdc53c"),
            Self::RoleManagementReadWriteDirectory => uuid!("9e3f62cf-ca93-4989-b6ce-bf83c28f9fe8"),
            Self::UserReadAll => uuid!("df021288-bdef-4463-88db-98f22de89214"),
            Self::UserReadBasicAll => uuid!("97235f07-e226-4f63-ace3-39588e11d3a1"),
            Self::UserReadWriteAll => uuid!("741f803b-c850-494e-b5df-cde7c675a1ca"),
        }
    }

    /// The value in the claim `roles`.
    pub const fn value(self) -> &'static str {
        match self {
            Self::ApplicationReadAll => "Application.Read.All",
            Self::ApplicationReadWriteAll => "Application.ReadWrite.All",
            Self::ApplicationReadWriteOwnedBy => "Application.ReadWrite.OwnedBy",
            Self::AppRoleAssignmentReadWriteAll => "AppRoleAssignment.ReadWrite.All",
            Self::DelegatedPermissionGrantReadWriteAll => "DelegatedPermissionGrant.ReadWrite.All",
            Self::DirectoryReadAll => "Directory.Read.All",
            Self::DirectoryReadWriteAll => "Directory.ReadWrite.All",
            Self::DomainReadAll => "Domain.Read.All",
            Self::GroupCreate => "Group.Create",
            Self::GroupReadAll => "Group.Read.All",
            Self::GroupReadWriteAll => "Group.ReadWrite.All",
            Self::GroupMemberReadAll => "GroupMember.Read.All",
            Self::GroupMemberReadWriteAll => "GroupMember.ReadWrite.All",
            Self::OrganizationReadAll => "Organization.Read.All",
            Self::RoleManagementReadDirectory => "RoleManagement.Read.Directory",
            Self::RoleManagementReadWriteDirectory => "RoleManagement.ReadWrite.Directory",
            Self::UserReadAll => "User.Read.All",
            Self::UserReadBasicAll => "User.ReadBasic.All",
            Self::UserReadWriteAll => "User.ReadWrite.All",
        }
    }

    /// The permission with the id of an app role.
    pub(crate) fn from_id(id: Uuid) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.id() == id)
    }

    /// The permission with this value in the claim `roles`, such as `Application.Read.All`.
    pub fn from_value(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|permission| permission.value() == value)
    }

    /// The display name of the app role.
    const fn display_name(self) -> &'static str {
        match self {
            Self::ApplicationReadAll => "Read all applications",
            Self::ApplicationReadWriteAll => "Read and write all applications",
            Self::ApplicationReadWriteOwnedBy => "Manage apps that this app creates or owns",
            Self::AppRoleAssignmentReadWriteAll => {
                "Manage app permission grants and app role assignments"
            }
            Self::DelegatedPermissionGrantReadWriteAll => "Manage all delegated permission grants",
            Self::DirectoryReadAll => "Read directory data",
            Self::DirectoryReadWriteAll => "Read and write directory data",
            Self::DomainReadAll => "Read domains",
            Self::GroupCreate => "Create groups",
            Self::GroupReadAll => "Read all groups",
            Self::GroupReadWriteAll => "Read and write all groups",
            Self::GroupMemberReadAll => "Read all group memberships",
            Self::GroupMemberReadWriteAll => "Read and write all group memberships",
            Self::OrganizationReadAll => "Read organization information",
            Self::RoleManagementReadDirectory => "Read all directory RBAC settings",
            Self::RoleManagementReadWriteDirectory => "Read and write all directory RBAC settings",
            Self::UserReadAll => "Read all users' full profiles",
            Self::UserReadBasicAll => "Read all users' basic profiles",
            Self::UserReadWriteAll => "Read and write all users' full profiles",
        }
    }
}

/// Delegated permissions of Microsoft Graph: id, value and display name.
const DELEGATED_SCOPES: [(Uuid, &str, &str); 11] = [
    (uuid!("c79f8feb-a9db-4090-85f9-90d820caa0eb"), "Application.Read.All", "Read applications"),
    (
        uuid!("bdfbf15f-ee85-4955-8675-146e8e5296b5"),
        "Application.ReadWrite.All",
        "Read and write all applications",
    ),
    (
        uuid!("0e263e50-5827-48a4-b97c-d940288653c7"),
        "Directory.AccessAsUser.All",
        "Access the directory as you",
    ),
    (uuid!("06da0dbc-49e2-44d2-8312-53f166ab848a"), "Directory.Read.All", "Read directory data"),
    (uuid!("64a6cdd6-aab1-4aaf-94b8-3cc8405e90d0"), "email", "View your email address"),
    (uuid!("5f8c59db-677d-491f-a6b8-5f174b11ec1d"), "Group.Read.All", "Read all groups"),
    (
        uuid!("4e46008b-f24c-477d-8fff-7bb4ec7aafe0"),
        "Group.ReadWrite.All",
        "Read and write all groups",
    ),
    (
        uuid!("7427e0e9-2fba-42fe-b0c0-848c9e6a8182"),
        "offline_access",
        "Maintain access to data you have given it access to",
    ),
    (uuid!("37f7f235-527c-4136-accd-4a02d197296e"), "openid", "Sign you in"),
    (uuid!("14dad69e-099b-42c9-810b-d002981feec1"), "profile", "View your basic profile"),
    (
        uuid!("e1fe6dd8-ba31-4d61-89e7-88639da4683d"),
        "User.Read",
        "Sign you in and read your profile",
    ),
];

/// `appRoles` of the service principal of Microsoft Graph.
pub(super) fn app_roles() -> Value {
    let role = |permission: GraphPermission| {
        let name = permission.display_name();
        json!({
            "id": permission.id(),
            "value": permission.value(),
            "displayName": name,
            "description": name,
            "allowedMemberTypes": ["Application"],
            "isEnabled": true,
            "origin": "Application",
        })
    };
    GraphPermission::ALL.into_iter().map(role).collect()
}

/// `oauth2PermissionScopes` of the service principal of Microsoft Graph.
pub(super) fn delegated_scopes() -> Value {
    let scope = |(id, value, name): (Uuid, &str, &str)| {
        json!({
            "id": id,
            "value": value,
            "type": "User",
            "adminConsentDisplayName": name,
            "adminConsentDescription": name,
            "userConsentDisplayName": name,
            "userConsentDescription": name,
            "isEnabled": true,
        })
    };
    DELEGATED_SCOPES.into_iter().map(scope).collect()
}
