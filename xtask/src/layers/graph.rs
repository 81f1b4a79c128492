//! The subset of `cargo metadata` that the layer check needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

/// The packages of the workspace and their dependencies.
#[derive(Debug, Default)]
pub(super) struct CrateGraph {
    members: BTreeMap<String, WorkspaceCrate>,
    /// The build and runtime dependencies of every package, by name.
    build_dependencies: BTreeMap<String, BTreeSet<String>>,
}

/// A member of the workspace.
#[derive(Debug)]
pub(super) struct WorkspaceCrate {
    pub(super) name: String,
    pub(super) published: bool,
    pub(super) edges: Vec<DependencyEdge>,
    /// The root files of its library and its programs.
    pub(super) roots: Vec<PathBuf>,
}

/// A dependency as the manifest states it.
#[derive(Debug)]
pub(super) struct DependencyEdge {
    pub(super) to: String,
    pub(super) kind: Option<String>,
    pub(super) features: Vec<String>,
}

impl DependencyEdge {
    /// Whether users of the crate need the dependency too (dependencies of tests and benches do not count).
    pub(super) fn is_shipped(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}

impl CrateGraph {
    pub(super) fn parse(answer: &[u8]) -> Result<Self, serde_json::Error> {
        let metadata: CargoMetadata = serde_json::from_slice(answer)?;
        let names: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|it| (it.id.as_str(), it.name.as_str())).collect();
        let mut graph = Self::default();
        for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
            let Some(name) = names.get(node.id.as_str()) else { continue };
            let below =
                node.deps.iter().filter(|it| it.dep_kinds.iter().any(DependencyKind::is_shipped));
            graph
                .build_dependencies
                .entry((*name).to_owned())
                .or_default()
                .extend(below.filter_map(|it| names.get(it.pkg.as_str()).map(|it| (*it).into())));
        }
        let members: BTreeSet<&String> = metadata.workspace_members.iter().collect();
        graph.members = metadata
            .packages
            .iter()
            .filter(|package| members.contains(&package.id))
            .map(|package| (package.name.clone(), package.to_package()))
            .collect();
        Ok(graph)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &WorkspaceCrate> {
        self.members.values()
    }

    pub(super) fn is_member(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    pub(super) fn is_published(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|package| package.published)
    }

    /// Whether `from` directly or indirectly needs `to` to be built or run.
    pub(super) fn depends_on(&self, from: &str, to: &str) -> bool {
        let mut observed = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(name) = waiting.pop() {
            if name == to {
                return true;
            }
            if observed.insert(name) {
                waiting.extend(
                    self.build_dependencies.get(name).into_iter().flatten().map(String::as_str),
                );
            }
        }
        false
    }
}

#[derive(Debug, Deserialize)]
struct CargoMetadata {
    packages: Vec<MetadataPackage>,
    workspace_members: Vec<String>,
    resolve: Option<ResolveGraph>,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    /// `None` allows every registry, an empty list none.
    publish: Option<Vec<String>>,
    dependencies: Vec<MetadataDependency>,
    targets: Vec<MetadataTarget>,
}

impl MetadataPackage {
    fn to_package(&self) -> WorkspaceCrate {
        WorkspaceCrate {
            name: self.name.clone(),
            published: self.publish.as_ref().is_none_or(|registries| !registries.is_empty()),
            edges: self.dependencies.iter().map(MetadataDependency::to_edge).collect(),
            roots: self
                .targets
                .iter()
                .filter(|it| it.kind.iter().any(|kind| ["lib", "bin"].contains(&kind.as_str())))
                .map(|it| it.src_path.clone())
                .collect(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct MetadataTarget {
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct MetadataDependency {
    name: String,
    kind: Option<String>,
    features: Vec<String>,
}

impl MetadataDependency {
    fn to_edge(&self) -> DependencyEdge {
        DependencyEdge {
            to: self.name.clone(),
            kind: self.kind.clone(),
            features: self.features.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct ResolveGraph {
    nodes: Vec<ResolveNode>,
}

#[derive(Debug, Deserialize)]
struct ResolveNode {
    id: String,
    deps: Vec<ResolveDependency>,
}

#[derive(Debug, Deserialize)]
struct ResolveDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl DependencyKind {
    fn is_shipped(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}
