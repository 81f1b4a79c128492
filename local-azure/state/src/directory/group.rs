//! Security groups.

use std::collections::BTreeSet;

use jiff::Timestamp;
use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::EntraDirectory;
use crate::table::Table;

/// A security group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Group {
    pub object_id: Uuid,
    pub tenant: EntraTenantId,
    pub display_name: String,
    pub created: Timestamp,
    /// The object ids of the direct members: users, service principals and groups.
    #[serde(default)]
    pub members: BTreeSet<Uuid>,
    /// The object ids of the owners.
    #[serde(default)]
    pub owners: Vec<Uuid>,
    /// Further properties of Microsoft Graph as given, for example `mailNickname`.
    #[serde(default)]
    pub properties: Map<String, Value>,
}

impl EntraDirectory {
    /// Every group, by object id.
    pub const fn groups(&self) -> &Table<Uuid, Group> {
        &self.groups
    }

    pub fn group(&self, object_id: Uuid) -> Option<&Group> {
        self.groups.get(&object_id)
    }

    /// The groups of which an object is a direct member, by object id.
    pub fn direct_groups_of(&self, member: Uuid) -> impl Iterator<Item = &Group> {
        let groups = self.index.groups_by_member.get(&member).into_iter().flatten();
        groups.filter_map(|group| self.groups.get(group))
    }

    /// Adds a direct member to a group.
    pub fn add_member(&mut self, group: Uuid, member: Uuid) {
        if let Some(stored) = self.groups.get_mut(&group) {
            stored.members.insert(member);
            self.index.groups_by_member.entry(member).or_default().insert(group);
        }
    }

    /// Removes a direct member from a group; returns whether it was one.
    pub fn remove_member(&mut self, group: Uuid, member: Uuid) -> bool {
        let Some(stored) = self.groups.get_mut(&group) else { return false };
        if let Some(groups) = self.index.groups_by_member.get_mut(&member) {
            groups.remove(&group);
        }
        stored.members.remove(&member)
    }

    /// Stores a group, and replaces an existing one with the same id.
    pub fn insert_group(&mut self, group: Group) {
        if !self.groups.contains_key(&group.object_id) {
            self.record_new_object(group.object_id, group.created);
        }
        if let Some(replaced) = self.groups.get(&group.object_id) {
            self.index.remove_members(replaced);
        }
        self.index.add_members(&group);
        self.groups.insert(group.object_id, group);
    }

    /// Removes a group and the references to it in other objects.
    pub fn remove_group(&mut self, object_id: Uuid) -> Option<Group> {
        let removed = self.groups.remove(&object_id)?;
        self.index.remove_members(&removed);
        self.remove_relations_of(object_id);
        Some(removed)
    }

    /// Removes an object from all groups of which it is a direct member.
    pub(crate) fn remove_from_groups(&mut self, member: Uuid) {
        for group in self.index.groups_by_member.remove(&member).into_iter().flatten() {
            if let Some(group) = self.groups.get_mut(&group) {
                group.members.remove(&member);
            }
        }
    }
}
