//! What a caller may do in the directory: the effect of its permissions and directory roles.
//!
//! References: "Microsoft Graph permissions reference" for applications, "Microsoft Entra built-in roles" and
//! "What are the default user permissions in Microsoft Entra ID" for users.

use std::collections::BTreeSet;

use lanyard_emulator_state::directory::{DirectoryRole, EntraDirectory, GraphPermission};
use uuid::Uuid;

/// The delegated permission for all that the user may do.
const ALL_OF_USER: &str = "Directory.AccessAsUser.All";

/// A right in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum GraphRight {
    /// Reads applications, service principals, and their app role assignments.
    ReadApplications,
    /// Creates applications, and service principals for them.
    CreateApplications,
    /// Changes and deletes applications and service principals that the caller owns.
    WriteOwnedApplications,
    WriteApplications,
    ReadUsers,
    WriteUsers,
    DeleteUsers,
    ReadGroups,
    CreateGroups,
    /// Changes and deletes groups that the caller owns.
    WriteOwnedGroups,
    WriteGroupMembers,
    WriteGroups,
    DeleteGroups,
    /// Assigns app roles, except those of Microsoft Graph.
    GrantAppRoles,
    /// Assigns the app roles of Microsoft Graph.
    GrantGraphAppRoles,
}

impl GraphRight {
    /// The rights of a global administrator.
    const ALL: &[Self] = &[
        Self::ReadApplications,
        Self::CreateApplications,
        Self::WriteOwnedApplications,
        Self::WriteApplications,
        Self::ReadUsers,
        Self::WriteUsers,
        Self::DeleteUsers,
        Self::ReadGroups,
        Self::CreateGroups,
        Self::WriteOwnedGroups,
        Self::WriteGroupMembers,
        Self::WriteGroups,
        Self::DeleteGroups,
        Self::GrantAppRoles,
        Self::GrantGraphAppRoles,
    ];

    /// The default permissions of users.
    const OF_USERS: &[Self] = &[
        Self::ReadApplications,
        Self::CreateApplications,
        Self::WriteOwnedApplications,
        Self::ReadUsers,
        Self::ReadGroups,
        Self::CreateGroups,
        Self::WriteOwnedGroups,
    ];

    const fn of_role(role: DirectoryRole) -> &'static [Self] {
        match role {
            DirectoryRole::GlobalAdministrator => Self::ALL,
            DirectoryRole::ApplicationAdministrator
            | DirectoryRole::CloudApplicationAdministrator => &[
                Self::ReadApplications,
                Self::CreateApplications,
                Self::WriteApplications,
                Self::GrantAppRoles,
            ],
            DirectoryRole::UserAdministrator => &[
                Self::ReadUsers,
                Self::WriteUsers,
                Self::DeleteUsers,
                Self::ReadGroups,
                Self::CreateGroups,
                Self::WriteGroupMembers,
                Self::WriteGroups,
                Self::DeleteGroups,
            ],
            DirectoryRole::GroupsAdministrator => &[
                Self::ReadGroups,
                Self::CreateGroups,
                Self::WriteGroupMembers,
                Self::WriteGroups,
                Self::DeleteGroups,
            ],
            DirectoryRole::PrivilegedRoleAdministrator => {
                &[Self::GrantAppRoles, Self::GrantGraphAppRoles]
            }
            DirectoryRole::DirectoryReaders => {
                &[Self::ReadApplications, Self::ReadUsers, Self::ReadGroups]
            }
        }
    }

    const fn of_permission(permission: GraphPermission) -> &'static [Self] {
        match permission {
            GraphPermission::ApplicationReadAll => &[Self::ReadApplications],
            GraphPermission::ApplicationReadWriteAll => {
                &[Self::ReadApplications, Self::CreateApplications, Self::WriteApplications]
            }
            GraphPermission::ApplicationReadWriteOwnedBy => {
                &[Self::ReadApplications, Self::CreateApplications, Self::WriteOwnedApplications]
            }
            GraphPermission::AppRoleAssignmentReadWriteAll => {
                &[Self::GrantAppRoles, Self::GrantGraphAppRoles]
            }
            // There are no operations on delegated permission grants, domains, the organization and
            // directory roles.
            GraphPermission::DelegatedPermissionGrantReadWriteAll
            | GraphPermission::DomainReadAll
            | GraphPermission::OrganizationReadAll
            | GraphPermission::RoleManagementReadDirectory
            | GraphPermission::RoleManagementReadWriteDirectory => &[],
            GraphPermission::DirectoryReadAll => Self::of_role(DirectoryRole::DirectoryReaders),
            GraphPermission::DirectoryReadWriteAll => &[
                Self::ReadApplications,
                Self::CreateApplications,
                Self::WriteApplications,
                Self::ReadUsers,
                Self::WriteUsers,
                Self::ReadGroups,
                Self::CreateGroups,
                Self::WriteGroupMembers,
                Self::WriteGroups,
            ],
            GraphPermission::GroupCreate => &[Self::CreateGroups],
            GraphPermission::GroupReadAll | GraphPermission::GroupMemberReadAll => {
                &[Self::ReadGroups]
            }
            GraphPermission::GroupReadWriteAll => Self::of_role(DirectoryRole::GroupsAdministrator),
            GraphPermission::GroupMemberReadWriteAll => {
                &[Self::ReadGroups, Self::WriteGroupMembers]
            }
            GraphPermission::UserReadAll | GraphPermission::UserReadBasicAll => &[Self::ReadUsers],
            GraphPermission::UserReadWriteAll => {
                &[Self::ReadUsers, Self::WriteUsers, Self::DeleteUsers]
            }
        }
    }

    /// The rights of a user: the default ones and those of the directory roles, as far as the delegated
    /// permissions of the token allow them.
    pub(super) fn of_user(
        directory: &EntraDirectory,
        user: Uuid,
        delegated: &[String],
    ) -> BTreeSet<Self> {
        let roles = directory.directory_roles_of(user);
        let of_roles = roles.into_iter().flat_map(Self::of_role);
        let own = Self::OF_USERS.iter().chain(of_roles).copied();
        if delegated.iter().any(|permission| permission == ALL_OF_USER) {
            return own.collect();
        }
        let mut allowed = Self::of_permissions(delegated);
        for (whole, owned) in [
            (Self::WriteApplications, Self::WriteOwnedApplications),
            (Self::WriteGroups, Self::WriteOwnedGroups),
        ] {
            if allowed.contains(&whole) {
                allowed.insert(owned);
            }
        }
        own.filter(|right| allowed.contains(right)).collect()
    }

    /// The rights of a service principal: those of the app roles in its token and of its directory roles.
    pub(super) fn of_service_principal(
        directory: &EntraDirectory,
        principal: Uuid,
        app_roles: &[String],
    ) -> BTreeSet<Self> {
        let roles = directory.directory_roles_of(principal);
        let of_roles = roles.into_iter().flat_map(Self::of_role).copied();
        Self::of_permissions(app_roles).into_iter().chain(of_roles).collect()
    }

    fn of_permissions(values: &[String]) -> BTreeSet<Self> {
        let known = values.iter().filter_map(|value| GraphPermission::from_value(value));
        known.flat_map(Self::of_permission).copied().collect()
    }
}
