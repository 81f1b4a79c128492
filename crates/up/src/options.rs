//! What `lanyard up` is asked for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use lanyard_desired::ValidatedHostedCluster;
use lanyard_emulator::{Drill, Fault};
use lanyard_vocabulary::component::ParseComponentError;
use lanyard_vocabulary::{ClientId, Component};

/// What the road is built for.
#[derive(Debug)]
pub struct Options {
    /// The cluster whose components walk it.
    pub cluster: ValidatedHostedCluster,
    /// What shall be broken.
    pub broken: Option<Break>,
    /// Where the local Azure listens.
    pub listen: SocketAddr,
    /// The directory for the volumes; `None` for a temporary directory.
    pub directory: Option<PathBuf>,
    /// The identity that reads the vault; nothing for one of our own.
    pub vault_reader: Option<ClientId>,
}

/// One fault for one component, written as `FAULT[:COMPONENT]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break(pub Drill);

/// A text is not `FAULT[:COMPONENT]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseBreakError {
    /// There is no such fault.
    #[error("`{0}` is not a fault; known: {known}", known = Fault::ALL.map(|fault| fault.to_string()).join(", "))]
    Fault(String),
    /// There is no such component.
    #[error(transparent)]
    Component(#[from] ParseComponentError),
}

impl FromStr for Break {
    type Err = ParseBreakError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (fault, component) = match text.split_once(':') {
            Some((fault, component)) => (fault, component.parse()?),
            None => (text, Component::CloudProvider),
        };
        let known = Fault::ALL.into_iter().find(|known| known.to_string() == fault);
        let fault = known.ok_or_else(|| ParseBreakError::Fault(fault.to_owned()))?;
        Ok(Self(Drill { fault, component }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_without_a_component_is_the_cloud_providers() {
        let drill = |text: &str| text.parse::<Break>().unwrap().0;
        assert_eq!(drill("encoding").component, Component::CloudProvider);
        assert_eq!(drill("arm-role:kms").component, Component::Kms);
        assert_eq!(drill("arm-role:kms").fault, Fault::ArmRole);
    }

    #[test]
    fn what_does_not_exist_is_answered_with_what_does() {
        let message = |text: &str| text.parse::<Break>().unwrap_err().to_string();
        assert!(message("gremlins").contains("missing-secret"));
        assert!(message("encoding:capz").contains("nodePoolManagement"));
    }
}
