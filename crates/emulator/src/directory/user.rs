//! Users.

use jiff::Timestamp;
use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::EntraDirectory;
use crate::keys::RedactedText;
use crate::table::Table;

/// A member of a tenant who signs in with a password.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) object_id: Uuid,
    pub(crate) tenant: EntraTenantId,
    /// The user principal name, such as `ada@contoso.onmicrosoft.com`.
    pub(crate) principal_name: String,
    pub(crate) display_name: String,
    /// Whether the user may sign in (`accountEnabled`).
    pub(crate) enabled: bool,
    pub(crate) password: RedactedText,
    pub(crate) created: Timestamp,
    /// Further properties of Microsoft Graph as given, for example `mailNickname`.
    #[serde(default)]
    pub(crate) properties: Map<String, Value>,
}

impl EntraDirectory {
    /// Every user, by object id.
    pub(crate) const fn users(&self) -> &Table<Uuid, User> {
        &self.users
    }

    pub(crate) fn user(&self, object_id: Uuid) -> Option<&User> {
        self.users.get(&object_id)
    }

    /// The user for changes; the principal name must stay the same.
    #[cfg(test)]
    pub(crate) fn user_mut(&mut self, object_id: Uuid) -> Option<&mut User> {
        self.users.get_mut(&object_id)
    }

    /// The user with a principal name, ignoring case.
    pub(crate) fn user_by_name(&self, principal_name: &str) -> Option<&User> {
        let object_id = self.index.users_by_name.get(&principal_name.to_ascii_lowercase())?;
        self.users.get(object_id)
    }

    /// Changes the principal name of a user.
    pub(crate) fn rename_user(&mut self, object_id: Uuid, principal_name: String) {
        let Some(user) = self.users.get_mut(&object_id) else { return };
        self.index.users_by_name.remove(&user.principal_name.to_ascii_lowercase());
        user.principal_name = principal_name;
        self.index.add_user(user);
    }

    pub(crate) fn insert_user(&mut self, user: User) {
        if !self.users.contains_key(&user.object_id) {
            self.record_new_object(user.object_id, user.created);
        }
        self.index.add_user(&user);
        self.users.insert(user.object_id, user);
    }

    /// Removes a user, also from its groups.
    pub(crate) fn remove_user(&mut self, object_id: Uuid) -> Option<User> {
        let removed = self.users.remove(&object_id)?;
        self.index.users_by_name.remove(&removed.principal_name.to_ascii_lowercase());
        self.remove_from_groups(object_id);
        Some(removed)
    }
}
