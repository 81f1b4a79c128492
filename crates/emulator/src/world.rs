//! The world: everything that the emulator knows, as plain data.
//!
//! A service is a function from world, request and time to a reply. The state file is this type as
//! JSON, keys included.

use serde::{Deserialize, Serialize};

use crate::authorization::Authorization;
use crate::binding::IdentityBinding;
use crate::directory::Directory;
use crate::faults::Faults;
use crate::seed::{PlanFingerprint, Roster};
use crate::services::arm::Resources;
use crate::services::imds::Imds;
use crate::services::keyvault::Vaults;
use crate::token::TokenPolicy;
use crate::world_clock::WorldClock;

/// Everything that the emulator knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct World {
    /// The plan that it was made from; nothing if from none.
    pub(crate) plan: Option<PlanFingerprint>,
    /// Tenants, principals, federated credentials, trusted issuers.
    pub(crate) directory: Directory,
    /// Who may stand for an identity through the token proxy of a cluster.
    pub(crate) bindings: Vec<IdentityBinding>,
    /// The time.
    pub(crate) clock: WorldClock,
    /// How long tokens live.
    pub(crate) tokens: TokenPolicy,
    /// Role definitions and assignments.
    pub(crate) authorization: Authorization,
    /// What Azure Resource Manager stores.
    pub(crate) resources: Resources,
    /// The content of the vaults.
    pub(crate) vaults: Vaults,
    /// Which identities the metadata service answers for.
    pub(crate) imds: Imds,
    /// Who holds what, for rotation and drills.
    pub(crate) roster: Roster,
    /// Faults to inject.
    pub(crate) faults: Faults,
}
