//! Azure SDKs for Java and JavaScript: sign-in, and a secret of a vault.

use std::sync::Arc;

use libtest_mimic::Trial;

use super::client_cases::{self, ClientCase, ExpectedAnswer};
use crate::azure_target::AzureTarget;
use crate::client_program::ClientProgram;
use crate::sign_in_method::SignInMethod;

const CASES: [ClientCase; 6] = [
    ClientCase::new("token:certificate", SignInMethod::Certificate, ExpectedAnswer::Token),
    ClientCase::new("token:secret", SignInMethod::Secret, ExpectedAnswer::Token),
    ClientCase::new("vault:certificate", SignInMethod::Certificate, ExpectedAnswer::Secret),
    ClientCase::new("vault:secret", SignInMethod::Secret, ExpectedAnswer::Secret),
    ClientCase::new("vault:federated", SignInMethod::Federated, ExpectedAnswer::Secret),
    ClientCase::new(
        "token:wrong-secret",
        SignInMethod::Secret,
        ExpectedAnswer::Refused("AADSTS7000215"),
    ),
];

const fn forbidden(inner: Option<&'static str>) -> ClientCase {
    let expected = ExpectedAnswer::Denied { code: "Forbidden", inner };
    ClientCase::new("vault:certificate", SignInMethod::Certificate, expected)
}

pub(crate) fn java_trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    trials("java", forbidden(Some("ForbiddenByRbac")), target, program)
}

/// The SDK for JavaScript does not report the inner code of an error.
pub(crate) fn js_trials(target: &Arc<AzureTarget>, program: &ClientProgram) -> Vec<Trial> {
    trials("js", forbidden(None), target, program)
}

fn trials(
    client: &str,
    forbidden: ClientCase,
    target: &Arc<AzureTarget>,
    program: &ClientProgram,
) -> Vec<Trial> {
    let cases: Vec<_> = CASES.into_iter().chain([forbidden]).collect();
    client_cases::trials(client, &cases, target, program)
}
