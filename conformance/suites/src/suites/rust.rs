//! Azure SDK for Rust: `azure_identity` and `azure_security_keyvault_secrets`.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::client_cases::{self, ClientCase, ExpectedAnswer};
use crate::azure_target::AzureTarget;
use crate::client_program::ClientProgram;
use crate::sign_in_method::SignInMethod;

const fn client_case(
    name: &'static str,
    holder: SignInMethod,
    expected: ExpectedAnswer,
) -> ClientCase {
    ClientCase { name, sign_in: holder, expected }
}

const CASES: [ClientCase; 9] = [
    client_case("token:secret", SignInMethod::Secret, ExpectedAnswer::Token),
    client_case("token:federated", SignInMethod::Federated, ExpectedAnswer::Token),
    client_case("token:managed-identity", SignInMethod::ManagedIdentity, ExpectedAnswer::Token),
    client_case("vault:secret", SignInMethod::Secret, ExpectedAnswer::Secret),
    client_case("vault:federated", SignInMethod::Federated, ExpectedAnswer::Secret),
    client_case("vault:managed-identity", SignInMethod::ManagedIdentity, ExpectedAnswer::Secret),
    // Only in this suite, because MSAL for Python requests the tenant's configuration first and hides why
    // that failed.
    client_case(
        "token:foreign-tenant",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS90002"),
    ),
    client_case(
        "token:wrong-secret",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS7000215"),
    ),
    client_case(
        "vault:federated",
        SignInMethod::Federated,
        ExpectedAnswer::Denied { code: "Forbidden", inner: None },
    ),
];

pub(crate) fn trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    client_cases::trials("rust", &CASES, target, program)
}
