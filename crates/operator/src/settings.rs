//! The settings of the operator.

use std::str::FromStr;
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
    /// The operator's own ServiceAccount. In role `all` the operator grants it the permissions in the namespace
    /// of each control plane. `None` if it has them in all namespaces.
    pub service_account: Option<ServiceAccountKey>,
}

/// The namespace and the name of a ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccountKey {
    namespace: String,
    name: String,
}

/// The text is not a valid [`ServiceAccountKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the namespace and the name of a ServiceAccount, `<namespace>/<name>`")]
pub struct ParseServiceAccountKeyError {
    text: String,
}

impl ServiceAccountKey {
    /// `metadata.namespace`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ServiceAccountKey {
    type Err = ParseServiceAccountKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(ParseServiceAccountKeyError { text: text.to_owned() }),
        }
    }
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
            service_account: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_key_is_namespace_and_name() {
        let account: ServiceAccountKey = "lanyard/lanyard-operator".parse().unwrap();
        assert_eq!((account.namespace(), account.name()), ("lanyard", "lanyard-operator"));
        for text in ["", "lanyard-operator", "/lanyard-operator", "lanyard/", "a/b/c"] {
            let error = text.parse::<ServiceAccountKey>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
