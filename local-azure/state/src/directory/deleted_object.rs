//! Deleted objects: applications, service principals and users can be restored for 30 days.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::application::Application;
use super::service_principal::ServicePrincipal;
use super::user::User;
use super::{DirectoryObject, EntraDirectory};
use crate::table::Table;

/// How long a deleted object can be restored.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A deleted object that can be restored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeletedDirectoryObject {
    pub deleted: Timestamp,
    pub object: RestorableObject,
    /// The object ids of the groups of which it was a direct member.
    #[serde(default)]
    pub groups: BTreeSet<Uuid>,
    /// The time until which lists contain the object; `None` if they omit it immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listed_until: Option<Timestamp>,
}

/// An object that can be restored after its deletion.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", content = "object")]
pub enum RestorableObject {
    Application(Application),
    ServicePrincipal(ServicePrincipal),
    User(User),
}

impl RestorableObject {
    pub const fn as_directory_object(&self) -> DirectoryObject<'_> {
        match self {
            Self::Application(application) => DirectoryObject::Application(application),
            Self::ServicePrincipal(principal) => DirectoryObject::ServicePrincipal(principal),
            Self::User(user) => DirectoryObject::User(user),
        }
    }
}

impl DeletedDirectoryObject {
    /// The object as it was when it was deleted.
    pub const fn as_directory_object(&self) -> DirectoryObject<'_> {
        self.object.as_directory_object()
    }

    pub const fn tenant(&self) -> &EntraTenantId {
        self.as_directory_object().tenant()
    }
}

impl EntraDirectory {
    /// Every deleted object, by object id, expired ones included.
    pub const fn deleted_objects(&self) -> &Table<Uuid, DeletedDirectoryObject> {
        &self.deleted_objects
    }

    /// The deleted objects that lists of Microsoft Graph still contain.
    pub fn listed_deleted_objects(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = &RestorableObject> {
        let is_listed = move |deleted: &&DeletedDirectoryObject| {
            deleted.listed_until.is_some_and(|until| now < until)
        };
        self.deleted_objects.values().filter(is_listed).map(|deleted| &deleted.object)
    }

    /// Deletes an application with its service principal; both can be restored. Returns whether the
    /// application existed.
    pub fn delete_application(&mut self, object_id: Uuid, now: Timestamp) -> bool {
        let Some(removed) = self.remove_application(object_id) else { return false };
        let principal = self.service_principal_by_client_id(removed.client_id);
        if let Some(principal) = principal.map(|principal| principal.object_id) {
            self.delete_service_principal(principal, now);
        }
        self.store_deleted(object_id, RestorableObject::Application(removed), BTreeSet::new(), now);
        true
    }

    /// Deletes a service principal, which can be restored. Returns whether it existed.
    pub fn delete_service_principal(&mut self, object_id: Uuid, now: Timestamp) -> bool {
        let groups = self.direct_group_ids(object_id);
        let Some(removed) = self.take_service_principal(object_id) else { return false };
        self.store_deleted(object_id, RestorableObject::ServicePrincipal(removed), groups, now);
        true
    }

    /// Deletes a user, who can be restored. Returns whether the user existed.
    pub fn delete_user(&mut self, object_id: Uuid, now: Timestamp) -> bool {
        let groups = self.direct_group_ids(object_id);
        let Some(removed) = self.take_user(object_id) else { return false };
        self.store_deleted(object_id, RestorableObject::User(removed), groups, now);
        true
    }

    /// Restores a deleted object with its group memberships, and an application with its service principal.
    pub fn restore_deleted(&mut self, object_id: Uuid) {
        let Some(deleted) = self.deleted_objects.remove(&object_id) else { return };
        match deleted.object {
            RestorableObject::Application(application) => {
                let client = application.client_id;
                self.insert_application(application);
                if self.service_principal_by_client_id(client).is_none()
                    && let Some(principal) = self.last_deleted_principal(client)
                {
                    self.restore_deleted(principal);
                }
            }
            RestorableObject::ServicePrincipal(principal) => {
                self.insert_service_principal(principal);
            }
            RestorableObject::User(user) => self.insert_user(user),
        }
        for group in deleted.groups {
            self.add_member(group, object_id);
        }
    }

    /// Permanently deletes a restorable object; returns whether there was one.
    pub fn purge_deleted(&mut self, object_id: Uuid) -> bool {
        let is_removed = self.deleted_objects.remove(&object_id).is_some();
        if is_removed {
            self.remove_relations_of(object_id);
        }
        is_removed
    }

    /// Whether the retention of any deleted object has ended.
    pub fn has_expired_objects(&self, now: Timestamp) -> bool {
        self.deleted_objects.values().any(|deleted| deleted.deleted + RETENTION <= now)
    }

    /// Deletes the objects permanently whose retention has ended.
    pub fn purge_expired(&mut self, now: Timestamp) {
        let is_expired = |deleted: &DeletedDirectoryObject| deleted.deleted + RETENTION <= now;
        for (object_id, _) in self.deleted_objects.extract_if(|_, deleted| is_expired(deleted)) {
            self.remove_relations_of(object_id);
        }
    }

    /// The deleted service principal of an application; of several, the one that was deleted last.
    fn last_deleted_principal(&self, client: EntraClientId) -> Option<Uuid> {
        let is_of_client = |deleted: &DeletedDirectoryObject| matches!(&deleted.object, RestorableObject::ServicePrincipal(it) if it.client_id == client);
        let deleted = self.deleted_objects.iter().filter(|(_, deleted)| is_of_client(deleted));
        deleted.max_by_key(|(_, deleted)| deleted.deleted).map(|(id, _)| *id)
    }

    fn store_deleted(
        &mut self,
        object_id: Uuid,
        object: RestorableObject,
        groups: BTreeSet<Uuid>,
        deleted: Timestamp,
    ) {
        self.purge_expired(deleted);
        let delay = i64::from(self.replication.delays.graph_deletion_seconds);
        let listed_until = deleted.checked_add(SignedDuration::from_secs(delay)).ok();
        let listed_until = listed_until.filter(|until| *until > deleted);
        let row = DeletedDirectoryObject { deleted, object, groups, listed_until };
        self.deleted_objects.insert(object_id, row);
    }

    fn direct_group_ids(&self, member: Uuid) -> BTreeSet<Uuid> {
        self.direct_groups_of(member).map(|group| group.object_id).collect()
    }
}
