//! Management groups: the hierarchy above subscriptions, as far as the scopes of role assignments need it.
//!
//! Every tenant has a root group with the id of the tenant. A subscription and a group without an entry are
//! directly below it. No operation writes groups: other groups than the root groups come from state files of
//! earlier revisions.

use std::collections::BTreeMap;

use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};

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
}

/// A management group other than the root group of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ManagementGroup {
    /// The name, which is its id.
    name: String,
    tenant: EntraTenantId,
    /// The name of the parent; `None` for the root group.
    parent: Option<String>,
}

impl ManagementGroups {
    /// Whether a tenant has a group with a name, ignoring case; its root group included.
    pub fn is_in_tenant(&self, name: &str, tenant: &EntraTenantId) -> bool {
        name.eq_ignore_ascii_case(tenant.as_str())
            || self.group(name).is_some_and(|group| group.tenant == *tenant)
    }

    /// The group with a name, ignoring case.
    fn group(&self, name: &str) -> Option<&ManagementGroup> {
        self.groups.get(&name.to_ascii_lowercase())
    }

    /// The group of a subscription; `None` is the root group.
    fn group_of_subscription(&self, id: &str) -> Option<&ManagementGroup> {
        self.group(self.subscriptions.get(&id.to_ascii_lowercase())?)
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
    use serde_json::json;

    use super::*;
    use crate::resources::resource_store::Subscription;

    #[test]
    fn stored_groups_of_earlier_revisions_are_above_their_members() {
        let tenant = "11111111-0000-4000-8000-000000000001";
        let group = |name: &str, parent: Option<&str>| {
            json!({
                "name": name,
                "display_name": name,
                "tenant": tenant,
                "parent": parent,
                "updated_on": "2026-11-21T12:00:00Z",
                "updated_by": tenant,
            })
        };
        let groups = json!({
            "groups": { "top": group("Top", None), "team": group("Team", Some("TOP")) },
            "subscriptions": { "s": "team" },
            "root_names": { tenant: "Contoso" },
        });
        let mut azure = AzureState::default();
        *azure.management_groups = serde_json::from_value(groups).unwrap();
        azure.resources.subscriptions.push(Subscription {
            id: "S".parse().unwrap(),
            tenant: tenant.parse().unwrap(),
            name: "s".to_owned(),
        });
        let above = |scope: &str| -> Vec<_> {
            let above = azure.management_groups_above(&scope.parse().unwrap());
            above.iter().map(|group| group.management_group_name().unwrap().to_owned()).collect()
        };
        assert_eq!(above("/subscriptions/S/resourceGroups/g"), ["Team", "Top", tenant]);
        let of_group = "/providers/Microsoft.Management/managementGroups/team";
        assert_eq!(above(of_group), ["Top", tenant]);
        let tenant: EntraTenantId = tenant.parse().unwrap();
        let groups = &azure.management_groups;
        let is_member =
            ["TEAM", tenant.as_str(), "other"].map(|name| groups.is_in_tenant(name, &tenant));
        assert_eq!(is_member, [true, true, false]);
    }
}
