//! Cases of upstream clients: a call, a credential and the expected answer.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::azure_target::AzureTarget;
use crate::client_program::{ClientInputs, ClientProgram};
use crate::sign_in_method::SignInMethod;

/// One case of a client program.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientCase {
    call: ClientCall,
    /// The credential of the client program, which may be invalid.
    credential: &'static str,
    sign_in: SignInMethod,
    expected: ExpectedAnswer,
}

/// What a client does with its credential.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClientCall {
    /// It requests a token.
    Token,
    /// It reads a vault secret.
    Vault,
    /// It reads a resource group.
    Arm,
}

/// The expected answer of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedAnswer {
    /// A token for the client in its tenant.
    Token,
    /// The requested vault secret.
    Secret,
    /// The requested resource group.
    Group,
    /// An error of Entra ID with this code.
    Refused(&'static str),
    /// An authorization error with this code, because the client has no role.
    Denied { code: &'static str, inner: Option<&'static str> },
}

impl ClientCall {
    /// The name of the call in the client programs.
    const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Vault => "vault",
            Self::Arm => "arm",
        }
    }
}

impl ClientCase {
    /// A call that succeeds.
    pub(super) const fn granted(
        call: ClientCall,
        credential: &'static str,
        sign_in: SignInMethod,
    ) -> Self {
        let expected = match call {
            ClientCall::Token => ExpectedAnswer::Token,
            ClientCall::Vault => ExpectedAnswer::Secret,
            ClientCall::Arm => ExpectedAnswer::Group,
        };
        Self { call, credential, sign_in, expected }
    }

    /// A call that succeeds with each of these sign-in methods.
    pub(super) fn granted_to(
        call: ClientCall,
        methods: &[SignInMethod],
    ) -> impl Iterator<Item = Self> {
        methods.iter().map(move |method| Self::granted(call, method.name(), *method))
    }

    /// A token request that Entra ID rejects with a code.
    pub(super) const fn refused(
        credential: &'static str,
        sign_in: SignInMethod,
        code: &'static str,
    ) -> Self {
        let expected = ExpectedAnswer::Refused(code);
        Self { call: ClientCall::Token, credential, sign_in, expected }
    }

    /// A call for which the client has no role, with the code and the inner code of the error.
    pub(super) const fn denied(
        call: ClientCall,
        sign_in: SignInMethod,
        (code, inner): (&'static str, Option<&'static str>),
    ) -> Self {
        let expected = ExpectedAnswer::Denied { code, inner };
        Self { call, credential: sign_in.name(), sign_in, expected }
    }

    /// `CALL:CREDENTIAL`, the case name of the client programs.
    fn name(&self) -> String {
        format!("{}:{}", self.call.name(), self.credential)
    }

    fn trial_name(&self, client: &str) -> String {
        let (call, credential) = (self.call.name(), self.credential);
        match self.expected {
            ExpectedAnswer::Token => format!("{client}::{credential}_gets_a_token"),
            ExpectedAnswer::Secret => format!("{client}::{credential}_reads_a_vault_secret"),
            ExpectedAnswer::Group => format!("{client}::{credential}_reads_a_resource_group"),
            ExpectedAnswer::Refused(code) => {
                format!("{client}::{credential}_is_refused_with_{code}")
            }
            ExpectedAnswer::Denied { code, .. } => {
                format!("{client}::{call}_without_a_role_is_refused_with_{code}")
            }
        }
    }

    fn case_inputs(&self, target: &AzureTarget) -> Option<ClientInputs> {
        match self.expected {
            ExpectedAnswer::Denied { .. } => target.denied_inputs(self.sign_in),
            _ => target.inputs(self.sign_in),
        }
    }
}

/// The trials of a client.
pub(super) fn trials(
    client: &str,
    cases: &[ClientCase],
    target: &Arc<AzureTarget>,
    program: &ClientProgram,
) -> Vec<Trial> {
    cases
        .iter()
        .map(|case| {
            let (case, program) = (*case, program.clone());
            // A case without inputs on this Azure is reported as ignored.
            let inputs = case.case_inputs(target);
            let is_absent = inputs.is_none();
            Trial::test(case.trial_name(client), move || {
                let inputs = inputs.unwrap_or_default();
                let answer =
                    program.run_case(&case.name(), &inputs).map_err(|it| it.to_string())?;
                check_answer(case.expected, &inputs, &answer)
            })
            .with_ignored_flag(is_absent)
        })
        .collect()
}

