//! The node policy: which namespaces may read which objects through an identity that the whole node shares.
//!
//! Azure identifies all pods of a node by one managed identity, so a user who may create a
//! SecretProviderClass and a pod can read everything that the identity can. A [`NodePolicy`] closes the gap:
//! it is a list of rules, each of which allows some namespaces to read some objects of some vaults; all other
//! reads are denied. Identities that belong to one pod are authorized by Azure alone
//! ([`SharedIdentity::of`]).
//!
//! ```
//! use lanyard_node::policy::{NodePolicy, SharedIdentity, VaultAccess, VaultObjectName};
//!
//! let policy = NodePolicy::parse(
//!     "apiVersion: lanyard.dev/v1alpha1
//! kind: NodePolicy
//! rules:
//!   - name: hosted-clusters
//!     namespaces: [ocm-*]
//!     vaults:
//!       - name: hcp-vault
//!         objects: [secret/*]
//! ",
//! )?;
//! let mut access = VaultAccess {
//!     namespace: "ocm-prod-1".to_owned(),
//!     class: "managed-azure-disk-csi".to_owned(),
//!     identity: SharedIdentity::SystemAssigned,
//!     vault: "hcp-vault".parse()?,
//!     object: VaultObjectName::parse("secret/disk-1").ok_or("not an object")?,
//! };
//! assert_eq!(policy.evaluate(&access).rule(), Some("hosted-clusters"));
//! access.namespace = "default".to_owned();
//! assert!(!policy.evaluate(&access).is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod checked_provider;
mod document;
mod error;
mod pattern;
mod reloadable;
mod rule;
mod suggest;
#[cfg(test)]
mod tests;

pub use access::{SharedIdentity, VaultAccess, VaultObjectName};
pub use checked_provider::{PolicyCheckedProvider, PolicyMode};
pub use error::{PolicyError, PolicyProblem, PolicyProblems};
pub use reloadable::{PolicyReload, ReloadablePolicy};
pub use suggest::{ObservedReads, PolicySuggestion};

use rule::PolicyRule;

/// The reads that the namespaces of a cluster may do through the identities of its nodes.
///
/// The default has no rule and allows no read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePolicy {
    rules: Vec<PolicyRule>,
}

/// The verdict of a policy on one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyVerdict<'a> {
    /// This rule is the first that allows the access.
    Allowed {
        /// The name of the rule.
        rule: &'a str,
    },
    /// No rule allows the access.
    Unmatched,
}

impl<'a> PolicyVerdict<'a> {
    /// Returns whether a rule allows the access.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// Returns the name of the rule that allows the access.
    pub const fn rule(self) -> Option<&'a str> {
        match self {
            Self::Allowed { rule } => Some(rule),
            Self::Unmatched => None,
        }
    }
}

impl NodePolicy {
    /// Evaluates one access. An access that no rule allows is denied.
    pub fn evaluate(&self, access: &VaultAccess) -> PolicyVerdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.allows(access));
        rule.map_or(PolicyVerdict::Unmatched, |rule| PolicyVerdict::Allowed { rule: &rule.name })
    }

    /// Returns the number of rules.
    pub const fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there is no rule, so that every access is denied.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
