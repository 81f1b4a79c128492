//! Custom roles.

use jiff::Timestamp;
use lanyard_vocabulary::{EntraTenantId, RoleDefinitionId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Authorization;
use super::access_scope::AccessScope;
use super::built_in_roles::BuiltInRoles;
use super::role_definition::RoleDefinition;

/// The maximum number of custom roles of a tenant.
pub const MAX_CUSTOM_ROLES: usize = 5_000;

/// A role that a caller defined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomRole {
    pub definition: RoleDefinition,
    /// The tenant in which the role can be assigned.
    pub tenant: EntraTenantId,
    pub description: Option<String>,
    /// Where the role can be assigned: these scopes and those below them.
    pub assignable_scopes: Vec<AccessScope>,
    pub created_on: Timestamp,
    /// The object id of the principal that created the role.
    pub created_by: Uuid,
    pub updated_on: Timestamp,
    /// The object id of the principal that updated the role last.
    pub updated_by: Uuid,
}

impl CustomRole {
    /// Whether the role can be assigned on `scope`; `management_groups` are those above the scope.
    pub fn is_assignable_at(&self, scope: &AccessScope, management_groups: &[AccessScope]) -> bool {
        self.assignable_scopes
            .iter()
            .any(|assignable| assignable.contains(scope) || management_groups.contains(assignable))
    }
}

/// A custom role cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CustomRoleError {
    /// A role of the tenant has this name.
    SameName,
    /// A role of another tenant has this id.
    SameId,
    /// The tenant has the maximum number of custom roles.
    Limit,
}

impl Authorization {
    /// Stores a custom role. Its name must be unique among the roles of its tenant.
    pub fn put_custom_role(&mut self, role: CustomRole) -> Result<(), CustomRoleError> {
        let id = role.definition.id;
        let same_name = self.role_with_name(Some(&role.tenant), &role.definition.name);
        if same_name.is_some_and(|known| known != id) {
            return Err(CustomRoleError::SameName);
        }
        let known = self.custom_roles.get(&id.0);
        if known.is_some_and(|known| known.tenant != role.tenant) {
            return Err(CustomRoleError::SameId);
        }
        let is_new = known.is_none();
        if is_new && self.custom_roles_of(&role.tenant).count() >= MAX_CUSTOM_ROLES {
            return Err(CustomRoleError::Limit);
        }
        self.custom_roles.insert(id.0, role);
        Ok(())
    }

    /// Deletes a custom role and returns it.
    pub fn remove_custom_role(&mut self, id: RoleDefinitionId) -> Option<CustomRole> {
        self.custom_roles.remove(&id.0)
    }

    /// The custom role with this id.
    pub fn custom_role(&self, id: RoleDefinitionId) -> Option<&CustomRole> {
        self.custom_roles.get(&id.0)
    }

    /// The custom roles of a tenant.
    pub fn custom_roles_of(&self, tenant: &EntraTenantId) -> impl Iterator<Item = &CustomRole> {
        self.custom_roles.values().filter(move |role| role.tenant == *tenant)
    }

    /// The id of the role with a display name, ignoring case: a built-in role, or a custom role of
    /// `tenant`. Without a tenant, the custom roles of all tenants are searched.
    pub fn role_with_name(
        &self,
        tenant: Option<&EntraTenantId>,
        name: &str,
    ) -> Option<RoleDefinitionId> {
        let built_in = BuiltInRoles::embedded().role_with_name(name).map(|role| role.id);
        built_in.or_else(|| {
            self.custom_roles
                .values()
                .filter(|role| tenant.is_none_or(|tenant| role.tenant == *tenant))
                .find(|role| role.definition.name.to_lowercase() == name.to_lowercase())
                .map(|role| role.definition.id)
        })
    }

    /// Whether an assignment of the role exists.
    pub fn is_role_assigned(&self, id: RoleDefinitionId) -> bool {
        self.index.assignments.count_of_role(id) > 0
    }
}
