//! Management locks: `Microsoft.Authorization/locks`.
//!
//! A lock at a scope applies to everything below it. Reference: "Lock your resources to protect your
//! infrastructure".

use serde_json::Value;

use super::error::conflict;
use super::resource_store::ArmResource;
use crate::authorization::AccessScope;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

pub(super) const LOCK_TYPE: &str = "Microsoft.Authorization/locks";

/// What a lock can forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockedAction {
    Write,
    Delete,
}

/// Rejects an action that a lock at `scope`, above it, or for a deletion also below it, forbids.
pub(super) fn require_unlocked(
    call: &OperationContext<'_>,
    scope: &AccessScope,
    action: LockedAction,
) -> Result<(), ServiceReply> {
    let resources = &call.world().resources;
    let blocking: Vec<_> = resources
        .locks()
        .filter(|lock| {
            let at = locked_scope(lock);
            at.contains(scope) || (action == LockedAction::Delete && scope.contains(&at))
        })
        .filter(|lock| forbids(lock, action))
        .map(|lock| locked_scope(lock).to_string())
        .collect();
    if blocking.is_empty() {
        return Ok(());
    }
    let operation = match action {
        LockedAction::Write => "write",
        LockedAction::Delete => "delete",
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

/// The scope that a lock protects: its id without the segments of the lock.
fn locked_scope(lock: &ArmResource) -> AccessScope {
    let id = lock.id.as_str();
    let scope = id.rsplitn(5, '/').nth(4).unwrap_or_default();
    scope.parse().unwrap_or_else(|_| AccessScope::root())
}

fn forbids(lock: &ArmResource, action: LockedAction) -> bool {
    match lock.property("level").and_then(Value::as_str).unwrap_or_default() {
        level if level.eq_ignore_ascii_case("ReadOnly") => true,
        level if level.eq_ignore_ascii_case("CanNotDelete") => action == LockedAction::Delete,
        _ => false,
    }
}
