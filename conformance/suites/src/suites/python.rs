//! Azure SDK for Python: azure-identity, azure-keyvault-secrets, azure-mgmt-resource.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::clients::{self, Case, Expected};
use crate::ground::{Ground, Holder};
use crate::program::Program;

const fn case(name: &'static str, holder: Holder, expected: Expected) -> Case {
    Case { name, holder, expected }
}

const NO_ROLE_ON_SECRET: Expected =
    Expected::Denied { code: "Forbidden", inner: Some("ForbiddenByRbac") };
const NO_ROLE_ON_GROUP: Expected = Expected::Denied { code: "AuthorizationFailed", inner: None };

const CASES: [Case; 19] = [
    case("token:certificate", Holder::Certificate, Expected::Token),
    case("token:secret", Holder::Secret, Expected::Token),
    case("token:federated", Holder::Federated, Expected::Token),
    case("token:managed-identity", Holder::ManagedIdentity, Expected::Token),
    case("vault:certificate", Holder::Certificate, Expected::Secret),
    case("vault:secret", Holder::Secret, Expected::Secret),
    case("vault:federated", Holder::Federated, Expected::Secret),
    case("vault:managed-identity", Holder::ManagedIdentity, Expected::Secret),
    case("arm:certificate", Holder::Certificate, Expected::Group),
    case("arm:secret", Holder::Secret, Expected::Group),
    case("arm:federated", Holder::Federated, Expected::Group),
    case("token:wrong-signature", Holder::Certificate, Expected::Refused("AADSTS700027")),
    case("token:wrong-audience", Holder::Certificate, Expected::Refused("AADSTS700023")),
    case("token:expired-assertion", Holder::Certificate, Expected::Refused("AADSTS700024")),
    case("token:unknown-thumbprint", Holder::Certificate, Expected::Refused("AADSTS700027")),
    case("token:unknown-application", Holder::Certificate, Expected::Refused("AADSTS700016")),
    case("token:wrong-secret", Holder::Secret, Expected::Refused("AADSTS7000215")),
    case("vault:certificate", Holder::Certificate, NO_ROLE_ON_SECRET),
    case("arm:certificate", Holder::Certificate, NO_ROLE_ON_GROUP),
];

pub(crate) fn trials(ground: &Arc<Ground>, program: &Program) -> Vec<Trial> {
    clients::trials("python", &CASES, ground, program)
}
