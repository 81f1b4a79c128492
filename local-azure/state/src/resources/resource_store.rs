//! The ARM resource store: resource groups and resources, as given.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use jiff::Timestamp;
use lanyard_vocabulary::{EntraTenantId, SubscriptionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::cluster_settings::ManagedClusterSettings;
use super::deployment_store::DeploymentStore;
use super::stored_operation::StoredOperation;
use crate::authorization::AccessScope;
use crate::resources::arm_settings::{ArmSettings, ResourceDelays};
use crate::table::{StoredTable, Table};
use crate::tracked::Tracked;

/// The type of a management lock.
pub const LOCK_TYPE: &str = "Microsoft.Authorization/locks";
/// The type of a resource group.
pub const RESOURCE_GROUP_TYPE: &str = "Microsoft.Resources/resourceGroups";

/// The stored resources, by case-insensitive id.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArmResourceStore {
    pub subscriptions: Tracked<Vec<Subscription>>,
    pub settings: Tracked<ArmSettings>,
    /// The operations that clients can poll.
    pub operations: Table<Uuid, StoredOperation>,
    /// The deployment history.
    pub deployments: DeploymentStore,
    pub delays: Tracked<ResourceDelays>,
    /// The deleted resources that lists still contain, by case-insensitive id.
    pub deleted: Table<String, DeletedArmResource>,
    /// By the id of the cluster in lower case.
    pub managed_clusters: Table<String, ManagedClusterSettings>,
    by_id: Table<String, ArmResource>,
    #[serde(skip)]
    index: ResourceIndex,
}

/// What is derived from the resources. Rebuilt when the state is loaded.
#[derive(Debug, Clone, Default)]
struct ResourceIndex {
    /// The ids of the resources that refer to an id, by the key of that id.
    referrers: BTreeMap<String, BTreeSet<String>>,
    /// The keys of the management locks.
    locks: BTreeSet<String>,
}

impl ResourceIndex {
    fn add(&mut self, key: &str, resource: &ArmResource) {
        for target in references(resource) {
            self.referrers.entry(target).or_default().insert(key.to_owned());
        }
        if resource.kind.eq_ignore_ascii_case(LOCK_TYPE) {
            self.locks.insert(key.to_owned());
        }
    }

    fn remove(&mut self, key: &str, resource: &ArmResource) {
        for target in references(resource) {
            if let Some(sources) = self.referrers.get_mut(&target) {
                sources.remove(key);
                if sources.is_empty() {
                    self.referrers.remove(&target);
                }
            }
        }
        self.locks.remove(key);
    }
}

/// The keys of the ids in the body of a resource, except those of the resource itself and its children.
fn references(resource: &ArmResource) -> BTreeSet<String> {
    fn collect(value: &Value, ids: &mut BTreeSet<String>) {
        match value {
            Value::String(text) if is_resource_id(text) => drop(ids.insert(text.to_lowercase())),
            Value::Array(items) => items.iter().for_each(|item| collect(item, ids)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    // The keys of `userAssignedIdentities` are ids.
                    if is_resource_id(name) {
                        ids.insert(name.to_lowercase());
                    }
                    collect(field, ids);
                }
            }
            _ => {}
        }
    }
    let own = lookup_key(&resource.id);
    let mut ids = BTreeSet::new();
    resource.body.values().for_each(|field| collect(field, &mut ids));
    ids.retain(|id| {
        !id.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    ids
}

fn is_resource_id(text: &str) -> bool {
    const PREFIX: &str = "/subscriptions/";
    text.get(..PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(PREFIX))
        && text.contains("/providers/")
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    pub id: SubscriptionId,
    /// The tenant that it trusts.
    pub tenant: EntraTenantId,
    /// The display name.
    pub name: String,
}

/// A resource group or a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResource {
    /// The id in its original case.
    pub id: AccessScope,
    /// The type, such as `Microsoft.Network/virtualNetworks/subnets`.
    pub kind: String,
    /// The fields other than `id`, `name` and `type`, as given.
    pub body: Map<String, Value>,
    /// When it was created.
    pub created: Timestamp,
    /// When it was last written.
    pub changed: Timestamp,
}

