//! The name and the infrastructure id of a cluster, from which the names of its resources are derived.

use std::str::FromStr;

use lanyard_changes::{JournalCluster, OwnershipTags};
use lanyard_vocabulary::{InfraId, SubscriptionId};
use serde::{Deserialize, Serialize};

/// The name of a hosted cluster: a DNS label, as Kubernetes requires (RFC 1123).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

/// A cluster cannot have this name or infrastructure id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterIdentifierError {
    /// The name is not a DNS label.
    #[error(
        "the cluster name `{0}` is not a DNS label: use 1 to 63 lower-case letters, digits and `-`, with a letter or digit at both ends"
    )]
    InvalidName(String),
    /// Azure requires a letter or digit at both ends of the name of a public IP address, and allows no `.` in
    /// that of a managed identity.
    #[error(
        "the infrastructure id `{0}` is not usable in names: use letters, digits and `-`, with a letter or digit at both ends"
    )]
    InvalidInfraId(String),
    /// The longest name that Azure allows for a virtual network is exceeded.
    #[error("the virtual network would be named `{name}`, which has {} characters; Azure allows {MAX_VNET_NAME}", name.len())]
    NameTooLong {
        /// The name of the virtual network.
        name: String,
    },
}

/// The shortest limit of all derived names. Groups may have 90 characters, security groups and links 80, and
/// managed identities 128 (Microsoft Learn, "Naming rules and restrictions for Azure resources").
const MAX_VNET_NAME: usize = 64;

impl ClusterName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = ClusterIdentifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_dns_label(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ClusterIdentifierError::InvalidName(text.to_owned()))
        }
    }
}

impl TryFrom<String> for ClusterName {
    type Error = ClusterIdentifierError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0
    }
}

lanyard_vocabulary::display_text!(ClusterName, 0);

/// The name and the infrastructure id of a cluster. All names derived from them are valid in Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterIdentifiers {
    name: ClusterName,
    infra_id: InfraId,
}

impl ClusterIdentifiers {
    /// Checks that Azure accepts the names that are derived from both.
    ///
    /// # Errors
    ///
    /// [`ClusterIdentifierError`] names the derived name that Azure rejects.
    pub fn new(name: ClusterName, infra_id: InfraId) -> Result<Self, ClusterIdentifierError> {
        if !has_alphanumeric_ends(infra_id.as_str()) || infra_id.as_str().contains('.') {
            return Err(ClusterIdentifierError::InvalidInfraId(infra_id.to_string()));
        }
        let longest = format!("{name}-{infra_id}");
        if longest.len() > MAX_VNET_NAME {
            return Err(ClusterIdentifierError::NameTooLong { name: longest });
        }
        Ok(Self { name, infra_id })
    }

    /// The name of the hosted cluster.
    pub const fn name(&self) -> &ClusterName {
        &self.name
    }

    /// The infrastructure id.
    pub const fn infra_id(&self) -> &InfraId {
        &self.infra_id
    }

    /// The tags on the resources that lanyard creates for the cluster.
    pub fn ownership_tags(&self) -> OwnershipTags {
        OwnershipTags::new(self.name.as_str(), self.infra_id.as_str())
    }

    /// The cluster, or the shared stack, of a journal.
    pub fn journal_cluster(&self, subscription: &SubscriptionId) -> JournalCluster {
        JournalCluster {
            name: self.name.to_string(),
            infra_id: self.infra_id.to_string(),
            subscription: subscription.to_string(),
        }
    }
}

/// The domain below which clusters are created, such as `example.com`.
///
/// It leaves space for the longest cluster name: a private DNS zone has at most 253 characters and 34 labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BaseDomain(String);

/// A text is not a base domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a base domain: use 2 to 33 DNS labels of lower-case letters, digits and `-`, with at most 189 characters, such as `example.com`"
)]
pub struct InvalidBaseDomainError(String);

impl BaseDomain {
    /// The domain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BaseDomain {
    type Err = InvalidBaseDomainError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let labels = text.split('.').count();
        if text.len() <= 189 && (2..=33).contains(&labels) && text.split('.').all(is_dns_label) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidBaseDomainError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for BaseDomain {
    type Error = InvalidBaseDomainError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BaseDomain> for String {
    fn from(domain: BaseDomain) -> Self {
        domain.0
    }
}

lanyard_vocabulary::display_text!(BaseDomain, 0);

/// Whether the text is a DNS label (RFC 1123) in lower case.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(is_allowed) && has_alphanumeric_ends(text)
}

fn has_alphanumeric_ends(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn identifiers(
        name: &str,
        infra_id: &str,
    ) -> Result<ClusterIdentifiers, ClusterIdentifierError> {
        ClusterIdentifiers::new(name.parse()?, infra_id.parse().unwrap())
    }

    #[test]
    fn identifiers_that_azure_would_reject_are_rejected() {
        assert!(identifiers("harbour", "harbour-x7k2p").is_ok());
        for name in ["", "Harbour", "harbour-", "-harbour", "har_bour", "har.bour"] {
            assert!(identifiers(name, "x").is_err(), "{name}");
        }
        for infra_id in ["-x", "x-", "x.", "x.y"] {
            assert!(identifiers("harbour", infra_id).is_err(), "{infra_id}");
        }
        let error =
            identifiers("a23456789012345678901234567890123", "b2345678901234567890123456789012");
        assert!(error.unwrap_err().to_string().contains("66 characters; Azure allows 64"));
    }

    #[test]
    fn base_domain_has_at_least_two_labels() {
        for domain in ["example.com", "a.b", "hosted-1.example.co"] {
            assert!(domain.parse::<BaseDomain>().is_ok(), "{domain}");
        }
        for domain in ["", "com", "example.com.", "-a.com", "a..b", "Example.com", "*.example.com"]
        {
            assert!(domain.parse::<BaseDomain>().is_err(), "{domain}");
        }
    }

    proptest! {
        #[test]
        fn generated_infra_id_fits_every_short_name(name in "[a-z0-9]([a-z0-9-]{0,34}[a-z0-9])?") {
            let name: ClusterName = name.parse().unwrap();
            let mut counter = 0;
            let id =
                InfraId::generate(name.as_str(), |count| { counter += 7; counter % count });
            prop_assert!(id.as_str().len() <= 27);
            prop_assert!(ClusterIdentifiers::new(name, id).is_ok());
        }
    }
}
