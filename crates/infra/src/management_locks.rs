//! Management locks that prevent planned writes and deletions.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, ManagementLockBody, ManagementLockLevel,
};
use lanyard_changes::{DestroyPlan, ResourceKey};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::quotas::readable;

/// A resource whose write or deletion a management lock prevents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockedResource {
    /// The id of the lock.
    pub(crate) lock: String,
    /// The key of the resource.
    pub(crate) key: ResourceKey,
    /// The id of the resource.
    pub(crate) id: ArmResourceId,
}

/// A planned write or deletion of one resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockableWrite<'a> {
    pub(crate) key: &'a ResourceKey,
    pub(crate) id: &'a ArmResourceId,
    /// Whether the resource is deleted, also if it is created again.
    pub(crate) deletes: bool,
}

/// The deletions of a plan that management locks prevent, one for each lock. Sends GET requests only.
///
/// A lock that the signed-in identity may not read is not found.
///
/// # Errors
///
/// The error of a list that failed for another reason than a missing permission.
pub(crate) async fn find_locked_deletions(
    arm: &ArmClient,
    plan: &DestroyPlan,
) -> Result<Vec<LockedResource>, AzureCallError> {
    let deletions = plan.resources.iter().filter_map(|resource| {
        let (key, id) = (&resource.key, resource.id.arm()?);
        Some(LockableWrite { key, id, deletes: true })
    });
    find_locked_resources(arm, &deletions.collect::<Vec<_>>()).await
}

