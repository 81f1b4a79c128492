//! Azure SDK for Python.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::client_cases::{self, ClientCase, ExpectedAnswer};
use super::lifecycles::LifecycleClient;
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

const SECRET_FORBIDDEN: ExpectedAnswer =
    ExpectedAnswer::Denied { code: "Forbidden", inner: Some("ForbiddenByRbac") };
const GROUP_FORBIDDEN: ExpectedAnswer =
    ExpectedAnswer::Denied { code: "AuthorizationFailed", inner: None };

const CASES: [ClientCase; 25] = [
    client_case("token:certificate", SignInMethod::Certificate, ExpectedAnswer::Token),
    client_case("token:secret", SignInMethod::Secret, ExpectedAnswer::Token),
    client_case("token:federated", SignInMethod::Federated, ExpectedAnswer::Token),
    client_case("token:managed-identity", SignInMethod::ManagedIdentity, ExpectedAnswer::Token),
    client_case("vault:certificate", SignInMethod::Certificate, ExpectedAnswer::Secret),
    client_case("vault:secret", SignInMethod::Secret, ExpectedAnswer::Secret),
    client_case("vault:federated", SignInMethod::Federated, ExpectedAnswer::Secret),
    client_case("vault:managed-identity", SignInMethod::ManagedIdentity, ExpectedAnswer::Secret),
    client_case("arm:certificate", SignInMethod::Certificate, ExpectedAnswer::Group),
    client_case("arm:secret", SignInMethod::Secret, ExpectedAnswer::Group),
    client_case("arm:federated", SignInMethod::Federated, ExpectedAnswer::Group),
    client_case(
        "token:wrong-signature",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700027"),
    ),
    client_case(
        "token:wrong-audience",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700023"),
    ),
    client_case(
        "token:expired-assertion",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700024"),
    ),
    client_case(
        "token:unknown-thumbprint",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700027"),
    ),
    client_case(
        "token:unknown-application",
        SignInMethod::Certificate,
        ExpectedAnswer::Refused("AADSTS700016"),
    ),
    client_case(
        "token:wrong-secret",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS7000215"),
    ),
    client_case("token:password", SignInMethod::User, ExpectedAnswer::Token),
    client_case("token:device-code", SignInMethod::User, ExpectedAnswer::Token),
    client_case("token:browser", SignInMethod::User, ExpectedAnswer::Token),
    client_case("arm:password", SignInMethod::User, ExpectedAnswer::Group),
    client_case("token:wrong-password", SignInMethod::User, ExpectedAnswer::Refused("AADSTS50126")),
    client_case("token:unknown-user", SignInMethod::User, ExpectedAnswer::Refused("AADSTS50034")),
    client_case("vault:certificate", SignInMethod::Certificate, SECRET_FORBIDDEN),
    client_case("arm:certificate", SignInMethod::Certificate, GROUP_FORBIDDEN),
];

pub(crate) fn trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    client_cases::trials("python", &CASES, target, program)
}

/// The packages azure-keyvault-*, azure-mgmt-* and azure-storage-blob, and Microsoft Graph.
pub(crate) const fn lifecycle_client(program: ClientProgram) -> LifecycleClient {
    const LIFECYCLES: &[&str] = &[
        "network",
        "clusters",
        "secrets",
        "certificates",
        "keys",
        "vaults",
        "storage",
        "blobs",
        "identities",
        "roles",
        "private-dns",
        "dns",
        "resources",
        "graph",
    ];
    LifecycleClient { name: "python", program, lifecycles: LIFECYCLES }
}
