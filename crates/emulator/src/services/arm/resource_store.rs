//! The ARM resource store: resource groups and resources, as given.

use std::ops::Bound;

use jiff::Timestamp;
use lanyard_vocabulary::{EntraTenantId, SubscriptionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::authorization::AccessScope;
use crate::table::{StoredTable, Table};
use crate::tracked::Tracked;

/// The type of a resource group.
pub(crate) const RESOURCE_GROUP_TYPE: &str = "Microsoft.Resources/resourceGroups";

/// The stored resources, by case-insensitive id.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ArmResourceStore {
    pub(crate) subscriptions: Tracked<Vec<Subscription>>,
    by_id: Table<String, ArmResource>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscription {
    pub(crate) id: SubscriptionId,
    /// The tenant that it trusts.
    pub(crate) tenant: EntraTenantId,
    /// The display name.
    pub(crate) name: String,
}

/// A resource group or a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArmResource {
    /// The id in its original case.
    pub(crate) id: AccessScope,
    /// The type, such as `Microsoft.Network/virtualNetworks/subnets`.
    pub(crate) kind: String,
    /// The fields other than `id`, `name` and `type`, as given.
    pub(crate) body: Map<String, Value>,
    /// When it was created.
    pub(crate) created: Timestamp,
    /// When it was last written.
    pub(crate) changed: Timestamp,
}

impl ArmResource {
    /// A new resource.
    pub(crate) fn new(id: AccessScope, kind: &str, body: Value, now: Timestamp) -> Self {
        let Value::Object(body) = body else {
            return Self {
                id,
                kind: kind.to_owned(),
                body: Map::new(),
                created: now,
                changed: now,
            };
        };
        Self { id, kind: kind.to_owned(), body, created: now, changed: now }
    }

    /// The last segment of the id.
    pub(crate) fn name(&self) -> &str {
        self.id.as_str().rsplit('/').next().unwrap_or_default()
    }

    /// The resource as in replies.
    pub(crate) fn to_json(&self) -> Value {
        let mut wire = self.body.clone();
        wire.insert("id".to_owned(), json!(self.id.as_str()));
        wire.insert("name".to_owned(), json!(self.name()));
        wire.insert("type".to_owned(), json!(self.kind));
        if self.kind.starts_with("Microsoft.Network/") {
            wire.insert("etag".to_owned(), json!(self.etag()));
        }
        if self.kind != RESOURCE_GROUP_TYPE {
            wire.entry("systemData").or_insert_with(|| {
                json!({
                    "createdAt": self.created.to_string(),
                    "lastModifiedAt": self.changed.to_string(),
                })
            });
        }
        Value::Object(wire)
    }

    /// The entity tag, which changes with every write.
    pub(crate) fn etag(&self) -> String {
        let state = format!("{} {}", self.id.as_str().to_ascii_lowercase(), self.changed);
        format!("W/\"{}\"", Uuid::new_v5(&Uuid::NAMESPACE_URL, state.as_bytes()))
    }

    /// A property, if the resource has it.
    pub(crate) fn property(&self, name: &str) -> Option<&Value> {
        self.body.get("properties")?.get(name)
    }
}

fn lookup_key(scope: &AccessScope) -> String {
    scope.as_str().to_ascii_lowercase()
}

