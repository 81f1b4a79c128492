//! Reads lists of role assignments. What cannot be read belongs to another client, and is named.

use std::borrow::Cow;

use lanyard_azure::AssignedRole;
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

/// A listed role assignment cannot be read, so nothing shows to whom it belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the role assignment `{id}` cannot be read")]
pub struct UnreadableRoleAssignment {
    /// The id as Azure returned it, which may be empty.
    pub id: String,
}

impl ErrorHint for UnreadableRoleAssignment {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(
            "find it with `az role assignment list --all`, and ask its owner what it is for".into(),
        )
    }
}

/// The role assignments at `scope` and below it, with their ids. A list also contains those that the scope inherits,
/// for example from a management group; they are left out.
pub(crate) fn assignments_within(
    scope: &ArmResourceId,
    listed: Vec<Value>,
) -> Result<Vec<(ArmResourceId, AssignedRole)>, UnreadableRoleAssignment> {
    listed.into_iter().filter_map(|body| assignment_within(scope, body).transpose()).collect()
}

fn assignment_within(
    scope: &ArmResourceId,
    body: Value,
) -> Result<Option<(ArmResourceId, AssignedRole)>, UnreadableRoleAssignment> {
    let text = body["id"].as_str().unwrap_or_default().to_owned();
    let prefix = text.get(..scope.as_str().len()).unwrap_or_default();
    match text.parse::<ArmResourceId>() {
        Ok(id) if scope.contains(&id) => match serde_json::from_value(body) {
            Ok(assignment) => Ok(Some((id, assignment))),
            Err(_shape) => Err(UnreadableRoleAssignment { id: text }),
        },
        Err(_) if text.is_empty() || prefix.eq_ignore_ascii_case(scope.as_str()) => {
            Err(UnreadableRoleAssignment { id: text })
        }
        Ok(_) | Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const SCOPE: &str = "/subscriptions/s";
    const ASSIGNMENTS: &str = "providers/Microsoft.Authorization/roleAssignments";

    fn body(id: &str) -> Value {
        let properties =
            json!({ "scope": "/", "principalId": Uuid::nil(), "roleDefinitionId": "/r" });
        json!({ "id": id, "name": "a", "properties": properties })
    }

    #[test]
    fn inherited_assignments_are_left_out_also_if_they_cannot_be_read() {
        let scope = SCOPE.parse().unwrap();
        let group = "/providers/Microsoft.Management/managementGroups/m";
        let own = [format!("{SCOPE}/{ASSIGNMENTS}/a"), format!("/Subscriptions/S/{ASSIGNMENTS}/b")];
        let mut listed: Vec<_> = own.iter().map(|id| body(id)).collect();
        listed.push(body(&format!("{group}/{ASSIGNMENTS}/c")));
        listed.push(json!({ "id": format!("{group}/{ASSIGNMENTS}/d") }));
        let found = assignments_within(&scope, listed).unwrap();
        assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), own);
    }

    #[test]
    fn assignment_within_the_scope_that_cannot_be_read_is_named() {
        let scope = SCOPE.parse().unwrap();
        let at_alert = format!("{SCOPE}/resourceGroups/g/providers/N/actionGroups/on-call #1");
        let readable = format!("{SCOPE}/{ASSIGNMENTS}/a");
        for (unreadable, id) in [
            (body(&format!("{at_alert}/{ASSIGNMENTS}/a")), format!("{at_alert}/{ASSIGNMENTS}/a")),
            (json!({ "id": readable, "name": "a" }), readable.clone()),
            (json!({ "name": "a" }), String::new()),
        ] {
            let error = assignments_within(&scope, vec![body(&readable), unreadable]).unwrap_err();
            assert_eq!(error.to_string(), format!("the role assignment `{id}` cannot be read"));
            assert!(!error.hint().unwrap().contains("delete"));
        }
    }
}
