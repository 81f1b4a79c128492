//! Rules: who may read what.

use crate::policy::access::Access;
use crate::policy::pattern::{IdentityPattern, ObjectPattern, Pattern};

/// Lets the pods of some namespaces read some objects of some vaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// How the audit trail names it.
    pub(crate) name: String,
    /// Of which namespaces.
    pub(crate) namespaces: Vec<Pattern>,
    /// Through which classes; none written means any.
    pub(crate) classes: Option<Vec<Pattern>>,
    /// Through which identities; none written means any that the node has.
    pub(crate) identities: Option<Vec<IdentityPattern>>,
    /// What.
    pub(crate) vaults: Vec<VaultGrant>,
}

/// Objects of a vault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VaultGrant {
    /// Of which vaults.
    pub(crate) name: Pattern,
    /// Which objects.
    pub(crate) objects: Vec<ObjectPattern>,
}

impl Rule {
    /// Whether the rule lets this access through.
    pub(crate) fn allows(&self, access: &Access) -> bool {
        self.namespaces.iter().any(|pattern| pattern.fits(&access.namespace))
            && self.takes_class(&access.class)
            && self.takes_identity(access)
            && self.vaults.iter().any(|grant| grant.allows(access))
    }

    fn takes_class(&self, class: &str) -> bool {
        self.classes.as_ref().is_none_or(|classes| classes.iter().any(|it| it.fits(class)))
    }

    fn takes_identity(&self, access: &Access) -> bool {
        let identities = self.identities.as_ref();
        identities.is_none_or(|identities| identities.iter().any(|it| it.fits(access.identity)))
    }
}

impl VaultGrant {
    fn allows(&self, access: &Access) -> bool {
        let object = &access.object;
        self.name.fits_any_case(access.vault.as_str())
            && self.objects.iter().any(|it| it.fits(object.kind, object.name.as_str()))
    }
}