/// The writes that management locks prevent, one for each lock, as [`find_locked_deletions`].
pub(crate) async fn find_locked_resources(
    arm: &ArmClient,
    writes: &[LockableWrite<'_>],
) -> Result<Vec<LockedResource>, AzureCallError> {
    let locks = list_locks(arm, writes).await?;
    Ok(locked_resources(&locks, writes))
}

/// For each lock that prevents a write: the resource with the lock if the plan writes it, otherwise the first one.
fn locked_resources(locks: &[ScopedLock], writes: &[LockableWrite<'_>]) -> Vec<LockedResource> {
    let locked = locks.iter().filter_map(|lock| {
        let prevented = writes.iter().filter(|write| lock.prevents(write));
        let write = prevented.min_by_key(|write| lock.scope.as_ref() != Some(write.id))?;
        let (key, id) = (write.key.clone(), write.id.clone());
        Some(LockedResource { lock: lock.id.clone(), key, id })
    });
    locked.collect()
}

/// A lock with its scope.
#[derive(Debug)]
struct ScopedLock {
    id: String,
    /// The scope, which the lock protects with everything below it; `None` for a scope above subscriptions.
    scope: Option<ArmResourceId>,
    level: ManagementLockLevel,
}

impl ScopedLock {
    /// The lock of a reply; `None` if its scope is unknown.
    fn parse(body: Value) -> Option<Self> {
        let ManagementLockBody { id, properties } = serde_json::from_value(body).ok()?;
        let id = id?;
        // The id ends with `/providers/Microsoft.Authorization/locks/NAME`.
        let scope = id.rsplitn(5, '/').nth(4).and_then(|scope| scope.parse().ok());
        let is_known = scope.is_some() || is_above_subscriptions(&id);
        is_known.then_some(Self { id, scope, level: properties.level })
    }

    /// A lock `ReadOnly` prevents writes, and any lock prevents deletions. Azure does not delete a resource with a
    /// locked one below it either.
    fn prevents(&self, write: &LockableWrite<'_>) -> bool {
        let is_protected = self.scope.as_ref().is_none_or(|scope| scope.contains(write.id));
        if write.deletes {
            is_protected || self.scope.as_ref().is_some_and(|scope| write.id.contains(scope))
        } else {
            is_protected && self.level == ManagementLockLevel::ReadOnly
        }
    }
}

/// Whether the lock `id` is one of a management group, or of the tenant.
fn is_above_subscriptions(id: &str) -> bool {
    const START: &str = "/providers/";
    id.get(..START.len()).is_some_and(|start| start.eq_ignore_ascii_case(START))
}

/// The locks of the subscriptions of these writes, and of everything in them, sorted by id. If the signed-in identity
/// may not list those of a subscription, the locks of the resource groups of the writes.
async fn list_locks(
    arm: &ArmClient,
    writes: &[LockableWrite<'_>],
) -> Result<Vec<ScopedLock>, AzureCallError> {
    let mut listed = Vec::new();
    for (subscription, groups) in scopes(writes) {
        if let Some(locks) = list_at_scope(arm, &subscription).await? {
            listed.extend(locks);
            continue;
        }
        for group in groups {
            let scope = format!("{subscription}/resourceGroups/{group}");
            listed.extend(list_at_scope(arm, &scope).await?.unwrap_or_default());
        }
    }
    // The list of each group also contains the locks of its subscription.
    let locks = listed.into_iter().filter_map(ScopedLock::parse);
    let locks: BTreeMap<_, _> = locks.map(|lock| (lock.id.to_ascii_lowercase(), lock)).collect();
    Ok(locks.into_values().collect())
}

/// The ids of the subscriptions of these writes, each with the names of their resource groups, in lower case.
fn scopes(writes: &[LockableWrite<'_>]) -> BTreeMap<String, BTreeSet<String>> {
    let mut scopes: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for write in writes {
        let subscription = write.id.subscription().to_ascii_lowercase();
        let groups = scopes.entry(format!("/subscriptions/{subscription}")).or_default();
        groups.extend(write.id.resource_group().map(str::to_ascii_lowercase));
    }
    scopes
}

/// The locks at and below a scope; `None` without the permission to read them, or if the scope does not exist.
async fn list_at_scope(arm: &ArmClient, scope: &str) -> Result<Option<Vec<Value>>, AzureCallError> {
    let path = format!("{scope}/providers/{}", ManagementLockBody::RESOURCE_TYPE);
    readable(arm.list(&path, ManagementLockBody::API_VERSION, &[]).await)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GROUP: &str = "/subscriptions/s/resourceGroups/g";
    const VAULT: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v";

    fn lock(scope: &str, level: &str) -> ScopedLock {
        let id = format!("{scope}/providers/Microsoft.Authorization/locks/l");
        ScopedLock::parse(json!({ "id": id, "properties": { "level": level } })).unwrap()
    }

    /// The keys of the resources that a lock is reported with.
    fn locked(lock: ScopedLock, writes: &[(&str, &str, bool)]) -> Vec<String> {
        let writes: Vec<_> = writes
            .iter()
            .map(|(key, id, deletes)| {
                (ResourceKey::new(*key), id.parse::<ArmResourceId>().unwrap(), *deletes)
            })
            .collect();
        let writes: Vec<_> = writes
            .iter()
            .map(|(key, id, deletes)| LockableWrite { key, id, deletes: *deletes })
            .collect();
        locked_resources(&[lock], &writes).into_iter().map(|it| it.key.to_string()).collect()
    }

    #[test]
    fn lock_prevents_writes_below_it_and_deletions_also_above_it() {
        for (scope, level, id, deletes, expected) in [
            ("/subscriptions/S", "CanNotDelete", GROUP, true, true),
            ("/subscriptions/s", "CanNotDelete", GROUP, false, false),
            ("/subscriptions/s", "ReadOnly", GROUP, false, true),
            (GROUP, "CanNotDelete", VAULT, true, true),
            (VAULT, "CanNotDelete", GROUP, true, true),
            (VAULT, "ReadOnly", GROUP, false, false),
            ("/subscriptions/s/resourceGroups/other", "ReadOnly", VAULT, true, false),
            // The scope is a management group.
            ("/providers/Microsoft.Management/managementGroups/m", "ReadOnly", VAULT, false, true),
        ] {
            let found = locked(lock(scope, level), &[("key", id, deletes)]);
            assert_eq!(!found.is_empty(), expected, "{scope} {level} {id} {deletes}");
        }
    }

    #[test]
    fn lock_with_an_unknown_scope_is_ignored() {
        for (scope, is_known) in [
            ("/providers/Microsoft.Management/managementGroups/m", true),
            ("/subscriptions/s", true),
            ("/subscriptions", false),
            ("/scopes/s", false),
        ] {
            let id = format!("{scope}/providers/Microsoft.Authorization/locks/l");
            let lock =
                ScopedLock::parse(json!({ "id": id, "properties": { "level": "ReadOnly" } }));
            assert_eq!(lock.is_some(), is_known, "{scope}");
        }
        let short = json!({ "id": "locks/l", "properties": { "level": "ReadOnly" } });
        assert!(ScopedLock::parse(short).is_none());
    }

    #[test]
    fn lock_is_reported_with_its_own_resource() {
        let role = format!("{VAULT}/providers/Microsoft.Authorization/roleAssignments/a");
        let removal = [("role", &*role, true), ("group", GROUP, true), ("vault", VAULT, true)];
        assert_eq!(locked(lock(VAULT, "CanNotDelete"), &removal), ["vault"]);
        assert_eq!(locked(lock(GROUP, "ReadOnly"), &removal), ["group"]);
        assert_eq!(locked(lock("/subscriptions/s", "CanNotDelete"), &removal), ["role"]);
    }

    #[test]
    fn locks_are_listed_once_for_each_subscription() {
        let ids = [VAULT, "/subscriptions/S/resourceGroups/H", "/subscriptions/dns"]
            .map(|id| id.parse::<ArmResourceId>().unwrap());
        let key = ResourceKey::new("key");
        let writes: Vec<_> =
            ids.iter().map(|id| LockableWrite { key: &key, id, deletes: true }).collect();
        let expected = [("/subscriptions/dns", vec![]), ("/subscriptions/s", vec!["g", "h"])];
        let scopes = scopes(&writes);
        let found = scopes.iter().map(|(scope, groups)| {
            (scope.as_str(), groups.iter().map(String::as_str).collect::<Vec<_>>())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
