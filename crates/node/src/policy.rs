//! Which namespace may read what through an identity that the whole node shares.
//!
//! Azure sees one managed identity for every pod of a node, so whoever may create a
//! SecretProviderClass and a pod reads all that the identity can. A [`Policy`] closes the gap: it is
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
mod document;
mod guard;
mod keeper;
mod pattern;
mod problem;
mod rule;
mod suggest;
#[cfg(test)]
mod tests;

pub use access::{Access, SharedIdentity, VaultObjectName};
pub use guard::{GuardedProvider, PolicyMode};
pub use keeper::{PolicyKeeper, Reload};
pub use problem::{PolicyError, PolicyProblem, PolicyProblems};
pub use suggest::{ObservedReads, Suggestion};

use rule::Rule;

/// What the namespaces of a cluster may read through the identities of its nodes.
///
/// The default has no rule: it allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// What a policy says to one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// This rule allows it, the first of those that do.
    Allowed {
        /// The rule's name.
        rule: &'a str,
    },
    /// No rule allows it.
    Unmatched,
}

impl<'a> Verdict<'a> {
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

impl Policy {
    /// Judges one access. What no rule allows is not allowed.
    pub fn judge(&self, access: &Access) -> Verdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.allows(access));
        rule.map_or(Verdict::Unmatched, |rule| Verdict::Allowed { rule: &rule.name })
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
