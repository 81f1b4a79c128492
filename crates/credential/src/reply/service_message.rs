//! The error messages of Azure services. A message about a missing permission begins with the action and the
//! scope.

use crate::transport::redact;

/// An error message of a service as one line of at most 2,000 bytes, with everything redacted that looks like a
/// token, and with the given secrets of the request. A resource id has at most 1,100 characters, so the scope of a
/// missing permission is complete.
pub fn service_message(text: &str, secrets: &[&str]) -> String {
    let line = redact::excerpt_of_length(text, MAX_MESSAGE_LENGTH);
    let Some(MissingPermission { action, scope, caller }) = missing_permission(&line) else {
        return redact::excerpt_of_length(&redact::redact(text, secrets), MAX_MESSAGE_LENGTH);
    };
    let (action, caller) = (redact::redact(action, secrets), redact::redact(&caller, secrets));
    let scope = redact::redact_resource_id(scope, secrets);
    format!("action '{action}' at '{scope}' is not authorized for {caller}")
}

/// The longest message, in bytes.
pub(crate) const MAX_MESSAGE_LENGTH: usize = 2_000;

/// The content of a message about a missing permission, without the rest: that changes take time is in our hints, and
/// the values of an absent assignment say nothing.
struct MissingPermission<'a> {
    action: &'a str,
    scope: &'a str,
    caller: String,
}

fn missing_permission(line: &str) -> Option<MissingPermission<'_>> {
    vault_permission(line).or_else(|| arm_permission(line))
}

/// `Caller is not authorized … Caller: appid=…;oid=… Action: '…' Resource: '…' Assignment: (not found) …`
fn vault_permission(line: &str) -> Option<MissingPermission<'_>> {
    let action = quoted_after(line, "Action: '")?;
    let scope = quoted_after(line, "Resource: '")?;
    let (_, caller) = line.split_once("Caller: ")?;
    let (caller, _) = caller.split_once(" Action: ")?;
    // The local Azure adds the nearest assignment.
    let (_, assignment) = line.split_once("Assignment: (not found)")?;
    let (assignment, _) = assignment.split_once("DenyAssignmentId: ")?;
    let caller = match assignment.trim() {
        "" => caller.to_owned(),
        nearest => format!("{caller}; {nearest}"),
    };
    // A deny assignment is a reason of its own.
    let is_denied = !line.contains("DenyAssignmentId: null");
    (!is_denied).then_some(MissingPermission { action, scope, caller })
}

/// `The client '…' with object id '…' does not have authorization to perform action '…' over scope '…' …`
fn arm_permission(line: &str) -> Option<MissingPermission<'_>> {
    let (client, rest) = line.split_once(" does not have authorization")?;
    let action = quoted_after(rest, " perform action '")?;
    let scope = quoted_after(rest, " over scope '")?;
    let client = client.strip_prefix("The ").unwrap_or(client);
    let condition = if rest.contains("ABAC condition") {
        ", or a condition of its role is not met,"
    } else {
        ","
    };
    let caller = format!("{client}{condition} or the scope is invalid");
    Some(MissingPermission { action, scope, caller })
}

/// The text between a marker and the next quotation mark.
fn quoted_after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let (_, quoted) = text.split_once(marker)?;
    quoted.split_once('\'').map(|(quoted, _)| quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "11111111-2222-4333-8444-555555555555";
    const OBJECT: &str = "66666666-7777-4888-8999-aaaaaaaaaaaa";

    fn scope() -> String {
        let group = format!("harbour-{}", "x".repeat(82));
        format!(
            "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/{group}/providers/\
             Microsoft.KeyVault/vaults/harbour-identities/secrets/{}",
            "s".repeat(127)
        )
    }

    #[test]
    fn message_of_a_vault_begins_with_action_and_scope() {
        let (scope, action) = (scope(), "Microsoft.KeyVault/vaults/secrets/getSecret/action");
        let caller = format!("appid={CLIENT};oid={OBJECT};iss=https://sts.windows.net/t/");
        let message = format!(
            "Caller is not authorized to perform action on resource.\r\nIf role assignments, deny assignments or \
             role definitions were changed recently, please observe propagation time.\r\nCaller: {caller}\r\n\
             Action: '{action}'\r\nResource: '{scope}'\r\nAssignment: (not found)\r\nDenyAssignmentId: null\r\n\
             DecisionReason: null \r\nVault: harbour-identities;location=westeurope\r\n"
        );
        assert_eq!(
            service_message(&message, &[]),
            format!("action '{action}' at '{scope}' is not authorized for {caller}")
        );
        let nearest = message.replace("(not found)", "(not found) (the role is assigned at '/s')");
        let expected = format!("{caller}; (the role is assigned at '/s')");
        assert!(service_message(&nearest, &[]).ends_with(&expected));
        let denied = message.replace("DenyAssignmentId: null", "DenyAssignmentId: 'd'");
        assert!(service_message(&denied, &[]).contains("DenyAssignmentId: 'd'"));
    }

    #[test]
    fn message_of_the_resource_manager_begins_with_action_and_scope() {
        let (scope, action) = (scope(), "Microsoft.Network/virtualNetworks/read");
        let client = format!("client '{CLIENT}' with object id '{OBJECT}'");
        let message = |condition: &str| {
            format!(
                "The {client} does not have authorization{condition} to perform action '{action}' over scope \
                 '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
            )
        };
        let expected = format!("action '{action}' at '{scope}' is not authorized for {client}");
        assert_eq!(
            service_message(&message(""), &[]),
            format!("{expected}, or the scope is invalid")
        );
        assert_eq!(
            service_message(&message(" or an ABAC condition not fulfilled"), &[]),
            format!("{expected}, or a condition of its role is not met, or the scope is invalid")
        );
    }

    #[test]
    fn token_in_the_scope_is_redacted() {
        let token = "eyJhbGciOiJQUzI1NiJ9.eyJpc3MiOiJ4In0.c2lnbmF0dXJl";
        let message = |scope: &str| {
            format!(
                "The client 'c' with object id 'o' does not have authorization to perform action 'a' over scope \
                 '{scope}' or the scope is invalid."
            )
        };
        let shown = service_message(&message(&format!("/subscriptions/{token}")), &[]);
        assert!(!shown.contains("eyJ") && !shown.contains("c2ln"), "{shown}");
        let shown = service_message(&message("/subscriptions/password-1"), &["password-1"]);
        assert!(!shown.contains("password-1"), "{shown}");
    }

    #[test]
    fn other_messages_are_one_line_without_secrets() {
        assert_eq!(service_message("The vault\r\n is\tgone.", &[]), "The vault is gone.");
        let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        assert_eq!(service_message(&format!("key {secret}"), &[secret]), "key [redacted]");
        assert!(
            service_message(&"word ".repeat(2_000), &[]).len() <= MAX_MESSAGE_LENGTH + "…".len()
        );
    }
}
