//! The options of `lanyard up`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use lanyard_desired::ValidatedHostedCluster;
use lanyard_emulator::{FaultPlan, IdentityFault};
use lanyard_vocabulary::component::ParseComponentError;
use lanyard_vocabulary::{Component, EntraClientId};

/// The options of a scenario run.
#[derive(Debug)]
pub struct Options {
    /// The cluster whose components are run.
    pub cluster: ValidatedHostedCluster,
    /// The fault to inject.
    pub fault: Option<ComponentFault>,
    /// The listen address of the local Azure.
    pub listen: SocketAddr,
    /// The directory for the volumes; `None` for a temporary directory.
    pub directory: Option<PathBuf>,
    /// The state directory of a local Azure, which is used and kept; `None` for a new one.
    pub state: Option<PathBuf>,
    /// The text from which the ids and keys of a new local Azure are derived; `None` for random ones.
    pub seed: Option<String>,
    /// The client ID of the identity that reads the vault; `None` for a built-in one.
    pub vault_reader: Option<EntraClientId>,
}

/// One fault of one component, written as `FAULT[:COMPONENT]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComponentFault(pub FaultPlan);

/// The text is not a valid `FAULT[:COMPONENT]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseComponentFaultError {
    /// The fault name is unknown.
    #[error("`{0}` is not a fault; known: {known}", known = IdentityFault::ALL.map(|fault| fault.to_string()).join(", "))]
    Fault(String),
    /// The component name is unknown.
    #[error(transparent)]
    Component(#[from] ParseComponentError),
}

impl FromStr for ComponentFault {
    type Err = ParseComponentFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (fault, component) = match text.split_once(':') {
            Some((fault, component)) => (fault, component.parse()?),
            None => (text, Component::CloudProvider),
        };
        let known = IdentityFault::ALL.into_iter().find(|known| known.to_string() == fault);
        let fault = known.ok_or_else(|| ParseComponentFaultError::Fault(fault.to_owned()))?;
        Ok(Self(FaultPlan { fault, component }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_without_component_applies_to_cloud_provider() {
        let fault_plan = |text: &str| text.parse::<ComponentFault>().unwrap().0;
        assert_eq!(fault_plan("encoding").component, Component::CloudProvider);
        assert_eq!(fault_plan("arm-role:kms").component, Component::Kms);
        assert_eq!(fault_plan("arm-role:kms").fault, IdentityFault::ArmRole);
    }

    #[test]
    fn unknown_fault_or_component_error_lists_known_names() {
        let message = |text: &str| text.parse::<ComponentFault>().unwrap_err().to_string();
        assert!(message("gremlins").contains("missing-secret"));
        assert!(message("encoding:capz").contains("nodePoolManagement"));
    }
}
