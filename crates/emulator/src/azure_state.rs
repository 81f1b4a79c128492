//! The emulated Azure state, as plain data.
//!
//! A service is a function of state, request and time that returns a reply. The state file is this type as
//! JSON, including keys.

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

/// The complete emulated Azure state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AzureState {
    /// The fingerprint of the seed plan; `None` without a plan.
    pub(crate) plan: Option<SeedPlanFingerprint>,
    /// Tenants, principals, federated credentials and trusted issuers.
    pub(crate) directory: EntraDirectory,
    /// The service accounts that may use an identity through a cluster's token proxy.
    pub(crate) bindings: Vec<IdentityBinding>,
    /// The offset of the emulated time.
    pub(crate) clock: ClockOffset,
    /// The lifetimes of tokens.
    pub(crate) tokens: TokenPolicy,
    /// Role definitions and assignments.
    pub(crate) authorization: Authorization,
    /// The stored ARM resources.
    pub(crate) resources: ArmResourceStore,
    /// The content of the vaults.
    pub(crate) vaults: VaultStore,
    /// The identities of the metadata service.
    pub(crate) imds: ImdsState,
    /// The identities of the components, for rotation and fault plans.
    #[serde(rename = "roster")]
    pub(crate) registry: IdentityRegistry,
    /// The injected faults.
    pub(crate) faults: FaultRules,
}
