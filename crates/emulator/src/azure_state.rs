//! The emulated Azure state, as plain data.
//!
//! A service is a function of state, request and time that returns a reply. Large collections are tables, of
//! which only changed rows are written to the state file; the rest is written as a whole when it changes.

use serde::{Deserialize, Serialize};

use crate::authorization::{Authorization, PropagationDelay};
use crate::clock_offset::ClockOffset;
use crate::directory::EntraDirectory;
use crate::drills::RunningDrill;
use crate::fault_rules::FaultRules;
use crate::identity_binding::IdentityBinding;
use crate::management_groups::ManagementGroups;
use crate::seed::{IdentityRegistry, SeedPlanFingerprint};
use crate::services::arm::ArmResourceStore;
use crate::services::blob::BlobStore;
use crate::services::entra::SignInState;
use crate::services::imds::ImdsState;
use crate::services::keyvault::VaultStore;
use crate::services::managed_identity::IdentityUrl;
use crate::table::{StoredTable, Table};
use crate::token::TokenPolicy;
use crate::tracked::Tracked;

/// The complete emulated Azure state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AzureState {
    /// The fingerprint of the seed plan; `None` without a plan.
    pub(crate) plan: Tracked<Option<SeedPlanFingerprint>>,
    pub(crate) directory: EntraDirectory,
    /// The service accounts that may use an identity through a cluster's token proxy.
    pub(crate) bindings: Tracked<Vec<IdentityBinding>>,
    /// The offset of the emulated time.
    pub(crate) clock: Tracked<ClockOffset>,
    /// Device codes, authorization codes and the settings of sign-ins.
    pub(crate) sign_ins: SignInState,
    /// The lifetimes of tokens.
    pub(crate) tokens: Tracked<TokenPolicy>,
    /// Custom roles, role assignments and deny assignments.
    pub(crate) authorization: Authorization,
    /// The hierarchy above the subscriptions.
    pub(crate) management_groups: Tracked<ManagementGroups>,
    /// The delay until a change of a role assignment takes effect.
    pub(crate) propagation: Tracked<PropagationDelay>,
    /// The stored ARM resources.
    pub(crate) resources: ArmResourceStore,
    /// The vaults with their content.
    pub(crate) vaults: VaultStore,
    /// The storage accounts with their content.
    pub(crate) storage: BlobStore,
    /// The identity URLs of resources, by the resource id in lower case.
    pub(crate) identity_urls: Table<String, IdentityUrl>,
    /// The nodes of the metadata service with their identities.
    pub(crate) imds: Tracked<ImdsState>,
    /// The identities of the components, for rotation and fault plans.
    #[serde(rename = "identityRegistry")]
    pub(crate) registry: Tracked<IdentityRegistry>,
    /// The injected faults.
    pub(crate) faults: Tracked<FaultRules>,
    /// The drill that runs.
    pub(crate) running_drill: Tracked<Option<RunningDrill>>,
}

impl AzureState {
    /// Calls `visit` with the name and the content of every stored table. The names are those of the state
    /// file.
    pub(crate) fn for_each_table(
        &mut self,
        visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable),
    ) {
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
    pub(crate) fn rebuild_indexes(&mut self) {
        self.directory.rebuild_index();
        self.resources.rebuild_index();
        self.authorization.rebuild_index();
        self.vaults.rebuild_index();
    }
}
