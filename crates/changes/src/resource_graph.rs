//! The desired graph: resources with their dependencies, in an order in which they can be written.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph_run::sort_by_dependencies;
use crate::resource_id::ResourceId;
use crate::resource_key::{ResourceKey, StackName};

/// A resource that the cluster needs.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredResource<E> {
    /// The key within the cluster.
    pub key: ResourceKey,
    /// The stack that the resource belongs to.
    pub stack: StackName,
    /// The id of the resource.
    pub id: ResourceId,
    /// What the resource looks like.
    pub effect: E,
    /// The resources that must exist before this one is written.
    pub depends_on: Vec<ResourceKey>,
}

/// Resources in topological order: each one is behind its dependencies.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceGraph<E> {
    resources: Vec<DesiredResource<E>>,
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

impl<E> ResourceGraph<E> {
    /// Orders the resources. Resources without a dependency between them keep their order.
    ///
    /// # Errors
    ///
    /// [`ResourceGraphError`] for a duplicate key, an unknown dependency and a cycle.
    pub fn new(resources: Vec<DesiredResource<E>>) -> Result<Self, ResourceGraphError> {
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
        let resources = sort_by_dependencies(resources, |it| &it.key, |it| &it.depends_on);
        let mut placed = BTreeSet::new();
        for resource in &resources {
            if resource.depends_on.iter().any(|key| !placed.contains(key)) {
                return Err(ResourceGraphError::Cycle(resource.key.clone()));
            }
            placed.insert(&resource.key);
        }
        Ok(Self { resources })
    }

    /// The resources, each behind its dependencies.
    pub fn resources(&self) -> &[DesiredResource<E>] {
        &self.resources
    }

    /// The resource with this key.
    pub fn get(&self, key: &ResourceKey) -> Option<&DesiredResource<E>> {
        self.resources.iter().find(|resource| resource.key == *key)
    }

    /// The names of the stacks that the resources belong to.
    pub fn stacks(&self) -> Vec<StackName> {
        let stacks: BTreeSet<_> = self.resources.iter().map(|it| it.stack.clone()).collect();
        stacks.into_iter().collect()
    }

    /// The keys that each resource depends on.
    pub fn dependencies(&self) -> BTreeMap<ResourceKey, Vec<ResourceKey>> {
        self.resources.iter().map(|it| (it.key.clone(), it.depends_on.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(key: &str, depends_on: &[&str]) -> DesiredResource<()> {
        DesiredResource {
            key: ResourceKey::new(key),
            stack: StackName::new("infra"),
            id: format!("/subscriptions/s/resourceGroups/{key}").parse().unwrap(),
            effect: (),
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
