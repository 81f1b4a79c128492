//! What the operator is told.

use std::sync::Arc;

use lanyard_desired::forecast::RenewalPolicy;
use lanyard_desired::objects::{OperatorMode, VolumeRefresh};
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_vocabulary::EntraClientId;

use crate::lease::LeaseSettings;

/// What the operator is told.
#[derive(Debug, Clone)]
pub struct OperatorSettings {
    /// What it writes.
    pub role: OperatorRole,
    /// How many clusters are looked at at once.
    pub workers: usize,
    /// How leases are held; nothing where there is no other replica.
    pub leases: Option<LeaseSettings>,
    /// The client id of the managed identity with which the nodes of the management cluster read
    /// the vault: `ARO_HCP_KEY_VAULT_USER_CLIENT_ID`.
    pub vault_reader: Option<EntraClientId>,
    /// What kind of management cluster this is: `MANAGED_SERVICE`. Nothing where nobody said it.
    pub managed_service: Option<String>,
    /// How the components run.
    pub templates: Arc<WorkloadTemplates>,
    /// What a mounted volume does when its class changes.
    pub volume_refresh: VolumeRefresh,
    /// What renewals and rotations are measured by.
    pub policy: RenewalPolicy,
    /// Who tells events: `reportingInstance`.
    pub reporting_instance: String,
}

/// One worker of a single operator that does everything, with workloads as they are shipped.
impl Default for OperatorSettings {
    fn default() -> Self {
        Self {
            role: OperatorRole::default(),
            workers: 1,
            leases: None,
            vault_reader: None,
            managed_service: None,
            templates: Arc::default(),
            volume_refresh: VolumeRefresh::default(),
            policy: RenewalPolicy::default(),
            reporting_instance: "operator".to_owned(),
        }
    }
}

/// What the operator writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperatorRole {
    /// Everything that brings identities to their components, and how they are.
    #[default]
    All,
    /// How they are, and nothing else: another operator does the rest.
    IdentityOnly,
}

impl OperatorRole {
    /// What is desired in this role.
    pub(crate) const fn mode(self) -> OperatorMode {
        match self {
            Self::All => OperatorMode::All,
            Self::IdentityOnly => OperatorMode::IdentityOnly,
        }
    }
}
