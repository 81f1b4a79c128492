//! The emulated Azure state, as plain data.
//!
//! A service is a function of state, request and time that returns a reply. Large collections are tables, of
//! which only changed rows are written to the state file; the rest is written as a whole when it changes.

use serde::{Deserialize, Serialize};

use crate::authorization::{AccessScope, Authorization, PropagationDelay};
use crate::clock_offset::ClockOffset;
use crate::directory::EntraDirectory;
use crate::drill::RunningDrill;
use crate::fault_rules::FaultRules;
use crate::identity_binding::IdentityBinding;
use crate::identity_registry::IdentityRegistry;
use crate::identity_url::IdentityUrl;
use crate::imds_node::ImdsState;
use crate::management_groups::ManagementGroups;
use crate::resources::resource_store::ArmResourceStore;
use crate::seed_plan_fingerprint::SeedPlanFingerprint;
use crate::sign_ins::sign_in_state::SignInState;
use crate::storage::store::BlobStore;
use crate::table::{StoredTable, Table};
use crate::token_policy::TokenPolicy;
use crate::tracked::Tracked;
use crate::vaults::vault::VaultStore;

/// The complete emulated Azure state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AzureState {
    /// The fingerprint of the seed plan; `None` without a plan.
    pub plan: Tracked<Option<SeedPlanFingerprint>>,
    pub directory: EntraDirectory,
    /// Which ServiceAccount may use which managed identity through the token proxy of a cluster.
    pub bindings: Tracked<Vec<IdentityBinding>>,
    /// The offset of the emulated time.
    pub clock: Tracked<ClockOffset>,
    /// Device codes, authorization codes and the settings of sign-ins.
    pub sign_ins: SignInState,
    /// The lifetimes of tokens.
    pub tokens: Tracked<TokenPolicy>,
    /// Custom roles and role assignments.
    pub authorization: Authorization,
    /// The hierarchy above the subscriptions.
    pub management_groups: Tracked<ManagementGroups>,
    /// The delay until a change of a role assignment takes effect.
    pub propagation: Tracked<PropagationDelay>,
    /// The stored ARM resources.
    pub resources: ArmResourceStore,
    /// The vaults with their content.
    pub vaults: VaultStore,
    /// The storage accounts with their content.
    pub storage: BlobStore,
    /// The identity URLs of resources, by the resource id in lower case.
    pub identity_urls: Table<String, IdentityUrl>,
    /// The nodes of the metadata service with their identities.
    pub imds: Tracked<ImdsState>,
    /// The identities of the components, for rotation and fault plans.
    #[serde(rename = "identityRegistry")]
    pub registry: Tracked<IdentityRegistry>,
    /// The injected faults.
    pub faults: Tracked<FaultRules>,
    /// The running drill; `None` while none runs.
    pub running_drill: Tracked<Option<RunningDrill>>,
}

impl AzureState {
    /// Calls `visit` with the name and the content of every stored table. The names are those of the state
    /// file.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self {
            plan,
            directory,
            sign_ins,
            bindings,
            clock,
            tokens,
            authorization,
            management_groups,
            propagation,
            resources,
            vaults,
            storage,
            identity_urls,
            imds,
            registry,
            faults,
            running_drill,
        } = self;
        visit("plan", plan);
        directory.for_each_table(visit);
        sign_ins.for_each_table(visit);
        visit("bindings", bindings);
        visit("clock", clock);
        visit("tokens", tokens);
        authorization.for_each_table(visit);
        visit("management-groups", management_groups);
        visit("propagation", propagation);
        resources.for_each_table(visit);
        vaults.for_each_table(visit);
        storage.for_each_table(visit);
        visit("identity-urls", identity_urls);
        visit("imds", imds);
        visit("registry", registry);
        visit("faults", faults);
        visit("drill", running_drill);
    }

    /// Rebuilds what is derived from the tables, after they were loaded.
    pub fn rebuild_indexes(&mut self) {
        self.directory.rebuild_index();
        self.resources.rebuild_index();
        self.authorization.rebuild_index();
        self.vaults.rebuild_index();
    }

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
    use lanyard_vocabulary::EntraTenantId;
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
