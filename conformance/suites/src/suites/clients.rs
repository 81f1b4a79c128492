//! Cases of clients that run once: what a client does, who it is, and what must come of it.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::ground::{Ground, Holder};
use crate::program::{Inputs, Program};

/// One case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// `CALL:CREDENTIAL`, as the programs know it.
    pub(super) name: &'static str,
    /// Who signs in.
    pub(super) holder: Holder,
    /// What must come of it.
    pub(super) expected: Expected,
}

/// What must come of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A token of the right tenant for the right client.
    Token,
    /// The secret that was asked for.
    Secret,
    /// The resource group that was asked for.
    Group,
    /// A refusal by Entra, with this code.
    Refused(&'static str),
    /// A refusal for want of a role, with this code.
    Denied { code: &'static str, inner: Option<&'static str> },
}

impl Case {
    /// The sentence that stands in the report.
    fn sentence(&self, client: &str) -> String {
        let (call, credential) = self.name.split_once(':').unwrap_or((self.name, ""));
        match self.expected {
            Expected::Token => format!("{client}::{credential}_gets_a_token"),
            Expected::Secret => format!("{client}::{credential}_reads_a_vault_secret"),
            Expected::Group => format!("{client}::{credential}_reads_a_resource_group"),
            Expected::Refused(code) => format!("{client}::{credential}_is_refused_with_{code}"),
            Expected::Denied { code, .. } => {
                format!("{client}::{call}_without_a_role_is_refused_with_{code}")
            }
        }
    }

    fn inputs(&self, ground: &Ground) -> Option<Inputs> {
        match self.expected {
            Expected::Denied { .. } => ground.denied_inputs(self.holder),
            _ => ground.inputs(self.holder),
        }
    }
}

/// The trials of a client.
pub(super) fn trials(
    client: &str,
    cases: &[Case],
    ground: &Arc<Ground>,
    program: &Program,
) -> Vec<Trial> {
    cases
        .iter()
        .map(|case| {
            let (case, program) = (*case, program.clone());
            // Nothing for this case on this ground is shown as ignored.
            let inputs = case.inputs(ground);
            let is_absent = inputs.is_none();
            Trial::test(case.sentence(client), move || {
                let inputs = inputs.unwrap_or_default();
                let answer = program.answer(case.name, &inputs).map_err(|it| it.to_string())?;
                judge(case.expected, &inputs, &answer)
            })
            .with_ignored_flag(is_absent)
        })
        .collect()
}

fn judge(expected: Expected, inputs: &Inputs, answer: &Value) -> Result<(), Failed> {
    let fields: Vec<(&str, String)> = match expected {
        Expected::Token => {
            vec![("/token/appid", inputs.client.clone()), ("/token/tid", inputs.tenant.clone())]
        }
        Expected::Secret => vec![("/secret/name", inputs.secret_name.clone())],
        Expected::Group => vec![("/group/name", inputs.resource_group.clone())],
        Expected::Refused(code) => vec![("/refused/code", code.to_owned())],
        Expected::Denied { code, inner } => {
            let mut fields =
                vec![("/refused/code", code.to_owned()), ("/refused/status", "403".to_owned())];
            fields.extend(inner.map(|inner| ("/refused/inner", inner.to_owned())));
            fields
        }
    };
    for (pointer, wanted) in fields {
        let found = answer.pointer(pointer).map(plain);
        if !found.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(&wanted)) {
            return Err(format!("{pointer} is not `{wanted}` in {answer}").into());
        }
    }
    match expected {
        Expected::Secret => judge_secret(answer),
        _ => Ok(()),
    }
}

/// The value arrived: its digest is one of something, and the version is a version.
fn judge_secret(answer: &Value) -> Result<(), Failed> {
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

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inputs() -> Inputs {
        Inputs {
            client: "c1".to_owned(),
            tenant: "t1".to_owned(),
            secret_name: "s1".to_owned(),
            resource_group: "g1".to_owned(),
            ..Inputs::default()
        }
    }

    #[test]
    fn what_a_client_got_is_judged_by_its_content() {
        let digest = "a".repeat(64);
        let version = "0123456789abcdef".repeat(2);
        let denied = Expected::Denied { code: "Forbidden", inner: Some("ForbiddenByRbac") };
        let cases = [
            (Expected::Token, json!({"token": {"appid": "C1", "tid": "t1"}}), true),
            (Expected::Token, json!({"token": {"appid": "c2", "tid": "t1"}}), false),
            (Expected::Token, json!({"token": {"appid": "c1", "tid": "t2"}}), false),
            (Expected::Token, json!({"refused": {"code": "AADSTS700027"}}), false),
            (Expected::Group, json!({"group": {"name": "g1"}}), true),
            (Expected::Group, json!({"group": {"name": "g2"}}), false),
            (
                Expected::Secret,
                json!({"secret": {"name": "s1", "sha256": digest, "version": version}}),
                true,
            ),
            (
                Expected::Secret,
                json!({"secret": {"name": "s2", "sha256": digest, "version": version}}),
                false,
            ),
            (
                Expected::Secret,
                json!({"secret": {"name": "s1", "sha256": "", "version": version}}),
                false,
            ),
            (
                Expected::Secret,
                json!({"secret": {"name": "s1", "sha256": digest, "version": ""}}),
                false,
            ),
            (Expected::Refused("AADSTS700027"), json!({"refused": {"code": "AADSTS700027"}}), true),
            (Expected::Refused("AADSTS700027"), json!({"refused": {"code": "AADSTS70002"}}), false),
            (Expected::Refused("AADSTS700027"), json!({"token": {"appid": "c1"}}), false),
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
            let verdict = judge(expected, &inputs(), &answer);
            assert_eq!(verdict.is_ok(), good, "{expected:?} of {answer}");
        }
    }
}
