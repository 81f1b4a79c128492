//! `cargo xtask layers`: checks that crates depend only on crates of lower layers, that the files of a crate do
//! not import each other in cycles, and that no crate is larger than its ceiling.
//!
//! The table below is the only place that assigns crates to layers. A crate that is missing from the table
//! fails the check, so adding a crate requires a decision.

mod crate_files;
mod graph;
mod import_cycles;
mod module_tree;

use std::collections::BTreeSet;

use self::crate_files::CrateFiles;
use self::graph::{CrateGraph, DependencyEdge, WorkspaceCrate};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The layer of a crate. A crate may depend only on lower layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CrateLayer {
    /// Vocabulary and time.
    Foundation,
    /// The state of the local Azure, as plain data.
    LocalAzureState,
    /// The engine of the local Azure.
    LocalAzureCore,
    /// The services of the local Azure.
    LocalAzureServices,
    /// What extends Azure Resource Manager in the local Azure.
    LocalAzureProviders,
    /// The complete local Azure.
    LocalAzure,
    /// The files with which processes find a running local Azure.
    LocalAzureSession,
    /// Independent libraries with one subject each.
    Libraries,
    /// The functional core and the transports.
    CoreAndTransports,
    /// Services for vaults and token issuers, which use the core and the transports.
    Services,
    /// Fetches the content of volumes from the services.
    Providers,
    /// Long-running components. The Kubernetes client is allowed from here on.
    LongRunning,
    /// Compositions of the crates below: the demo run, and the roll-out over a fleet.
    Composition,
    Binary,
    /// Servers and fakes for tests.
    TestSupport,
    /// The test cluster, which runs third-party programs.
    TestCluster,
    /// Conformance suites and tools. No crate depends on them.
    Tooling,
}

/// The layer of each crate, and the maximum of its product lines.
///
/// Product lines are the lines of the files of its library and programs, without tests.
const LAYERS: &[(&str, CrateLayer, usize)] = &[
    ("lanyard-clock", CrateLayer::Foundation, 680),
    ("lanyard-vocabulary", CrateLayer::Foundation, 1900),
    ("lanyard-credential", CrateLayer::Libraries, 12_300),
    ("lanyard-api", CrateLayer::Libraries, 4400),
    ("lanyard-telemetry", CrateLayer::Libraries, 820),
    ("lanyard-volume", CrateLayer::Libraries, 3500),
    ("lanyard-grpc", CrateLayer::Libraries, 4600),
    ("lanyard-emulator-state", CrateLayer::LocalAzureState, 15_000),
    ("lanyard-emulator-core", CrateLayer::LocalAzureCore, 5300),
    ("lanyard-emulator-entra", CrateLayer::LocalAzureServices, 4400),
    ("lanyard-emulator-graph", CrateLayer::LocalAzureServices, 6200),
    ("lanyard-emulator-keyvault", CrateLayer::LocalAzureServices, 5600),
    ("lanyard-emulator-blob", CrateLayer::LocalAzureServices, 4500),
    ("lanyard-emulator-arm", CrateLayer::LocalAzureServices, 5000),
    ("lanyard-emulator-deployments", CrateLayer::LocalAzureProviders, 4800),
    ("lanyard-emulator-resource-providers", CrateLayer::LocalAzureProviders, 6700),
    ("lanyard-emulator", CrateLayer::LocalAzure, 5400),
    ("lanyard-emulator-session", CrateLayer::LocalAzureSession, 900),
    ("lanyard-desired", CrateLayer::CoreAndTransports, 13_100),
    ("lanyard-diagnosis", CrateLayer::CoreAndTransports, 900),
    ("lanyard-azure", CrateLayer::CoreAndTransports, 6900),
    ("lanyard-kubernetes", CrateLayer::CoreAndTransports, 1500),
    ("lanyard-keyvault", CrateLayer::Services, 6_400),
    ("lanyard-kms", CrateLayer::Services, 2650),
    ("lanyard-federation", CrateLayer::Services, 2300),
    ("lanyard-service-principals", CrateLayer::Services, 1900),
    ("lanyard-changes", CrateLayer::Services, 9450),
    ("lanyard-provider", CrateLayer::Providers, 1500),
    ("lanyard-canary", CrateLayer::LongRunning, 2900),
    ("lanyard-infra", CrateLayer::LongRunning, 9500),
    ("lanyard-node", CrateLayer::LongRunning, 16_400),
    ("lanyard-operator", CrateLayer::LongRunning, 8200),
    ("lanyard-fleet", CrateLayer::Composition, 1800),
    ("lanyard-up", CrateLayer::Composition, 2300),
    ("lanyard", CrateLayer::Binary, 15_950),
    ("lanyard-apiserver", CrateLayer::TestSupport, 700),
    ("lanyard-kubelet", CrateLayer::TestSupport, 1800),
    ("lanyard-suite-names", CrateLayer::TestSupport, 100),
    ("lanyard-cluster", CrateLayer::TestCluster, 2800),
    ("lanyard-conformance", CrateLayer::Tooling, 26_250),
    ("lanyard-bare-tls-server", CrateLayer::Tooling, 200),
    ("lanyard-conformance-image", CrateLayer::Tooling, 700),
    ("lanyard-fuzz", CrateLayer::Tooling, 300),
    ("xtask", CrateLayer::Tooling, 7000),
];

