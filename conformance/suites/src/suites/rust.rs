//! Azure SDK for Rust.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::client_cases::{self, ClientCase, ExpectedAnswer};
use super::lifecycles::LifecycleClient;
use crate::azure_target::AzureTarget;
use crate::client_program::ClientProgram;
use crate::sign_in_method::SignInMethod;

const CASES: [ClientCase; 9] = [
    ClientCase::new("token:secret", SignInMethod::Secret, ExpectedAnswer::Token),
    ClientCase::new("token:federated", SignInMethod::Federated, ExpectedAnswer::Token),
    ClientCase::new("token:managed-identity", SignInMethod::ManagedIdentity, ExpectedAnswer::Token),
    ClientCase::new("vault:secret", SignInMethod::Secret, ExpectedAnswer::Secret),
    ClientCase::new("vault:federated", SignInMethod::Federated, ExpectedAnswer::Secret),
    ClientCase::new(
        "vault:managed-identity",
        SignInMethod::ManagedIdentity,
        ExpectedAnswer::Secret,
    ),
    // Only in this suite, because MSAL for Python requests the tenant's configuration first and hides why
    // that failed.
    ClientCase::new(
        "token:foreign-tenant",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS90002"),
    ),
    ClientCase::new(
        "token:wrong-secret",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS7000215"),
    ),
    ClientCase::new(
        "vault:federated",
        SignInMethod::Federated,
        ExpectedAnswer::Denied { code: "Forbidden", inner: None },
    ),
];

pub(crate) fn trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    client_cases::trials("rust", &CASES, target, program)
}

/// The crates `azure_security_keyvault_*` and `azure_storage_blob`.
pub(crate) const fn lifecycle_client(program: ClientProgram) -> LifecycleClient {
    const LIFECYCLES: &[&str] = &["secrets", "certificates", "keys", "blobs"];
    LifecycleClient { name: "rust", program, lifecycles: LIFECYCLES }
}
