//! The emulated Azure state, as plain data.
//!
//! A service is a function of state, request and time that returns a reply. Large collections are tables, of
//! which only changed rows are written to the state file; the rest is written as a whole when it changes.

use serde::{Deserialize, Serialize};

use crate::authorization::{Authorization, PropagationDelay};
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
    /// The service accounts that may use an identity through a cluster's token proxy.
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
    /// The drill that runs.
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
}
