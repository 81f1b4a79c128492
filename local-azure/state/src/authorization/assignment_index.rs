//! Indexes of assignments by scope and by principal.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use lanyard_vocabulary::RoleDefinitionId;
use uuid::Uuid;

use super::access_scope::AccessScope;
use super::role_assignment::RoleAssignment;

/// The keys of assignments by scope.
///
/// Looking up a scope is logarithmic in the number of scopes; the scopes below a scope are a range.
#[derive(Debug, Clone, Default)]
pub(super) struct ScopeIndex(BTreeMap<Arc<str>, BTreeSet<Uuid>>);

impl ScopeIndex {
    pub(super) fn insert(&mut self, scope: &AccessScope, key: Uuid) {
        self.0.entry(Arc::clone(scope.index_key())).or_default().insert(key);
    }

    pub(super) fn remove(&mut self, scope: &AccessScope, key: Uuid) {
        if let Some(keys) = self.0.get_mut(scope.index_key()) {
            keys.remove(&key);
            if keys.is_empty() {
                self.0.remove(scope.index_key());
            }
        }
    }

    /// The keys of the assignments on a scope, which is given in lower case.
    pub(super) fn at(&self, scope: &str) -> impl Iterator<Item = Uuid> {
        self.0.get(scope).into_iter().flatten().copied()
    }

    /// The keys of the assignments below `scope`, without those on `scope` itself.
    pub(super) fn below(&self, scope: &AccessScope) -> impl Iterator<Item = Uuid> {
        // `0` is the character after `/`.
        let (first, end) = (format!("{}/", scope.index_key()), format!("{}0", scope.index_key()));
        let bounds = (Bound::Included(first.as_str()), Bound::Excluded(end.as_str()));
        self.0.range::<str, _>(bounds).flat_map(|(_, keys)| keys).copied()
    }
}

/// The keys of role assignments by scope, by principal, by role and by subscription.
#[derive(Debug, Clone, Default)]
pub(super) struct AssignmentIndex {
    by_scope: ScopeIndex,
    by_principal: HashMap<Uuid, ScopeIndex>,
    count_by_role: HashMap<Uuid, usize>,
    /// By subscription id in lower case.
    count_by_subscription: HashMap<String, usize>,
}

impl AssignmentIndex {
    pub(super) fn insert(&mut self, key: Uuid, assignment: &RoleAssignment) {
        self.by_scope.insert(&assignment.scope, key);
        self.by_principal
            .entry(assignment.principal_id)
            .or_default()
            .insert(&assignment.scope, key);
        *self.count_by_role.entry(assignment.role.0).or_default() += 1;
        if let Some(id) = assignment.scope.subscription_id() {
            *self.count_by_subscription.entry(id.to_ascii_lowercase()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, key: Uuid, assignment: &RoleAssignment) {
        self.by_scope.remove(&assignment.scope, key);
        if let Some(scopes) = self.by_principal.get_mut(&assignment.principal_id) {
            scopes.remove(&assignment.scope, key);
            if scopes.0.is_empty() {
                self.by_principal.remove(&assignment.principal_id);
            }
        }
        decrement(&mut self.count_by_role, &assignment.role.0);
        if let Some(id) = assignment.scope.subscription_id() {
            decrement(&mut self.count_by_subscription, &id.to_ascii_lowercase());
        }
    }

    pub(super) fn by_scope(&self) -> &ScopeIndex {
        &self.by_scope
    }

    /// The assignments of a principal, by scope; `None` if it has none.
    pub(super) fn of_principal(&self, principal_id: Uuid) -> Option<&ScopeIndex> {
        self.by_principal.get(&principal_id)
    }

    pub(super) fn count_of_role(&self, role: RoleDefinitionId) -> usize {
        self.count_by_role.get(&role.0).copied().unwrap_or(0)
    }

    pub(super) fn count_in_subscription(&self, id: &str) -> usize {
        self.count_by_subscription.get(&id.to_ascii_lowercase()).copied().unwrap_or(0)
    }
}

impl ScopeIndex {
    /// Every key, ordered by scope.
    pub(super) fn all(&self) -> impl Iterator<Item = Uuid> {
        self.0.values().flatten().copied()
    }
}

fn decrement<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(text: &str) -> AccessScope {
        text.parse().unwrap()
    }

    fn path() -> impl Strategy<Value = String> {
        prop::collection::vec("[aB0-]{1,2}", 0..4).prop_map(|path| format!("/{}", path.join("/")))
    }

    proptest! {
        #[test]
        fn index_finds_what_a_scan_finds(
            edits in prop::collection::vec((path(), 0_u128..6, any::<bool>()), 0..30), at in path(),
        ) {
            let mut index = ScopeIndex::default();
            let mut stored = BTreeSet::new();
            for (place, key, insert) in edits {
                let (place, key) = (scope(&place), Uuid::from_u128(key));
                let entry = (place.index_key().to_string(), key);
                if insert {
                    index.insert(&place, key);
                    stored.insert(entry);
                } else {
                    index.remove(&place, key);
                    stored.remove(&entry);
                }
            }
            let at = scope(&at);
            let scan = |within: &dyn Fn(&AccessScope) -> bool| -> Vec<_> {
                let mut keys: Vec<_> = stored
                    .iter()
                    .filter(|(place, _)| within(&scope(if place.is_empty() { "/" } else { place })))
                    .map(|(_, key)| *key)
                    .collect();
                keys.sort_unstable();
                keys
            };
            let sorted = |keys: &mut dyn Iterator<Item = Uuid>| -> Vec<_> {
                let mut keys: Vec<_> = keys.collect();
                keys.sort_unstable();
                keys
            };
            prop_assert_eq!(sorted(&mut index.at(at.index_key())), scan(&|place| *place == at));
            prop_assert_eq!(
                sorted(&mut index.below(&at)),
                scan(&|place| *place != at && at.contains(place))
            );
            prop_assert_eq!(sorted(&mut index.all()), scan(&|_| true));
        }
    }
}
