//! Azure SDKs for Java and JavaScript: sign-in, a secret of a vault, and in Java the key types of a vault.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::client_cases::{self, ClientCall, ClientCase};
use super::lifecycles::LifecycleClient;
use crate::azure_target::AzureTarget;
use crate::client_program::ClientProgram;
use crate::sign_in_method::SignInMethod;

/// Netty tunnels plain HTTP through a proxy, which the local Azure rejects, so Java has no case of a managed
/// identity.
pub(crate) fn java_trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    client_cases::trials("java", &cases(Some("ForbiddenByRbac")), target, program)
}

/// The SDK for JavaScript does not report the inner code of an error.
pub(crate) fn js_trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    let mut cases = cases(None);
    cases.extend(ClientCase::granted_to(ClientCall::Vault, &[SignInMethod::ManagedIdentity]));
    client_cases::trials("js", &cases, target, program)
}

/// azure-security-keyvault-keys.
pub(crate) const fn java_lifecycle_client(program: ClientProgram) -> LifecycleClient {
    LifecycleClient { name: "java", program, lifecycles: &["key-types"] }
}

/// The cases of both clients. `inner_code` is that of the error when the vault denies access.
fn cases(inner_code: Option<&'static str>) -> Vec<ClientCase> {
    use SignInMethod::{Certificate, Federated, Secret};
    ClientCase::granted_to(ClientCall::Token, &[Certificate, Secret])
        .chain(ClientCase::granted_to(ClientCall::Vault, &[Certificate, Secret, Federated]))
        .chain([
            ClientCase::refused("wrong-secret", Secret, "AADSTS7000215"),
            ClientCase::denied(ClientCall::Vault, Certificate, ("Forbidden", inner_code)),
        ])
        .collect()
}
