//! `cargo xtask layers`: the arrows between crates point strictly down.
//!
//! The table below is the only place that says which crate stands on which layer. A crate that
//! is missing from it fails the check, so a new crate starts with a decision.

mod graph;

use std::collections::BTreeSet;

use self::graph::{Edge, Graph, Package};
use crate::failure::TaskError;
use crate::house::House;
use crate::process;

/// Where a crate stands: it may depend on lower layers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// Words and time.
    Words = 0,
    /// One subject each, without knowledge of the others.
    Subjects = 1,
    /// Decisions, and the transports.
    Decisions = 2,
    /// Roads that use both.
    Roads = 3,
    /// Long-running parts; the Kubernetes client begins here.
    Parts = 4,
    /// Compositions that decide nothing.
    Composition = 5,
    /// The binary.
    Binary = 6,
    /// Servers and stand-ins for tests.
    TestSupport = 7,
    /// What judges stand on: other people's programs, run by us.
    Ground = 8,
    /// Judges and tools: nothing depends on them.
    Outside = 9,
}

const LAYERS: &[(&str, Layer)] = &[
    ("lanyard-clock", Layer::Words),
    ("lanyard-vocabulary", Layer::Words),
    ("lanyard-credential", Layer::Subjects),
    ("lanyard-api", Layer::Subjects),
    ("lanyard-telemetry", Layer::Subjects),
    ("lanyard-grpc", Layer::Subjects),
    ("lanyard-emulator", Layer::Subjects),
    ("lanyard-desired", Layer::Decisions),
    ("lanyard-azure", Layer::Decisions),
    ("lanyard-kubernetes", Layer::Decisions),
    ("lanyard-keyvault", Layer::Roads),
    ("lanyard-kms", Layer::Roads),
    ("lanyard-canary", Layer::Parts),
    ("lanyard-node", Layer::Parts),
    ("lanyard-operator", Layer::Parts),
    ("lanyard-up", Layer::Composition),
    ("lanyard", Layer::Binary),
    ("lanyard-apiserver", Layer::TestSupport),
    ("lanyard-kubelet", Layer::TestSupport),
    ("lanyard-cluster", Layer::Ground),
    ("lanyard-conformance", Layer::Outside),
    ("lanyard-conformance-image", Layer::Outside),
    ("lanyard-fuzz", Layer::Outside),
    ("xtask", Layer::Outside),
];

/// The local Azure shares only words and time with the rest, so that a misreading of Azure
/// cannot pass on both sides; and only these link it.
const EMULATOR: &str = "lanyard-emulator";
const EMULATOR_USES: [&str; 2] = ["lanyard-clock", "lanyard-vocabulary"];
const EMULATOR_USERS: [&str; 3] = ["lanyard", "lanyard-fuzz", "lanyard-up"];

/// Dev-dependencies that may point up: the tests of the node plugin call its CSI socket as the
/// kubelet does, and the stand-in for the kubelet uses nothing of the node plugin.
const TEST_EDGES: [(&str, &str); 1] = [("lanyard-node", "lanyard-kubelet")];

/// Pure crates: no runtime anywhere below them.
const WITHOUT_RUNTIME: [&str; 2] = ["lanyard-vocabulary", "lanyard-desired"];

/// The transport to the Kubernetes API, below everything else that has a client for it.
const KUBERNETES: &str = "lanyard-kubernetes";

/// Clients of the Kubernetes API.
const KUBERNETES_CLIENTS: [&str; 3] = ["kube", "kube-client", "kube-runtime"];

/// Crates whose direct use is decided against: errors are typed, time is jiff, YAML is
/// serde-saphyr, and there is one crypto backend. deny.toml bans most of them altogether.
const DECIDED_AGAINST: [&str; 8] =
    ["anyhow", "chrono", "native-tls", "openssl", "ring", "rsa", "serde_yaml", "serde_yml"];

/// Checks the graph of the workspace; returns the number of edges that were looked at.
pub(crate) fn check(house: &House) -> Result<usize, TaskError> {
    let mut command = house.cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let answer = process::capture(&mut command)?;
    let graph = Graph::parse(&answer)
        .map_err(|source| TaskError::Answer { command: process::spelled(&command), source })?;
    let mut findings = findings(&graph);
    findings.extend(stale_rows(&graph));
    if !findings.is_empty() {
        return Err(TaskError::Findings { check: "arrows that do not point down", findings });
    }
    let edges = graph.members().map(|member| member.edges.len()).sum();
    process::say(&format!("{} crates, {edges} edges, all of them down", graph.members().count()));
    Ok(edges)
}

/// Rows of the table whose crate does not exist.
fn stale_rows(graph: &Graph) -> Vec<String> {
    let stale = LAYERS.iter().filter(|(name, _)| !graph.is_member(name));
    stale.map(|(name, _)| format!("{name} is in the table of layers and no crate")).collect()
}

fn findings(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for member in graph.members() {
        let Some(layer) = layer_of(&member.name) else {
            found.push(format!("{} is not in the table of layers", member.name));
            continue;
        };
        for edge in &member.edges {
            found.extend(edge_finding(graph, member, layer, edge));
        }
        if WITHOUT_RUNTIME.contains(&member.name.as_str()) && graph.reaches(&member.name, "tokio") {
            found.push(format!("{} reaches tokio, and is pure", member.name));
        }
    }
    found
}

fn edge_finding(graph: &Graph, from: &Package, layer: Layer, edge: &Edge) -> Option<String> {
    let arrow = format!("{} -> {}", from.name, edge.to);
    if !graph.is_member(&edge.to) {
        return foreign_finding(from, layer, edge).map(|why| format!("{arrow}: {why}"));
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

fn is_test_edge(from: &Package, edge: &Edge) -> bool {
    !edge.is_shipped() && TEST_EDGES.contains(&(from.name.as_str(), edge.to.as_str()))
}

fn foreign_finding(from: &Package, layer: Layer, edge: &Edge) -> Option<&'static str> {
    let to = edge.to.as_str();
    if DECIDED_AGAINST.contains(&to) {
        return Some("decided against: see DECIDED_AGAINST");
    }
    let transports = from.name == KUBERNETES;
    if KUBERNETES_CLIENTS.contains(&to) && layer < Layer::Parts && !transports {
        return Some("the Kubernetes client begins at layer 4, above `lanyard-kubernetes`");
    }
    let only_time = BTreeSet::from(["time"]);
    let beyond_time = from.name == "lanyard-clock" && to == "tokio" && edge.is_shipped();
    if beyond_time && edge.features.iter().any(|feature| !only_time.contains(feature.as_str())) {
        return Some("the clock uses the `time` of tokio and nothing else");
    }
    None
}

fn layer_of(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

#[cfg(test)]
mod tests;
