//! `cargo xtask layers`: the arrows between crates point strictly down.
//!
//! The table below is the only place that says which crate stands on which layer. A crate that
//! is missing from it fails the check, so a new crate starts with a decision.

mod graph;

use std::collections::BTreeSet;

use self::graph::{CrateGraph, DependencyEdge, WorkspaceCrate};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// Where a crate stands: it may depend on lower layers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CrateLayer {
    /// Words and time.
    Foundation = 0,
    /// One subject each, without knowledge of the others.
    Libraries = 1,
    /// Decisions, and the transports.
    CoreAndTransports = 2,
    /// Roads that use both.
    VaultServices = 3,
    /// Long-running parts; the Kubernetes client begins here.
    LongRunning = 4,
    /// Compositions that decide nothing.
    Composition = 5,
    /// The binary.
    Binary = 6,
    /// Servers and stand-ins for tests.
    TestSupport = 7,
    /// What judges stand on: other people's programs, run by us.
    TestCluster = 8,
    /// Judges and tools: nothing depends on them.
    Tooling = 9,
}

const LAYERS: &[(&str, CrateLayer)] = &[
    ("lanyard-clock", CrateLayer::Foundation),
    ("lanyard-vocabulary", CrateLayer::Foundation),
    ("lanyard-credential", CrateLayer::Libraries),
    ("lanyard-api", CrateLayer::Libraries),
    ("lanyard-telemetry", CrateLayer::Libraries),
    ("lanyard-grpc", CrateLayer::Libraries),
    ("lanyard-emulator", CrateLayer::Libraries),
    ("lanyard-desired", CrateLayer::CoreAndTransports),
    ("lanyard-azure", CrateLayer::CoreAndTransports),
    ("lanyard-kubernetes", CrateLayer::CoreAndTransports),
    ("lanyard-keyvault", CrateLayer::VaultServices),
    ("lanyard-kms", CrateLayer::VaultServices),
    ("lanyard-canary", CrateLayer::LongRunning),
    ("lanyard-node", CrateLayer::LongRunning),
    ("lanyard-operator", CrateLayer::LongRunning),
    ("lanyard-up", CrateLayer::Composition),
    ("lanyard", CrateLayer::Binary),
    ("lanyard-apiserver", CrateLayer::TestSupport),
    ("lanyard-kubelet", CrateLayer::TestSupport),
    ("lanyard-cluster", CrateLayer::TestCluster),
    ("lanyard-conformance", CrateLayer::Tooling),
    ("lanyard-conformance-image", CrateLayer::Tooling),
    ("lanyard-fuzz", CrateLayer::Tooling),
    ("xtask", CrateLayer::Tooling),
];

/// The local Azure shares only words and time with the rest, so that a misreading of Azure
/// cannot pass on both sides; and only these link it.
const EMULATOR: &str = "lanyard-emulator";
const EMULATOR_USES: [&str; 2] = ["lanyard-clock", "lanyard-vocabulary"];
const EMULATOR_USERS: [&str; 3] = ["lanyard", "lanyard-fuzz", "lanyard-up"];

/// Dev-dependencies that may point up: the tests of the node plugin call its CSI socket as the
/// kubelet does, and the stand-in for the kubelet uses nothing of the node plugin.
const ALLOWED_DEV_EDGES: [(&str, &str); 1] = [("lanyard-node", "lanyard-kubelet")];

/// Pure crates: no runtime anywhere below them.
const RUNTIME_FREE_CRATES: [&str; 2] = ["lanyard-vocabulary", "lanyard-desired"];

/// The transport to the Kubernetes API, below everything else that has a client for it.
const KUBERNETES: &str = "lanyard-kubernetes";

/// Clients of the Kubernetes API.
const KUBERNETES_CLIENTS: [&str; 3] = ["kube", "kube-client", "kube-runtime"];

/// Crates whose direct use is decided against: errors are typed, time is jiff, YAML is
/// serde-saphyr, and there is one crypto backend. deny.toml bans most of them altogether.
const BANNED_CRATES: [&str; 8] =
    ["anyhow", "chrono", "native-tls", "openssl", "ring", "rsa", "serde_yaml", "serde_yml"];

