//! The desired graph: resources with their dependencies, in an order in which they can be written.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::resource::{DesiredResource, PrincipalReference, ResourceDefinition, ResourceKey};

/// Resources in topological order: each one is behind its dependencies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceGraph {
    resources: Vec<DesiredResource>,
}

/// The resources do not form a graph that can be written. This is a defect of lanyard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceGraphError {
    /// Two resources have the same key.
    #[error("two resources have the key `{0}`")]
    DuplicateKey(ResourceKey),
    /// A dependency is not in the graph.
    #[error("`{key}` depends on `{dependency}`, which is not in the graph")]
    UnknownDependency {
        /// The resource with the dependency.
        key: ResourceKey,
        /// The missing resource.
        dependency: ResourceKey,
    },
    /// Resources depend on each other.
    #[error("`{0}` depends on itself through other resources")]
    Cycle(ResourceKey),
}

impl ResourceGraph {
    /// Orders the resources. Resources without a dependency between them keep their order.
    ///
    /// # Errors
    ///
    /// [`ResourceGraphError`] for a duplicate key, an unknown dependency and a cycle.
    pub fn new(resources: Vec<DesiredResource>) -> Result<Self, ResourceGraphError> {
        let mut keys = BTreeSet::new();
        for resource in &resources {
            if !keys.insert(resource.key.clone()) {
                return Err(ResourceGraphError::DuplicateKey(resource.key.clone()));
            }
        }
        for resource in &resources {
            if let Some(missing) = resource.depends_on.iter().find(|key| !keys.contains(*key)) {
                return Err(ResourceGraphError::UnknownDependency {
                    key: resource.key.clone(),
                    dependency: missing.clone(),
                });
            }
        }
        let mut waiting = resources;
        let mut ordered: Vec<DesiredResource> = Vec::with_capacity(waiting.len());
        let mut placed = BTreeSet::new();
        while !waiting.is_empty() {
            let (ready, blocked): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|resource| resource.depends_on.iter().all(|key| placed.contains(key)));
            if let (true, Some(first)) = (ready.is_empty(), blocked.first()) {
                return Err(ResourceGraphError::Cycle(first.key.clone()));
            }
            placed.extend(ready.iter().map(|resource| resource.key.clone()));
            ordered.extend(ready);
            waiting = blocked;
        }
        Ok(Self { resources: ordered })
    }

    /// The resources, each behind its dependencies.
    pub fn resources(&self) -> &[DesiredResource] {
        &self.resources
    }

    /// The resource with this key.
    pub fn get(&self, key: &ResourceKey) -> Option<&DesiredResource> {
        self.resources.iter().find(|resource| resource.key == *key)
    }

    /// The object ids of the principals that get roles, without those of the graph's own managed identities.
    pub fn principals(&self) -> Vec<Uuid> {
        let definitions = self.resources.iter().map(|resource| &resource.definition);
        let principals = definitions.filter_map(|definition| match definition {
            ResourceDefinition::RoleAssignment { principal, .. } => Some(principal),
            _ => None,
        });
        principals
            .filter_map(|principal| match principal {
                PrincipalReference::ObjectId(id) | PrincipalReference::User(id) => Some(*id),
                PrincipalReference::Property { .. } => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{ResourceDefinition, ResourceStack};

    fn resource(key: &str, depends_on: &[&str]) -> DesiredResource {
        DesiredResource {
            key: ResourceKey::new(key),
            stack: ResourceStack::Infra,
            id: format!("/subscriptions/s/resourceGroups/{key}").parse().unwrap(),
            definition: ResourceDefinition::Existing { api_version: "2021-04-01" },
            depends_on: depends_on.iter().map(|key| ResourceKey::new(*key)).collect(),
        }
    }

    #[test]
    fn resources_follow_their_dependencies() {
        let graph = ResourceGraph::new(vec![
            resource("link", &["zone", "vnet"]),
            resource("vnet", &["group"]),
            resource("zone", &["group"]),
            resource("group", &[]),
        ])
        .unwrap();
        let keys: Vec<_> = graph.resources().iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, ["group", "vnet", "zone", "link"]);
    }

    #[test]
    fn invalid_graphs_are_rejected() {
        let new = |resources| ResourceGraph::new(resources).unwrap_err().to_string();
        assert_eq!(
            new(vec![resource("a", &[]), resource("a", &[])]),
            "two resources have the key `a`"
        );
        assert_eq!(
            new(vec![resource("a", &["b"])]),
            "`a` depends on `b`, which is not in the graph"
        );
        assert_eq!(
            new(vec![resource("a", &["b"]), resource("b", &["a"])]),
            "`a` depends on itself through other resources"
        );
    }
}