/// The number of files that import each other in cycles, for each crate with such files. The numbers may only
/// become lower. A crate that is not in the table has none.
const FILES_IN_CYCLES: &[(&str, usize)] = &[("lanyard-node", 9), ("lanyard-operator", 19)];

/// The local Azure shares only the vocabulary and the clock with the other crates, so that a misunderstanding
/// of Azure does not affect both sides of a test. Only these crates may link it.
const EMULATOR: &str = "lanyard-emulator";
const EMULATOR_USES: [&str; 2] = ["lanyard-clock", "lanyard-vocabulary"];

/// Whether a crate is a part of the local Azure.
fn is_local_azure(name: &str) -> bool {
    name.starts_with(EMULATOR)
}

const EMULATOR_USERS: [&str; 3] = ["lanyard", "lanyard-fuzz", "lanyard-up"];

/// The files with which processes find a running local Azure. Only `lanyard` links it.
const EMULATOR_SESSION: &str = "lanyard-emulator-session";

/// Dev-dependencies that may point to a higher layer: the tests of the node plugin call its CSI socket
/// through the kubelet fake, which does not depend on the node plugin.
const ALLOWED_DEV_EDGES: [(&str, &str); 1] = [("lanyard-node", "lanyard-kubelet")];

/// Crates that must not depend on an async runtime, not even indirectly.
const RUNTIME_FREE_CRATES: [&str; 3] =
    ["lanyard-vocabulary", "lanyard-desired", "lanyard-diagnosis"];

/// The transport to the Kubernetes API. It is below all other crates with a Kubernetes client.
const KUBERNETES: &str = "lanyard-kubernetes";

/// Clients of the Kubernetes API.
const KUBERNETES_CLIENTS: [&str; 3] = ["kube", "kube-client", "kube-runtime"];

/// Crates that must not be used directly: errors are typed, time is jiff, YAML is serde-saphyr, and there is
/// one crypto backend. deny.toml bans most of them entirely.
const BANNED_CRATES: [&str; 8] =
    ["anyhow", "chrono", "native-tls", "openssl", "ring", "rsa", "serde_yaml", "serde_yml"];

