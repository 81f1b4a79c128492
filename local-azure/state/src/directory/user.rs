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
pub struct User {
    pub object_id: Uuid,
    pub tenant: EntraTenantId,
    /// The user principal name, such as `ada@contoso.onmicrosoft.com`.
    pub principal_name: String,
    pub display_name: String,
    /// Whether the user may sign in (`accountEnabled`).
    pub enabled: bool,
    pub password: RedactedText,
    pub created: Timestamp,
    /// Further properties of Microsoft Graph as given, for example `mailNickname`.
    #[serde(default)]
    pub properties: Map<String, Value>,
}

impl EntraDirectory {
    /// Every user, by object id.
    pub const fn users(&self) -> &Table<Uuid, User> {
        &self.users
    }

    pub fn user(&self, object_id: Uuid) -> Option<&User> {
        self.users.get(&object_id)
    }

    /// The user, mutable; the caller must not change the principal name.
    #[cfg(any(test, feature = "test-util"))]
    pub fn user_mut(&mut self, object_id: Uuid) -> Option<&mut User> {
        self.users.get_mut(&object_id)
    }

    /// The user with a principal name, ignoring case.
    pub fn user_by_name(&self, principal_name: &str) -> Option<&User> {
        let object_id = self.index.users_by_name.get(&principal_name.to_ascii_lowercase())?;
        self.users.get(object_id)
    }

    /// Stores a user, and replaces an existing one with the same id, who may have another principal name.
    pub fn insert_user(&mut self, user: User) {
        match self.users.get(&user.object_id) {
            Some(replaced) => self.index.remove_user(replaced),
            None => self.record_new_object(user.object_id, user.created),
        }
        self.index.add_user(&user);
        self.users.insert(user.object_id, user);
    }

    /// Removes a user and the references to it in other objects.
    #[cfg(any(test, feature = "test-util"))]
    pub fn remove_user(&mut self, object_id: Uuid) -> Option<User> {
        let removed = self.take_user(object_id)?;
        self.remove_relations_of(object_id);
        Some(removed)
    }

    /// Removes a user, also from its groups. Other references stay until it is deleted permanently.
    pub(crate) fn take_user(&mut self, object_id: Uuid) -> Option<User> {
        let removed = self.users.remove(&object_id)?;
        self.index.remove_user(&removed);
        self.remove_from_groups(object_id);
        Some(removed)
    }
}