impl ArmResourceStore {
    /// Calls `visit` with the name and the content of every stored table.
    pub(crate) fn for_each_table(
        &mut self,
        visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable),
    ) {
        let Self { subscriptions, by_id } = self;
        visit("resources.subscriptions", subscriptions);
        visit("resources", by_id);
    }

    /// The subscription with this id.
    pub(crate) fn subscription(&self, id: &str) -> Option<&Subscription> {
        self.subscriptions.iter().find(|known| known.id.as_str().eq_ignore_ascii_case(id))
    }

    pub(crate) fn resource(&self, id: &AccessScope) -> Option<&ArmResource> {
        self.by_id.get(&lookup_key(id))
    }

    /// Stores a resource. An existing one keeps its id, type and creation time.
    pub(crate) fn upsert(&mut self, resource: ArmResource) -> UpsertOutcome {
        if let Some(held) = self.by_id.get_mut(&lookup_key(&resource.id)) {
            held.body = resource.body;
            held.changed = resource.changed;
            return UpsertOutcome::Replaced;
        }
        self.by_id.insert(lookup_key(&resource.id), resource);
        UpsertOutcome::Created
    }

    /// Like [`Self::resource`], mutable.
    pub(crate) fn resource_mut(&mut self, id: &AccessScope) -> Option<&mut ArmResource> {
        self.by_id.get_mut(&lookup_key(id))
    }

    /// The resources of a type at or below a scope, ordered by id.
    pub(crate) fn of_type_within(
        &self,
        scope: &AccessScope,
        kind: &str,
    ) -> impl Iterator<Item = &ArmResource> {
        self.within(scope).filter(move |resource| resource.kind.eq_ignore_ascii_case(kind))
    }

    /// All resources at or below a scope.
    pub(crate) fn within(&self, scope: &AccessScope) -> impl Iterator<Item = &ArmResource> {
        let scope = scope.clone();
        let start = lookup_key(&scope);
        self.by_id
            .range((Bound::Included(start.clone()), Bound::Unbounded))
            .take_while(move |(id, _)| id.starts_with(&start))
            .map(|(_, resource)| resource)
            .filter(move |resource| scope.contains(&resource.id))
    }

    /// Removes a resource with everything below it, and returns the removed resources.
    pub(crate) fn remove(&mut self, id: &AccessScope) -> Vec<ArmResource> {
        let doomed: Vec<_> = self.within(id).map(|resource| lookup_key(&resource.id)).collect();
        doomed.iter().filter_map(|id| self.by_id.remove(id)).collect()
    }
}

/// The result of storing a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpsertOutcome {
    /// The resource was created.
    Created,
    /// The resource replaced an existing one.
    Replaced,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> AccessScope {
        text.parse().unwrap()
    }

    fn upsert_resource(resources: &mut ArmResourceStore, id: &str, kind: &str) -> UpsertOutcome {
        resources.upsert(ArmResource::new(scope(id), kind, json!({}), Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn resource_id_keeps_its_case_and_matches_any_case() {
        let mut resources = ArmResourceStore::default();
        assert_eq!(
            upsert_resource(
                &mut resources,
                "/subscriptions/s/resourceGroups/RG",
                RESOURCE_GROUP_TYPE
            ),
            UpsertOutcome::Created
        );
        assert_eq!(
            upsert_resource(
                &mut resources,
                "/subscriptions/s/resourcegroups/rg",
                RESOURCE_GROUP_TYPE
            ),
            UpsertOutcome::Replaced
        );
        let found = resources.resource(&scope("/SUBSCRIPTIONS/s/resourceGroups/rg")).unwrap();
        assert_eq!(found.id.as_str(), "/subscriptions/s/resourceGroups/RG");
        assert_eq!(found.name(), "RG");
    }

    #[test]
    fn removing_a_group_removes_only_its_own_resources() {
        let mut resources = ArmResourceStore::default();
        for group in ["rg1", "rg10", "rg1-x"] {
            let id = format!("/subscriptions/s/resourceGroups/{group}");
            upsert_resource(&mut resources, &id, RESOURCE_GROUP_TYPE);
            upsert_resource(&mut resources, &format!("{id}/providers/A.B/c/d"), "A.B/c");
        }
        assert_eq!(resources.remove(&scope("/subscriptions/s/resourceGroups/RG1")).len(), 2);
        let left: Vec<_> = resources
            .of_type_within(&scope("/subscriptions/s"), "a.b/C")
            .map(|r| r.id.as_str())
            .collect();
        assert_eq!(
            left,
            [
                "/subscriptions/s/resourceGroups/rg1-x/providers/A.B/c/d",
                "/subscriptions/s/resourceGroups/rg10/providers/A.B/c/d"
            ]
        );
    }
}
