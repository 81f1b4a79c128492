//! The settings of the operator.

use std::sync::Arc;

use lanyard_desired::forecast::RenewalPolicy;
use lanyard_desired::objects::{OperatorMode, VolumeRefresh};
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_vocabulary::EntraClientId;

use crate::lease::LeaseSettings;

#[derive(Debug, Clone)]
pub struct OperatorSettings {
    /// Which objects the operator writes.
    pub role: OperatorRole,
    /// The number of clusters that are reconciled concurrently.
    pub workers: usize,
    /// The leader election; `None` without other replicas.
    pub leases: Option<LeaseSettings>,
    /// The client id of the managed identity with which the nodes of the management cluster read the key
    /// vault: `ARO_HCP_KEY_VAULT_USER_CLIENT_ID`.
    pub vault_reader: Option<EntraClientId>,
    /// The kind of management cluster: `MANAGED_SERVICE`. `None` if unset.
    pub managed_service: Option<String>,
    /// The workload templates of the components.
    pub templates: Arc<WorkloadTemplates>,
    /// The reaction of a mounted volume to a change of its SecretProviderClass.
    pub volume_refresh: VolumeRefresh,
    /// The thresholds for renewals and rotations.
    pub policy: RenewalPolicy,
    /// The `reportingInstance` of events.
    pub reporting_instance: String,
}

/// One worker of a single operator in role `all`, with the default workload templates.
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

/// Which objects the operator writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperatorRole {
    /// Everything: the objects that deliver the identities, and their status.
    #[default]
    All,
    /// Only the status of the identities: another operator writes the rest.
    IdentityOnly,
}

impl OperatorRole {
    /// The mode of the desired-state computation for this role.
    pub(crate) const fn mode(self) -> OperatorMode {
        match self {
            Self::All => OperatorMode::All,
            Self::IdentityOnly => OperatorMode::IdentityOnly,
        }
    }
}
