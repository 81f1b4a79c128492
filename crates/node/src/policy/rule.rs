//! The rules of a policy.

use crate::policy::access::VaultAccess;
use crate::policy::pattern::{IdentityPattern, NamePattern, ObjectPattern};

/// Allows the pods of some namespaces to read some objects of some vaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRule {
    /// The name of the rule in the audit trail.
    pub(crate) name: String,
    pub(crate) namespaces: Vec<NamePattern>,
    /// The SecretProviderClasses; `None` matches every class.
    pub(crate) classes: Option<Vec<NamePattern>>,
    /// The identities; `None` matches every identity of the node.
    pub(crate) identities: Option<Vec<IdentityPattern>>,
    /// The vaults and their objects.
    pub(crate) vaults: Vec<VaultGrant>,
}

/// Allows some objects of some vaults.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VaultGrant {
    /// The vaults.
    pub(crate) name: NamePattern,
    pub(crate) objects: Vec<ObjectPattern>,
}

impl PolicyRule {
    /// Returns whether the rule allows this access.
    pub(crate) fn allows(&self, access: &VaultAccess) -> bool {
        self.namespaces.iter().any(|pattern| pattern.matches(&access.namespace))
            && self.matches_class(&access.class)
            && self.matches_identity(access)
            && self.vaults.iter().any(|grant| grant.allows(access))
    }

    fn matches_class(&self, class: &str) -> bool {
        self.classes.as_ref().is_none_or(|classes| classes.iter().any(|it| it.matches(class)))
    }

    fn matches_identity(&self, access: &VaultAccess) -> bool {
        let identities = self.identities.as_ref();
        identities.is_none_or(|identities| identities.iter().any(|it| it.matches(access.identity)))
    }
}

impl VaultGrant {
    fn allows(&self, access: &VaultAccess) -> bool {
        let object = &access.object;
        self.name.matches_ignoring_case(access.vault.as_str())
            && self.objects.iter().any(|it| it.matches(object.kind, object.name.as_str()))
    }
}