fn check_answer(
    expected: ExpectedAnswer,
    inputs: &ClientInputs,
    answer: &Value,
) -> Result<(), Failed> {
    let fields: Vec<(&str, String)> = match expected {
        ExpectedAnswer::Token => {
            vec![("/token/appid", inputs.client.clone()), ("/token/tid", inputs.tenant.clone())]
        }
        ExpectedAnswer::Secret => vec![("/secret/name", inputs.secret_name.clone())],
        ExpectedAnswer::Group => vec![("/group/name", inputs.resource_group.clone())],
        ExpectedAnswer::Refused(code) => vec![("/refused/code", code.to_owned())],
        ExpectedAnswer::Denied { code, inner } => {
            let mut fields =
                vec![("/refused/code", code.to_owned()), ("/refused/status", "403".to_owned())];
            fields.extend(inner.map(|inner| ("/refused/inner", inner.to_owned())));
            fields
        }
    };
    for (pointer, wanted) in fields {
        let found = answer.pointer(pointer).map(value_text);
        if !found.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(&wanted)) {
            return Err(format!("{pointer} is not `{wanted}` in {answer}").into());
        }
    }
    match expected {
        ExpectedAnswer::Secret => check_secret_answer(answer),
        _ => Ok(()),
    }
}

/// Expects that the digest is not that of an empty value, and that the version has the format of a version.
fn check_secret_answer(answer: &Value) -> Result<(), Failed> {
    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let text = |pointer| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let digest = text("/secret/sha256");
    if is_hex(digest, 64) && digest != OF_NOTHING && is_hex(text("/secret/version"), 32) {
        return Ok(());
    }
    Err(format!("the secret has no value or no version: {answer}").into())
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inputs() -> ClientInputs {
        ClientInputs {
            client: "c1".to_owned(),
            tenant: "t1".to_owned(),
            secret_name: "s1".to_owned(),
            resource_group: "g1".to_owned(),
            ..ClientInputs::default()
        }
    }

    #[test]
    fn answers_are_checked_by_content() {
        let digest = "a".repeat(64);
        let version = "0123456789abcdef".repeat(2);
        let denied = ExpectedAnswer::Denied { code: "Forbidden", inner: Some("ForbiddenByRbac") };
        let cases = [
            (ExpectedAnswer::Token, json!({"token": {"appid": "C1", "tid": "t1"}}), true),
            (ExpectedAnswer::Token, json!({"token": {"appid": "c2", "tid": "t1"}}), false),
            (ExpectedAnswer::Token, json!({"token": {"appid": "c1", "tid": "t2"}}), false),
            (ExpectedAnswer::Token, json!({"refused": {"code": "AADSTS700027"}}), false),
            (ExpectedAnswer::Group, json!({"group": {"name": "g1"}}), true),
            (ExpectedAnswer::Group, json!({"group": {"name": "g2"}}), false),
            (
                ExpectedAnswer::Secret,
                json!({"secret": {"name": "s1", "sha256": digest, "version": version}}),
                true,
            ),
            (
                ExpectedAnswer::Secret,
                json!({"secret": {"name": "s2", "sha256": digest, "version": version}}),
                false,
            ),
            (
                ExpectedAnswer::Secret,
                json!({"secret": {"name": "s1", "sha256": "", "version": version}}),
                false,
            ),
            (
                ExpectedAnswer::Secret,
                json!({"secret": {"name": "s1", "sha256": digest, "version": ""}}),
                false,
            ),
            (
                ExpectedAnswer::Refused("AADSTS700027"),
                json!({"refused": {"code": "AADSTS700027"}}),
                true,
            ),
            (
                ExpectedAnswer::Refused("AADSTS700027"),
                json!({"refused": {"code": "AADSTS70002"}}),
                false,
            ),
            (ExpectedAnswer::Refused("AADSTS700027"), json!({"token": {"appid": "c1"}}), false),
            (
                denied,
                json!({"refused": {"code": "Forbidden", "inner": "ForbiddenByRbac", "status": 403}}),
                true,
            ),
            (
                denied,
                json!({"refused": {"code": "Forbidden", "inner": null, "status": 403}}),
                false,
            ),
            (
                denied,
                json!({"refused": {"code": "Forbidden", "inner": "ForbiddenByRbac", "status": 401}}),
                false,
            ),
        ];
        for (expected, answer, good) in cases {
            let verdict = check_answer(expected, &inputs(), &answer);
            assert_eq!(verdict.is_ok(), good, "{expected:?} of {answer}");
        }
    }
}
