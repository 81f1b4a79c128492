//! The hops of the identity flows, and their outcomes.
//!
//! A hop has the same name in `lanyard up`, in conditions, metrics and events, and in diagnoses.

use serde::Serialize;

/// A hop of an identity flow. The variants are in the order of both paths, which end with the same hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Hop {
    /// The HostedCluster contains the component's identity and is valid.
    HostedCluster,
    /// The SecretProviderClass of the component is rendered and exists.
    SecretProviderClass,
    /// The pod has a CSI volume that refers to the class, and the consumer's configured path is in the
    /// volume.
    Volume,
    /// The node gets a vault token from the instance metadata service.
    ImdsToken,
    /// The node reads the secret from the vault.
    VaultRead,
    /// The node decodes the value as the class specifies.
    Decode,
    /// The node publishes the file into the mount.
    File,
    /// The consumer loads the credential document and its certificate.
    Credential,
    /// The ServiceAccount of a pod names the identity in its annotations.
    ServiceAccount,
    /// The kubelet projects a token of the ServiceAccount into the pod.
    ProjectedToken,
    /// The token's issuer publishes its documents and the key that signed the token.
    Issuer,
    /// A federated credential of the identity matches the token.
    FederatedCredential,
    /// Entra issues an access token for the certificate or the projected token.
    EntraToken,
    /// Azure grants a request that the component's role permits.
    Granted,
    /// Azure denies a request that the component's role does not permit.
    Refused,
}

impl Hop {
    /// The hops of a control-plane component, which authenticates with a certificate, in order.
    pub const CERTIFICATE_PATH: [Self; 11] = [
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

    /// The hops of a pod that authenticates with a token of its ServiceAccount, in order.
    pub const WORKLOAD_IDENTITY_PATH: [Self; 6] = [
        Self::ServiceAccount,
        Self::ProjectedToken,
        Self::Issuer,
        Self::FederatedCredential,
        Self::EntraToken,
        Self::Granted,
    ];

    /// The stable name of the hop in tables, JSON, conditions, metrics and events.
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
            Self::ServiceAccount => "serviceaccount",
            Self::ProjectedToken => "projected-token",
            Self::Issuer => "issuer",
            Self::FederatedCredential => "federated-credential",
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

crate::display_text!(Hop, name());

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum HopOutcome {
    /// The hop succeeded.
    Succeeded,
    /// The hop failed; it has a reason and a hint.
    Failed,
    /// The hop was not tried, because an earlier hop failed.
    NotReached,
}

impl HopOutcome {
    /// All outcomes.
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

crate::display_text!(HopOutcome, name());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_listed_in_walking_order_and_have_distinct_names() {
        assert!(Hop::CERTIFICATE_PATH.is_sorted());
        assert!(Hop::WORKLOAD_IDENTITY_PATH.is_sorted());
        let mut hops = [&Hop::CERTIFICATE_PATH[..], &Hop::WORKLOAD_IDENTITY_PATH].concat();
        hops.sort_unstable();
        hops.dedup();
        let mut names: Vec<_> = hops.iter().map(|hop| hop.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), hops.len());
    }
}
