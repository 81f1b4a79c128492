//! Management groups: the hierarchy above subscriptions.
//!
//! Every tenant has a root group with the id of the tenant. A subscription and a group without an entry are
//! directly below it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::authorization::AccessScope;
use crate::azure_state::AzureState;

/// The maximum number of levels of groups below the root group.
const MAX_LEVELS: usize = 6;

/// The groups and their members.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ManagementGroups {
    /// By name in lower case.
    groups: BTreeMap<String, ManagementGroup>,
    /// The name of the group of a subscription, by its id; both in lower case.
    subscriptions: BTreeMap<String, String>,
    /// The display names of the root groups that were renamed, by tenant.
    root_names: BTreeMap<EntraTenantId, String>,
}

/// A management group other than the root group of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementGroup {
    /// The name, which is its id.
    pub name: String,
    pub display_name: String,
    pub tenant: EntraTenantId,
    /// The name of the parent; `None` for the root group.
    pub parent: Option<String>,
    pub updated_on: Timestamp,
    /// The object id of the principal that updated the group last.
    pub updated_by: Uuid,
}

/// A group cannot be stored or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ManagementGroupError {
    #[error("the parent does not exist")]
    ParentNotFound,
    #[error("the group would be its own ancestor")]
    Cycle,
    #[error("the hierarchy has more than {MAX_LEVELS} levels")]
    TooDeep,
    #[error("the group has children")]
    HasChildren,
    #[error("the root group of a tenant is neither moved nor deleted")]
    RootGroup,
    #[error("a group of another tenant has this id")]
    OtherTenant,
}

impl ManagementGroups {
    /// The group with a name, ignoring case.
    pub fn group(&self, name: &str) -> Option<&ManagementGroup> {
        self.groups.get(&name.to_ascii_lowercase())
    }

    /// The display name of the root group of a tenant.
    pub(crate) fn root_name(&self, tenant: &EntraTenantId) -> &str {
        self.root_names.get(tenant).map_or("Tenant Root Group", String::as_str)
    }

    /// Changes the display name of the root group of a tenant.
    pub(crate) fn rename_root(&mut self, tenant: EntraTenantId, name: String) {
        self.root_names.insert(tenant, name);
    }

    /// The group of a tenant with a name, ignoring case; not its root group.
    pub(crate) fn group_in_tenant(
        &self,
        name: &str,
        tenant: &EntraTenantId,
    ) -> Option<&ManagementGroup> {
        self.group(name).filter(|group| group.tenant == *tenant)
    }

    /// Whether a tenant has a group with a name, ignoring case; its root group included.
    pub fn is_in_tenant(&self, name: &str, tenant: &EntraTenantId) -> bool {
        name.eq_ignore_ascii_case(tenant.as_str()) || self.group_in_tenant(name, tenant).is_some()
    }

    /// The groups of a tenant without the root group, ordered by name.
    pub fn of_tenant(&self, tenant: &EntraTenantId) -> impl Iterator<Item = &ManagementGroup> {
        self.groups.values().filter(move |group| group.tenant == *tenant)
    }

