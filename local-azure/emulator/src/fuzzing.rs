//! Parsers of untrusted bytes for fuzzing; not part of the public interface.

use lanyard_emulator_state::authorization::{Condition, ConditionContext};
use lanyard_emulator_state::jose::{UnverifiedToken, x5c_certificate};

/// Parses a client assertion and its certificates as the token service does before verification. Returns the
/// number of parsed certificates, or `None` if the text is not an assertion.
pub fn read_client_assertion(text: &str) -> Option<usize> {
    let token = UnverifiedToken::parse(text)?;
    let readable = token.header.x5c.iter().filter_map(|entry| x5c_certificate(entry));
    Some(readable.count())
}

/// Validates the JSON text of an ARM template as a deployment to a resource group does. Returns the number of
/// its resources, or `None` if the template is not valid.
pub fn plan_arm_template(text: &str) -> Option<usize> {
    lanyard_emulator_deployments::plan_template(&serde_json::from_str(text).ok()?)
}

/// Parses a condition and evaluates it for an action at the root scope. Returns whether the condition is met, or
/// `None` if the text is not a condition.
pub fn evaluate_condition(text: &str, action: &str) -> Option<bool> {
    let condition = Condition::parse("2.0", text).ok()?;
    let scope = "/".parse().ok()?;
    let action = &action.to_ascii_lowercase();
    Some(condition.is_met(&ConditionContext { action, scope: &scope, role_assignment: None }))
}
