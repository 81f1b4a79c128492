//! Azure SDK for Rust.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::client_cases::{self, ClientCall, ClientCase};
use super::lifecycles::LifecycleClient;
use crate::azure_target::AzureTarget;
use crate::client_program::ClientProgram;
use crate::sign_in_method::SignInMethod;

pub(crate) fn trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    use SignInMethod::{Federated, ManagedIdentity, Secret};
    let methods = [Secret, Federated, ManagedIdentity];
    let mut cases: Vec<_> = ClientCase::granted_to(ClientCall::Token, &methods).collect();
    cases.extend(ClientCase::granted_to(ClientCall::Vault, &methods));
    cases.extend([
        // Only in this suite, because MSAL for Python requests the tenant's configuration first and hides
        // why that failed.
        ClientCase::refused("foreign-tenant", Secret, "AADSTS90002"),
        ClientCase::refused("wrong-secret", Secret, "AADSTS7000215"),
        ClientCase::denied(ClientCall::Vault, Federated, ("Forbidden", None)),
    ]);
    client_cases::trials("rust", &cases, target, program)
}

/// The crates `azure_security_keyvault_*` and `azure_storage_blob`.
pub(crate) const fn lifecycle_client(program: ClientProgram) -> LifecycleClient {
    const LIFECYCLES: &[&str] = &["secrets", "certificates", "keys", "blobs"];
    LifecycleClient { name: "rust", program, lifecycles: LIFECYCLES }
}