    /// The groups directly below a group; `None` is the root group.
    pub(crate) fn children_of<'a>(
        &'a self,
        tenant: &'a EntraTenantId,
        parent: Option<&'a str>,
    ) -> impl Iterator<Item = &'a ManagementGroup> {
        self.of_tenant(tenant).filter(move |group| match (group.parent.as_deref(), parent) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            (one, other) => one.is_none() && other.is_none(),
        })
    }

    /// The group of a subscription; `None` is the root group.
    pub(crate) fn group_of_subscription(&self, id: &str) -> Option<&ManagementGroup> {
        self.group(self.subscriptions.get(&id.to_ascii_lowercase())?)
    }

    /// Creates or changes a group. Its name is not the id of a tenant: that is the name of a root group.
    pub fn put(&mut self, group: ManagementGroup) -> Result<(), ManagementGroupError> {
        let key = group.name.to_ascii_lowercase();
        if self.groups.get(&key).is_some_and(|known| known.tenant != group.tenant) {
            return Err(ManagementGroupError::OtherTenant);
        }
        if let Some(parent) = &group.parent {
            let parent = self.group_in_tenant(parent, &group.tenant);
            let parent = parent.ok_or(ManagementGroupError::ParentNotFound)?;
            let above = self.ancestors(parent);
            if above.iter().any(|ancestor| ancestor.name.eq_ignore_ascii_case(&group.name)) {
                return Err(ManagementGroupError::Cycle);
            }
            if above.len() >= MAX_LEVELS {
                return Err(ManagementGroupError::TooDeep);
            }
        }
        self.groups.insert(key, group);
        Ok(())
    }

    /// Deletes a group without children and returns it.
    pub fn remove(&mut self, name: &str) -> Result<Option<ManagementGroup>, ManagementGroupError> {
        let key = name.to_ascii_lowercase();
        let is_parent = |group: &ManagementGroup| {
            group.parent.as_deref().is_some_and(|parent| parent.eq_ignore_ascii_case(name))
        };
        if self.groups.values().any(is_parent) || self.subscriptions.values().any(|it| *it == key) {
            return Err(ManagementGroupError::HasChildren);
        }
        Ok(self.groups.remove(&key))
    }

    /// Moves a subscription to a group; `None` is the root group.
    pub(crate) fn move_subscription(&mut self, id: &str, group: Option<&str>) {
        let id = id.to_ascii_lowercase();
        match group {
            Some(group) => drop(self.subscriptions.insert(id, group.to_ascii_lowercase())),
            None => drop(self.subscriptions.remove(&id)),
        }
    }

    /// A group and its ancestors, the nearest first, without the root group.
    fn ancestors<'a>(&'a self, group: &'a ManagementGroup) -> Vec<&'a ManagementGroup> {
        std::iter::successors(Some(group), |group| self.group(group.parent.as_deref()?))
            .take(MAX_LEVELS + 1)
            .collect()
    }
}

impl AzureState {
    /// The scopes of the management groups above a scope, the nearest first; the last one is the root group
    /// of the tenant.
    pub fn management_groups_above(&self, scope: &AccessScope) -> Vec<AccessScope> {
        let groups = &self.management_groups;
        let (tenant, above) = if let Some(id) = scope.subscription_id() {
            let Some(subscription) = self.resources.subscription(id) else { return Vec::new() };
            let group = groups.group_of_subscription(id);
            (&subscription.tenant, group.map(|group| groups.ancestors(group)).unwrap_or_default())
        } else {
            let named = scope.management_group_name().and_then(|name| groups.group(name));
            let Some(group) = named else { return Vec::new() };
            (&group.tenant, groups.ancestors(group).split_off(1))
        };
        let root = AccessScope::management_group(tenant.as_str());
        let scopes = above.into_iter().map(|group| AccessScope::management_group(&group.name));
        scopes.chain([root]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, parent: Option<&str>) -> ManagementGroup {
        ManagementGroup {
            name: name.to_owned(),
            display_name: name.to_owned(),
            tenant: "11111111-0000-4000-8000-000000000001".parse().unwrap(),
            parent: parent.map(str::to_owned),
            updated_on: Timestamp::UNIX_EPOCH,
            updated_by: Uuid::nil(),
        }
    }

    #[test]
    fn hierarchy_has_no_cycles_and_at_most_six_levels() {
        let mut groups = ManagementGroups::default();
        assert_eq!(groups.put(group("A", Some("b"))), Err(ManagementGroupError::ParentNotFound));
        groups.put(group("l1", None)).unwrap();
        for level in 2..=6 {
            groups.put(group(&format!("l{level}"), Some(&format!("L{}", level - 1)))).unwrap();
        }
        assert_eq!(groups.put(group("l7", Some("l6"))), Err(ManagementGroupError::TooDeep));
        assert_eq!(groups.put(group("L1", Some("l3"))), Err(ManagementGroupError::Cycle));
        assert_eq!(groups.remove("l5"), Err(ManagementGroupError::HasChildren));
        groups.move_subscription("S", Some("l6"));
        assert_eq!(groups.group_of_subscription("s").map(|group| &*group.name), Some("l6"));
        assert_eq!(groups.remove("l6"), Err(ManagementGroupError::HasChildren));
        groups.move_subscription("s", None);
        assert_eq!(groups.remove("L6").unwrap().map(|group| group.name), Some("l6".to_owned()));
    }
}
