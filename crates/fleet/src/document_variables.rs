//! Variables of the environment in a `fleet.yaml`: `${env.NAME}`.

use serde_json::Value;

const BEGIN: &str = "${env.";

/// Words in the names of variables that contain secrets. A fleet file goes to journals, plans and logs.
const SECRET_WORDS: [&str; 5] = ["SECRET", "PASSWORD", "TOKEN", "PRIVATE", "CREDENTIAL"];

/// Replaces the variables in all texts. Returns the problems, one for each variable without a value.
pub(crate) fn resolve_variables(
    document: &mut Value,
    variable: &impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    visit(document, variable, "", &mut problems);
    problems
}

fn visit(
    value: &mut Value,
    variable: &impl Fn(&str) -> Option<String>,
    path: &str,
    problems: &mut Vec<String>,
) {
    match value {
        Value::String(text) => match resolve_text(text, variable) {
            Ok(resolved) => *text = resolved,
            Err(problem) => problems.push(format!("`{path}` {problem}")),
        },
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                visit(item, variable, &format!("{path}[{index}]"), problems);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                visit(value, variable, &path, problems);
            }
        }
        _ => {}
    }
}

fn resolve_text(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut resolved = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!("contains `{BEGIN}` without `}}`"));
        };
        let is_secret = SECRET_WORDS.iter().any(|word| name.to_ascii_uppercase().contains(word));
        if is_secret {
            return Err(format!(
                "contains the variable `{name}`, whose name is that of a secret; store secrets in the vault"
            ));
        }
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
            return Err(format!("contains the variable `{name}`, which is not set"));
        };
        resolved.push_str(before);
        resolved.push_str(&value);
        rest = after;
    }
    resolved.push_str(rest);
    Ok(resolved)
}