/// Checks the graph of the workspace; returns the number of edges that were looked at.
pub(crate) fn check(house: &Repository) -> Result<usize, TaskError> {
    let mut command = house.cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let answer = process::capture_stdout(&mut command)?;
    let graph = CrateGraph::parse(&answer)
        .map_err(|source| TaskError::Answer { command: process::command_line(&command), source })?;
    let mut findings = layer_findings(&graph);
    findings.extend(rows_without_crate(&graph));
    if !findings.is_empty() {
        return Err(TaskError::Findings { check: "arrows that do not point down", findings });
    }
    let edges = graph.members().map(|member| member.edges.len()).sum();
    process::print_line(&format!(
        "{} crates, {edges} edges, all of them down",
        graph.members().count()
    ));
    Ok(edges)
}

/// Rows of the table whose crate does not exist.
fn rows_without_crate(graph: &CrateGraph) -> Vec<String> {
    let stale = LAYERS.iter().filter(|(name, _)| !graph.is_member(name));
    stale.map(|(name, _)| format!("{name} is in the table of layers and no crate")).collect()
}

fn layer_findings(graph: &CrateGraph) -> Vec<String> {
    let mut found = Vec::new();
    for member in graph.members() {
        let Some(layer) = layer_of(&member.name) else {
            found.push(format!("{} is not in the table of layers", member.name));
            continue;
        };
        for edge in &member.edges {
            found.extend(edge_finding(graph, member, layer, edge));
        }
        if RUNTIME_FREE_CRATES.contains(&member.name.as_str())
            && graph.depends_on(&member.name, "tokio")
        {
            found.push(format!("{} reaches tokio, and is pure", member.name));
        }
    }
    found
}

fn edge_finding(
    graph: &CrateGraph,
    from: &WorkspaceCrate,
    layer: CrateLayer,
    edge: &DependencyEdge,
) -> Option<String> {
    let arrow = format!("{} -> {}", from.name, edge.to);
    if !graph.is_member(&edge.to) {
        return external_dependency_finding(from, layer, edge).map(|why| format!("{arrow}: {why}"));
    }
    let why = if edge.to == EMULATOR && !EMULATOR_USERS.contains(&from.name.as_str()) {
        "the local Azure is reached over a socket, never linked".to_owned()
    } else if from.name == EMULATOR && !EMULATOR_USES.contains(&edge.to.as_str()) {
        "the local Azure shares only words and time with the clients".to_owned()
    } else if layer_of(&edge.to).is_some_and(|below| below >= layer) && !is_test_edge(from, edge) {
        format!("{layer:?} may use lower layers only")
    } else if from.published && edge.is_shipped() && !graph.is_published(&edge.to) {
        "a published crate may not need one that is not".to_owned()
    } else {
        return None;
    };
    Some(format!("{arrow}: {why}"))
}

fn is_test_edge(from: &WorkspaceCrate, edge: &DependencyEdge) -> bool {
    !edge.is_shipped() && ALLOWED_DEV_EDGES.contains(&(from.name.as_str(), edge.to.as_str()))
}

fn external_dependency_finding(
    from: &WorkspaceCrate,
    layer: CrateLayer,
    edge: &DependencyEdge,
) -> Option<&'static str> {
    let to = edge.to.as_str();
    if BANNED_CRATES.contains(&to) {
        return Some("decided against: see DECIDED_AGAINST");
    }
    let transports = from.name == KUBERNETES;
    if KUBERNETES_CLIENTS.contains(&to) && layer < CrateLayer::LongRunning && !transports {
        return Some("the Kubernetes client begins at layer 4, above `lanyard-kubernetes`");
    }
    let only_time = BTreeSet::from(["time"]);
    let beyond_time = from.name == "lanyard-clock" && to == "tokio" && edge.is_shipped();
    if beyond_time && edge.features.iter().any(|feature| !only_time.contains(feature.as_str())) {
        return Some("the clock uses the `time` of tokio and nothing else");
    }
    None
}

fn layer_of(name: &str) -> Option<CrateLayer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

#[cfg(test)]
mod tests;