/// Checks the dependencies, the cycles and the sizes of all crates; returns the number of checked dependencies.
pub(crate) fn check(repository: &Repository) -> Result<usize, TaskError> {
    let mut command = repository.cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let answer = process::capture_stdout(&mut command)?;
    let graph = CrateGraph::parse(&answer)
        .map_err(|source| TaskError::Answer { command: process::command_line(&command), source })?;
    let mut findings = layer_findings(&graph);
    findings.extend(rows_without_crate(&graph));
    let (mut files, mut lines) = (0, 0);
    for member in graph.members() {
        let found = CrateFiles::read(member)?;
        files += found.count;
        lines += found.lines;
        findings.extend(file_findings(&found));
    }
    if !findings.is_empty() {
        return Err(TaskError::Findings {
            check: "dependencies, cycles and sizes that are not allowed",
            findings,
        });
    }
    let edges = graph.members().map(|member| member.edges.len()).sum();
    let in_cycles: usize = FILES_IN_CYCLES.iter().map(|(_, count)| count).sum();
    process::print_line(&format!(
        "{} crates, {edges} dependencies, all on lower layers",
        graph.members().count()
    ));
    process::print_line(&format!("{files} files, {in_cycles} of them in known cycles"));
    process::print_line(&format!("{lines} product lines, no crate above its ceiling"));
    Ok(edges)
}

/// Rows of the tables without a crate.
fn rows_without_crate(graph: &CrateGraph) -> Vec<String> {
    let layers = LAYERS.iter().map(|(name, ..)| (name, "layers"));
    let cycles = FILES_IN_CYCLES.iter().map(|(name, _)| (name, "cycles"));
    let stale = layers.chain(cycles).filter(|(name, _)| !graph.is_member(name));
    stale.map(|(name, table)| format!("{name} is in the table of {table} and no crate")).collect()
}

/// Compares the cycles and the size of a crate with the tables.
fn file_findings(found: &CrateFiles) -> Vec<String> {
    let known = FILES_IN_CYCLES.iter().find(|(name, _)| *name == found.name);
    let mut findings = found.cycle_findings(known.map_or(0, |(_, count)| *count));
    let row = LAYERS.iter().find(|(name, ..)| *name == found.name);
    findings.extend(row.and_then(|(.., ceiling)| found.size_finding(*ceiling)));
    findings
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
            found.push(format!("{} must not depend on tokio", member.name));
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
    let (from_local_azure, to_local_azure) = (is_local_azure(&from.name), is_local_azure(&edge.to));
    let is_user = match edge.to.as_str() {
        EMULATOR => EMULATOR_USERS.contains(&from.name.as_str()),
        EMULATOR_SESSION => from.name == "lanyard",
        _ => false,
    };
    let why = if to_local_azure && !from_local_azure && !is_user {
        "the local Azure is reached over a socket, never linked".to_owned()
    } else if from_local_azure && !to_local_azure && !EMULATOR_USES.contains(&edge.to.as_str()) {
        "the local Azure shares only the vocabulary and the clock with the clients".to_owned()
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
    // The services of the local Azure are tested in the complete one.
    let of_local_azure = is_local_azure(&from.name) && edge.to == EMULATOR;
    let is_allowed = ALLOWED_DEV_EDGES.contains(&(from.name.as_str(), edge.to.as_str()));
    !edge.is_shipped() && (of_local_azure || is_allowed)
}

fn external_dependency_finding(
    from: &WorkspaceCrate,
    layer: CrateLayer,
    edge: &DependencyEdge,
) -> Option<&'static str> {
    let to = edge.to.as_str();
    if BANNED_CRATES.contains(&to) {
        return Some("the crate is banned: see BANNED_CRATES");
    }
    let transports = from.name == KUBERNETES;
    if KUBERNETES_CLIENTS.contains(&to) && layer < CrateLayer::LongRunning && !transports {
        return Some(
            "the Kubernetes client begins at the long-running components, above `lanyard-kubernetes`",
        );
    }
    let only_time = BTreeSet::from(["time"]);
    let beyond_time = from.name == "lanyard-clock" && to == "tokio" && edge.is_shipped();
    if beyond_time && edge.features.iter().any(|feature| !only_time.contains(feature.as_str())) {
        return Some("the clock uses the `time` of tokio and nothing else");
    }
    None
}

fn layer_of(name: &str) -> Option<CrateLayer> {
    LAYERS.iter().find(|(known, ..)| *known == name).map(|(_, layer, _)| *layer)
}

#[cfg(test)]
mod tests;
