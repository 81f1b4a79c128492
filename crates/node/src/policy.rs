//! Which namespace may read what through an identity that the whole node shares.
//!
//! Azure sees one managed identity for every pod of a node, so whoever may create a
//! SecretProviderClass and a pod reads all that the identity can. A [`NodePolicy`] closes the gap: it is
//! a list of rules, each of which lets some namespaces read some objects of some vaults; what no
//! rule allows is denied. Identities that belong to one pod are judged by Azure alone
//! ([`SharedIdentity::of`]).
//!
//! ```
//! use lanyard_node::policy::{Access, Policy, SharedIdentity, VaultObjectName};
//!
//! let policy = Policy::parse(
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
//! let mut access = Access {
//!     namespace: "ocm-prod-1".to_owned(),
//!     class: "managed-azure-disk-csi".to_owned(),
//!     identity: SharedIdentity::SystemAssigned,
//!     vault: "hcp-vault".parse()?,
//!     object: VaultObjectName::parse("secret/disk-1").ok_or("not an object")?,
//! };
//! assert_eq!(policy.judge(&access).rule(), Some("hosted-clusters"));
//! access.namespace = "default".to_owned();
//! assert!(!policy.judge(&access).is_allowed());
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

/// What the namespaces of a cluster may read through the identities of its nodes.
///
/// The default has no rule: it allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePolicy {
    rules: Vec<PolicyRule>,
}

/// What a policy says to one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyVerdict<'a> {
    /// This rule allows it, the first of those that do.
    Allowed {
        /// The rule's name.
        rule: &'a str,
    },
    /// No rule allows it.
    Unmatched,
}

impl<'a> PolicyVerdict<'a> {
    /// Whether a rule allows it.
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// The rule that allows it.
    pub const fn rule(self) -> Option<&'a str> {
        match self {
            Self::Allowed { rule } => Some(rule),
            Self::Unmatched => None,
        }
    }
}

impl NodePolicy {
    /// Judges one access. What no rule allows is not allowed.
    pub fn evaluate(&self, access: &VaultAccess) -> PolicyVerdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.allows(access));
        rule.map_or(PolicyVerdict::Unmatched, |rule| PolicyVerdict::Allowed { rule: &rule.name })
    }

    /// How many rules there are.
    pub const fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is no rule, so that nothing is allowed.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
