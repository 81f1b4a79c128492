//! Management groups: the hierarchy above subscriptions, as far as the scopes of role assignments need it.
//!
//! Every tenant has a root management group with the id of the tenant. A subscription or a
//! management group without an entry is directly below it. No operation writes management groups:
//! those other than the root groups come from state files of earlier revisions.

use std::collections::BTreeMap;

use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};

/// The maximum number of levels of groups below the root group.
const MAX_LEVELS: usize = 6;

/// The management groups other than the root groups, and their members.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ManagementGroups {
    /// By name in lower case.
    groups: BTreeMap<String, ManagementGroup>,
    /// The name of the management group of a subscription, by its id; both in lower case.
    subscriptions: BTreeMap<String, String>,
}

/// A management group other than the root group of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManagementGroup {
    /// The name, which is its id.
    pub(crate) name: String,
    pub(crate) tenant: EntraTenantId,
    /// The name of the parent; `None` if the parent is the root group.
    parent: Option<String>,
}

impl ManagementGroups {
    /// Whether a tenant has a management group with a name, ignoring case; its root group included.
    pub fn is_in_tenant(&self, name: &str, tenant: &EntraTenantId) -> bool {
        name.eq_ignore_ascii_case(tenant.as_str())
            || self.group(name).is_some_and(|group| group.tenant == *tenant)
    }

    /// The management group with a name, ignoring case; `None` for a root group.
    pub(crate) fn group(&self, name: &str) -> Option<&ManagementGroup> {
        self.groups.get(&name.to_ascii_lowercase())
    }

    /// The management group of a subscription; `None` if that is the root group.
    pub(crate) fn group_of_subscription(&self, id: &str) -> Option<&ManagementGroup> {
        self.group(self.subscriptions.get(&id.to_ascii_lowercase())?)
    }

    /// A management group and its ancestors, the nearest first, without the root group.
    pub(crate) fn ancestors<'a>(&'a self, group: &'a ManagementGroup) -> Vec<&'a ManagementGroup> {
        std::iter::successors(Some(group), |group| self.group(group.parent.as_deref()?))
            .take(MAX_LEVELS + 1)
            .collect()
    }
}
