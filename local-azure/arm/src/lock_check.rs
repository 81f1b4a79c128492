//! The check that no management lock forbids a write or a deletion.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, LOCK_TYPE};
use serde_json::Value;

use super::error::conflict;

/// An operation that a lock can forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockedOperation {
    Write,
    Delete,
}

/// Rejects a write or a deletion that a lock on `scope` or above it forbids, and a deletion that a
/// lock below it forbids.
pub(super) fn require_unlocked(
    call: &OperationContext<'_>,
    action: &str,
    scope: &AccessScope,
) -> Result<(), ServiceReply> {
    let operation = match action.rsplit('/').next() {
        Some("write") => LockedOperation::Write,
        Some("delete") => LockedOperation::Delete,
        _ => return Ok(()),
    };
    if action.starts_with(LOCK_TYPE) {
        return Ok(());
    }
    let blocking: Vec<_> = call
        .azure()
        .resources
        .locks()
        .filter(|lock| {
            let at = locked_scope(lock);
            at.contains(scope) || (operation == LockedOperation::Delete && scope.contains(&at))
        })
        .filter(|lock| forbids(lock, operation))
        .map(|lock| locked_scope(lock).to_string())
        .collect();
    if blocking.is_empty() {
        return Ok(());
    }
    let operation = match operation {
        LockedOperation::Write => "write",
        LockedOperation::Delete => "delete",
    };
    Err(conflict(
        "ScopeLocked",
        format!(
            "The scope '{scope}' cannot perform {operation} operation because following scope(s) are \
             locked: '{}'. Please remove the lock and try again.",
            blocking.join("', '")
        ),
    ))
}

/// Returns the scope that a lock protects: the id of the lock without its last segments.
pub(super) fn locked_scope(lock: &ArmResource) -> AccessScope {
    let id = lock.id.as_str();
    let scope = id.rsplitn(5, '/').nth(4).unwrap_or_default();
    scope.parse().unwrap_or_else(|_| AccessScope::root())
}

fn forbids(lock: &ArmResource, operation: LockedOperation) -> bool {
    match lock.property("level").and_then(Value::as_str).unwrap_or_default() {
        level if level.eq_ignore_ascii_case("ReadOnly") => true,
        level if level.eq_ignore_ascii_case("CanNotDelete") => operation == LockedOperation::Delete,
        _ => false,
    }
}