impl ArmResource {
    /// A new resource.
    pub fn new(id: AccessScope, kind: &str, body: Value, now: Timestamp) -> Self {
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
    pub fn name(&self) -> &str {
        self.id.as_str().rsplit('/').next().unwrap_or_default()
    }

    /// The resource as in replies.
    pub fn to_json(&self) -> Value {
        let mut wire = self.body.clone();
        wire.insert("id".to_owned(), json!(self.id.as_str()));
        wire.insert("name".to_owned(), json!(self.name()));
        wire.insert("type".to_owned(), json!(self.kind));
        if self.kind.starts_with("Microsoft.Network/") {
            wire.insert("etag".to_owned(), json!(self.etag()));
        }
        if self.kind.eq_ignore_ascii_case("Microsoft.ContainerService/managedClusters") {
            wire.insert("eTag".to_owned(), json!(self.etag()));
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
    pub fn etag(&self) -> String {
        let state = format!("{} {}", self.id.as_str().to_ascii_lowercase(), self.changed);
        format!("W/\"{}\"", Uuid::new_v5(&Uuid::NAMESPACE_URL, state.as_bytes()))
    }

    /// A property, if the resource has it.
    pub fn property(&self, name: &str) -> Option<&Value> {
        self.body.get("properties")?.get(name)
    }
}

/// A deleted resource that lists still contain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeletedArmResource {
    pub(super) resource: ArmResource,
    pub(super) listed_until: Timestamp,
}

fn lookup_key(scope: &AccessScope) -> String {
    scope.as_str().to_ascii_lowercase()
}

impl ArmResourceStore {
    /// Calls `visit` with the name and the content of every stored table.
    pub fn for_each_table(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn StoredTable)) {
        let Self {
            subscriptions,
            settings,
            operations,
            deployments,
            delays,
            deleted,
            managed_clusters,
            by_id,
            index: _,
        } = self;
        visit("resources.subscriptions", subscriptions);
        visit("resources.settings", settings);
        visit("resources.operations", operations);
        visit("resources.deployments", &mut deployments.0);
        visit("resources.delays", delays);
        visit("resources.deleted", deleted);
        visit("resources.managed-clusters", managed_clusters);
        visit("resources", by_id);
    }

    /// Rebuilds the index after the resources were loaded.
    pub(crate) fn rebuild_index(&mut self) {
        self.index = ResourceIndex::default();
        for (key, resource) in self.by_id.iter() {
            self.index.add(key, resource);
        }
    }

    /// The ids of the resources that refer to `id` or to a resource below it. Those below `id` are
    /// omitted.
    pub fn referrers_within(&self, id: &AccessScope) -> impl Iterator<Item = &AccessScope> {
        let (id, start) = (id.clone(), lookup_key(id));
        let is_within = {
            let start = start.clone();
            move |target: &str| {
                target
                    .strip_prefix(&start)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        };
        let end = format!("{start}0"); // `0` follows `/`
        self.index
            .referrers
            .range(start..end)
            .filter(move |(target, _)| is_within(target))
            .flat_map(|(_, sources)| sources)
            .filter_map(|source| self.by_id.get(source))
            .map(|resource| &resource.id)
            .filter(move |source| !id.contains(source))
    }

    /// The management locks.
    pub fn locks(&self) -> impl Iterator<Item = &ArmResource> {
        self.index.locks.iter().filter_map(|key| self.by_id.get(key))
    }

    /// The subscription with this id.
    pub fn subscription(&self, id: &str) -> Option<&Subscription> {
        self.subscriptions.iter().find(|known| known.id.as_str().eq_ignore_ascii_case(id))
    }

    /// Ends the held operations on a resource. Their outcome becomes the provisioning state.
    pub fn end_held_operations(&mut self, id: &AccessScope, now: Timestamp) {
        let held = |operation: &StoredOperation| operation.is_held && operation.resource == *id;
        let held: Vec<_> =
            self.operations.iter().filter(|(_, it)| held(it)).map(|(key, _)| *key).collect();
        for key in held {
            let Some(operation) = self.operations.get_mut(&key) else { continue };
            (operation.is_held, operation.ended) = (false, Some(now));
            let state = operation.rule.outcome.status();
            self.set_provisioning_state(id, state, now);
        }
    }

    /// Sets the provisioning state of a stored resource.
    pub fn set_provisioning_state(&mut self, id: &AccessScope, state: &str, now: Timestamp) {
        let Some(resource) = self.resource_mut(id) else { return };
        resource.changed = now;
        if let Some(Value::Object(properties)) = resource.body.get_mut("properties") {
            properties.insert("provisioningState".to_owned(), json!(state));
        }
    }

    pub fn resource(&self, id: &AccessScope) -> Option<&ArmResource> {
        self.by_id.get(&lookup_key(id))
    }

    /// Stores a resource. An existing one keeps its id, type and creation time.
    pub fn upsert(&mut self, resource: ArmResource) -> UpsertOutcome {
        let key = lookup_key(&resource.id);
        if let Some(stored) = self.by_id.get_mut(&key) {
            self.index.remove(&key, stored);
            stored.body = resource.body;
            stored.changed = resource.changed;
            self.index.add(&key, stored);
            return UpsertOutcome::Replaced;
        }
        self.index.add(&key, &resource);
        self.by_id.insert(key, resource);
        UpsertOutcome::Created
    }

    /// The resource, mutable; the caller must not change the ids to which it refers.
    pub fn resource_mut(&mut self, id: &AccessScope) -> Option<&mut ArmResource> {
        self.by_id.get_mut(&lookup_key(id))
    }

    /// The resources of a type at or below a scope, ordered by id.
    pub fn of_type_within(
        &self,
        scope: &AccessScope,
        kind: &str,
    ) -> impl Iterator<Item = &ArmResource> {
        self.within(scope).filter(move |resource| resource.kind.eq_ignore_ascii_case(kind))
    }

    /// All resources at or below a scope.
    pub fn within<'a>(
        &'a self,
        scope: &AccessScope,
    ) -> impl Iterator<Item = &'a ArmResource> + use<'a> {
        let scope = scope.clone();
        let start = lookup_key(&scope);
        self.by_id
            .range((Bound::Included(start.clone()), Bound::Unbounded))
            .take_while(move |(id, _)| id.starts_with(&start))
            .map(|(_, resource)| resource)
            .filter(move |resource| scope.contains(&resource.id))
    }

    /// Removes a resource with everything below it, and returns the removed resources.
    pub fn remove(&mut self, id: &AccessScope) -> Vec<ArmResource> {
        let doomed: Vec<_> = self.within(id).map(|resource| lookup_key(&resource.id)).collect();
        let mut removed = Vec::new();
        for key in doomed {
            if let Some(resource) = self.by_id.remove(&key) {
                self.index.remove(&key, &resource);
                if resource.kind == RESOURCE_GROUP_TYPE {
                    self.deployments.remove_within(&resource.id);
                }
                removed.push(resource);
            }
        }
        removed
    }
}

/// The result of storing a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpsertOutcome {
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
