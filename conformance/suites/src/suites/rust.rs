//! Azure SDK for Rust: `azure_identity` and `azure_security_keyvault_secrets`.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::clients::{self, Case, Expected};
use crate::ground::{Ground, Holder};
use crate::program::Program;

const fn case(name: &'static str, holder: Holder, expected: Expected) -> Case {
    Case { name, holder, expected }
}

const CASES: [Case; 9] = [
    case("token:secret", Holder::Secret, Expected::Token),
    case("token:federated", Holder::Federated, Expected::Token),
    case("token:managed-identity", Holder::ManagedIdentity, Expected::Token),
    case("vault:secret", Holder::Secret, Expected::Secret),
    case("vault:federated", Holder::Federated, Expected::Secret),
    case("vault:managed-identity", Holder::ManagedIdentity, Expected::Secret),
    // Seen here and not in Python: MSAL asks for the tenant's configuration first, and hides why it
    // got none.
    case("token:foreign-tenant", Holder::Secret, Expected::Refused("AADSTS90002")),
    case("token:wrong-secret", Holder::Secret, Expected::Refused("AADSTS7000215")),
    case("vault:federated", Holder::Federated, Expected::Denied { code: "Forbidden", inner: None }),
];

pub(crate) fn trials(ground: &Arc<Ground>, program: &Program) -> Vec<Trial> {
    clients::trials("rust", &CASES, ground, program)
}
