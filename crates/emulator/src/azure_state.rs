//! The world: everything that the emulator knows, as plain data.
//!
//! A service is a function from world, request and time to a reply. The state file is this type as
//! JSON, keys included.

use serde::{Deserialize, Serialize};

use crate::authorization::Authorization;
use crate::clock_offset::ClockOffset;
use crate::directory::EntraDirectory;
use crate::fault_rules::FaultRules;
use crate::identity_binding::IdentityBinding;
use crate::seed::{IdentityRegistry, SeedPlanFingerprint};
use crate::services::arm::ArmResourceStore;
use crate::services::imds::ImdsState;
use crate::services::keyvault::VaultStore;
use crate::token::TokenPolicy;

/// Everything that the emulator knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AzureState {
    /// The plan that it was made from; nothing if from none.
    pub(crate) plan: Option<SeedPlanFingerprint>,
    /// Tenants, principals, federated credentials, trusted issuers.
    pub(crate) directory: EntraDirectory,
    /// Who may stand for an identity through the token proxy of a cluster.
    pub(crate) bindings: Vec<IdentityBinding>,
    /// The time.
    pub(crate) clock: ClockOffset,
    /// How long tokens live.
    pub(crate) tokens: TokenPolicy,
    /// Role definitions and assignments.
    pub(crate) authorization: Authorization,
    /// What Azure Resource Manager stores.
    pub(crate) resources: ArmResourceStore,
    /// The content of the vaults.
    pub(crate) vaults: VaultStore,
    /// Which identities the metadata service answers for.
    pub(crate) imds: ImdsState,
    /// Who holds what, for rotation and drills.
    pub(crate) roster: IdentityRegistry,
    /// Faults to inject.
    pub(crate) faults: FaultRules,
}
