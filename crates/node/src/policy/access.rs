//! The accesses that a policy evaluates.

use std::fmt;

use lanyard_api::{IdentityMode, VaultObjectKind};
use lanyard_vocabulary::{EntraClientId, SecretName, VaultName};
use serde::{Deserialize, Serialize};

/// An identity that every pod of a node can use. Azure identifies the node, not the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SharedIdentity {
    /// The identity that the system assigned to the node.
    SystemAssigned,
    /// A user-assigned identity of the node.
    UserAssigned(EntraClientId),
}

impl SharedIdentity {
    /// The text form of the system-assigned identity.
    pub(crate) const SYSTEM_ASSIGNED: &str = "system-assigned";

    /// Returns the identity of a mode if all pods of the node share it.
    ///
    /// A workload identity and an identity binding act for one ServiceAccount, and a service principal is a
    /// secret of the pod's own namespace: Azure authorizes those. The retired pod identity is never served.
    pub const fn of(mode: &IdentityMode) -> Option<Self> {
        match mode {
            IdentityMode::ManagedIdentity { client_id: None } => Some(Self::SystemAssigned),
            IdentityMode::ManagedIdentity { client_id: Some(client) } => {
                Some(Self::UserAssigned(*client))
            }
            IdentityMode::WorkloadIdentity { .. }
            | IdentityMode::IdentityBinding { .. }
            | IdentityMode::ServicePrincipal
            | IdentityMode::PodIdentity => None,
        }
    }
}

impl fmt::Display for SharedIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemAssigned => formatter.pad(Self::SYSTEM_ASSIGNED),
            Self::UserAssigned(client) => client.fmt(formatter),
        }
    }
}

impl From<SharedIdentity> for String {
    fn from(identity: SharedIdentity) -> Self {
        identity.to_string()
    }
}

impl TryFrom<String> for SharedIdentity {
    type Error = lanyard_vocabulary::ParseIdentifierError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text == Self::SYSTEM_ASSIGNED {
            return Ok(Self::SystemAssigned);
        }
        text.parse().map(Self::UserAssigned)
    }
}

/// A read of one object through a shared identity of the node: the subject of a policy decision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VaultAccess {
    /// The pod's namespace. The kubelet vouches for it.
    pub namespace: String,
    /// The SecretProviderClass; empty for a caller without a class (the Secret sync controller).
    pub class: String,
    /// The shared identity.
    pub identity: SharedIdentity,
    pub vault: VaultName,
    pub object: VaultObjectName,
}

/// An object of a vault, without a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VaultObjectName {
    pub kind: VaultObjectKind,
    pub name: SecretName,
}

impl VaultObjectName {
    /// Parses `<kind>/<name>`, or `<kind>/<name>/<index>`, the id of one entry of a version history, whose index
    /// is ignored. Returns `None` for any other text.
    pub fn parse(id: &str) -> Option<Self> {
        let mut parts = id.split('/');
        let kind = parts.next()?;
        let kind = VaultObjectKind::ALL.into_iter().find(|known| known.name() == kind)?;
        let name = parts.next()?.parse().ok()?;
        let has_valid_index = parts.next().is_none_or(|index| index.parse::<u32>().is_ok());
        (has_valid_index && parts.next().is_none()).then_some(Self { kind, name })
    }
}

impl fmt::Display for VaultObjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_managed_identities_are_shared() {
        let client: EntraClientId = "11111111-2222-3333-4444-555555555555".parse().unwrap();
        let managed = |client_id| IdentityMode::ManagedIdentity { client_id };
        assert_eq!(SharedIdentity::of(&managed(None)), Some(SharedIdentity::SystemAssigned));
        let user = Some(SharedIdentity::UserAssigned(client));
        assert_eq!(SharedIdentity::of(&managed(Some(client))), user);
        for mode in [
            IdentityMode::WorkloadIdentity { client_id: client },
            IdentityMode::IdentityBinding { client_id: client },
            IdentityMode::ServicePrincipal,
            IdentityMode::PodIdentity,
        ] {
            assert_eq!(SharedIdentity::of(&mode), None, "{mode:?}");
        }
    }

    #[test]
    fn object_id_is_parsed_with_and_without_history_index() {
        for (id, expected) in [
            ("secret/a", Some("secret/a")),
            ("cert/a/3", Some("cert/a")),
            ("secret/a/b", None),
            ("secret/a/1/2", None),
            ("secret", None),
            ("pfx/a", None),
            ("secret/", None),
        ] {
            let read = VaultObjectName::parse(id).map(|object| object.to_string());
            assert_eq!(read.as_deref(), expected, "{id}");
        }
    }
}
