//! The live resources of a graph.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::creation_evidence::CreationMark;
use crate::resource_id::ResourceId;
use crate::resource_key::ResourceKey;

/// The live resources of a graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveState {
    resources: BTreeMap<ResourceKey, LiveResource>,
}

/// A live resource.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveResource {
    /// The id; it can differ from the desired one for resources that a service compares by content.
    pub id: ResourceId,
    /// The resource as the service returned it.
    pub body: Value,
    /// Who created it, and when.
    pub creation: CreationMark,
    /// Whether lanyard sets its ownership tags when it creates a resource of this type.
    pub has_tags: bool,
}

impl LiveState {
    /// The live resource with this key; `None` if it does not exist.
    pub fn get(&self, key: &ResourceKey) -> Option<&LiveResource> {
        self.resources.get(key)
    }

    /// Records the result of a read or a write.
    pub fn set(&mut self, key: ResourceKey, resource: Option<LiveResource>) {
        match resource {
            Some(resource) => drop(self.resources.insert(key, resource)),
            None => drop(self.resources.remove(&key)),
        }
    }
}
