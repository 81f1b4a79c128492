//! Rules: who may read what.

use crate::policy::access::VaultAccess;
use crate::policy::pattern::{IdentityPattern, NamePattern, ObjectPattern};

/// Lets the pods of some namespaces read some objects of some vaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRule {
    /// How the audit trail names it.
    pub(crate) name: String,
    /// Of which namespaces.
    pub(crate) namespaces: Vec<NamePattern>,
    /// Through which classes; none written means any.
    pub(crate) classes: Option<Vec<NamePattern>>,
    /// Through which identities; none written means any that the node has.
    pub(crate) identities: Option<Vec<IdentityPattern>>,
    /// What.
    pub(crate) vaults: Vec<VaultGrant>,
}

/// Objects of a vault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VaultGrant {
    /// Of which vaults.
    pub(crate) name: NamePattern,
    /// Which objects.
    pub(crate) objects: Vec<ObjectPattern>,
}

impl PolicyRule {
    /// Whether the rule lets this access through.
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
