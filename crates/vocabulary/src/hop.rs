//! The hops of the identity flow, and what can become of one.
//!
//! A hop has one name from `lanyard up` to a condition, a metric and an event: learn the hops and
//! you know the product.

use std::fmt;

use serde::Serialize;

/// One hop of the identity flow, in the order in which they are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Hop {
    /// The HostedCluster names the component's identity, and the object is valid.
    HostedCluster,
    /// The SecretProviderClass of the component is rendered and found.
    SecretProviderClass,
    /// The pod has a CSI volume that points at the class, and the path told to the consumer is
    /// the path that the volume provides.
    Volume,
    /// The node gets a vault token from the instance metadata service.
    ImdsToken,
    /// The node reads the secret from the vault.
    VaultRead,
    /// The value is decoded as the class says.
    Decode,
    /// The file is published into the mount.
    File,
    /// The consumer loads the credential document and its certificate.
    Credential,
    /// Entra issues an access token for the certificate.
    EntraToken,
    /// A request that the component's role grants is granted.
    Granted,
    /// A request that the component's role does not grant is refused.
    Refused,
}

impl Hop {
    /// Every hop, in walking order.
    pub const ALL: [Self; 11] = [
        Self::HostedCluster,
        Self::SecretProviderClass,
        Self::Volume,
        Self::ImdsToken,
        Self::VaultRead,
        Self::Decode,
        Self::File,
        Self::Credential,
        Self::EntraToken,
        Self::Granted,
        Self::Refused,
    ];

    /// The stable name of the hop: the same in tables, JSON, conditions, metrics and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostedCluster => "hostedcluster",
            Self::SecretProviderClass => "spc",
            Self::Volume => "volume",
            Self::ImdsToken => "imds-token",
            Self::VaultRead => "vault-read",
            Self::Decode => "decode",
            Self::File => "file",
            Self::Credential => "credential",
            Self::EntraToken => "entra-token",
            Self::Granted => "granted",
            Self::Refused => "refused",
        }
    }
}

impl From<Hop> for &'static str {
    fn from(hop: Hop) -> Self {
        hop.name()
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// What became of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum HopOutcome {
    /// The hop was walked and is good.
    Succeeded,
    /// The hop was walked and failed; it has a reason and a next step.
    Failed,
    /// An earlier hop failed, so this one was not walked.
    NotReached,
}

impl HopOutcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Succeeded, Self::Failed, Self::NotReached];

    /// The stable name of the outcome.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "good",
            Self::Failed => "failed",
            Self::NotReached => "not reached",
        }
    }
}

impl From<HopOutcome> for &'static str {
    fn from(outcome: HopOutcome) -> Self {
        outcome.name()
    }
}

impl fmt::Display for HopOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_listed_in_walking_order_and_have_distinct_names() {
        assert!(Hop::ALL.is_sorted());
        let mut names: Vec<_> = Hop::ALL.iter().map(|hop| hop.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Hop::ALL.len());
    }
}
