//! Runs work for the nodes of a graph in parallel: dependencies first, one node per lock.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{FuturesUnordered, StreamExt as _};

use crate::resource_key::ResourceKey;

/// A node of the graph to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GraphNode {
    pub(crate) key: ResourceKey,
    /// The nodes that must succeed before this one starts. Keys that are not in the graph count as succeeded.
    pub(crate) depends_on: Vec<ResourceKey>,
    /// Two nodes with the same lock never run at the same time.
    pub(crate) lock: String,
}

/// The result of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeResult<T, E> {
    /// The work succeeded.
    Done(T),
    /// The work failed.
    Failed(E),
    /// The node did not start, because this node, on which it depends, failed.
    Blocked(ResourceKey),
}

/// The nodes that wait, run and are done. Does no I/O.
#[derive(Debug)]
struct GraphSchedule {
    waiting: Vec<GraphNode>,
    unfinished: BTreeSet<ResourceKey>,
    locked: BTreeSet<String>,
    running: usize,
    limit: usize,
}

impl GraphSchedule {
    /// Nodes with the longest chain of dependents start first, because they decide how long the run takes.
    fn new(mut nodes: Vec<GraphNode>, limit: usize) -> Self {
        let heights = chain_lengths(&nodes);
        nodes.sort_by_key(|node| std::cmp::Reverse(heights.get(&node.key).copied().unwrap_or(0)));
        let unfinished = nodes.iter().map(|node| node.key.clone()).collect();
        let limit = limit.max(1);
        Self { waiting: nodes, unfinished, locked: BTreeSet::new(), running: 0, limit }
    }

    /// The next node that may start.
    fn start_next(&mut self) -> Option<GraphNode> {
        if self.running >= self.limit {
            return None;
        }
        let is_ready = |node: &GraphNode| {
            !self.locked.contains(&node.lock)
                && !node.depends_on.iter().any(|key| self.unfinished.contains(key))
        };
        let node = self.waiting.remove(self.waiting.iter().position(is_ready)?);
        self.locked.insert(node.lock.clone());
        self.running += 1;
        Some(node)
    }

    fn finish(&mut self, node: &GraphNode) {
        self.locked.remove(&node.lock);
        self.unfinished.remove(&node.key);
        self.running -= 1;
    }

    /// Removes the nodes that wait for `failed`, directly or through other nodes.
    fn remove_dependents(&mut self, failed: &ResourceKey) -> Vec<ResourceKey> {
        let mut causes = BTreeSet::from([failed.clone()]);
        let mut removed = Vec::new();
        loop {
            let depends = |node: &GraphNode| node.depends_on.iter().any(|key| causes.contains(key));
            let Some(position) = self.waiting.iter().position(depends) else { return removed };
            let node = self.waiting.remove(position);
            self.unfinished.remove(&node.key);
            causes.insert(node.key.clone());
            removed.push(node.key);
        }
    }
}

/// The length of the longest chain of dependents of each node.
fn chain_lengths(nodes: &[GraphNode]) -> BTreeMap<ResourceKey, usize> {
    let mut lengths: BTreeMap<ResourceKey, usize> = BTreeMap::new();
    // Each pass extends chains by one; a chain is not longer than the number of nodes.
    for _ in nodes {
        let mut changed = false;
        for node in nodes {
            let length = lengths.get(&node.key).copied().unwrap_or(0) + 1;
            for dependency in &node.depends_on {
                let known = lengths.entry(dependency.clone()).or_default();
                changed |= *known < length;
                *known = (*known).max(length);
            }
        }
        if !changed {
            break;
        }
    }
    lengths
}

/// Sorts items so that each is behind the items whose keys `after` returns. Keys of no item do not count.
pub(crate) fn sort_by_dependencies<T>(
    items: Vec<T>,
    key: impl Fn(&T) -> &ResourceKey,
    after: impl Fn(&T) -> &[ResourceKey],
) -> Vec<T> {
    let mut sorted = Vec::with_capacity(items.len());
    let mut waiting = items;
    while !waiting.is_empty() {
        let unsorted: BTreeSet<ResourceKey> = waiting.iter().map(|it| key(it).clone()).collect();
        let is_ready = |it: &T| !after(it).iter().any(|key| unsorted.contains(key));
        let (ready, blocked): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        if ready.is_empty() {
            // A cycle cannot be recorded; the order of the rest does not matter then.
            sorted.extend(blocked);
            break;
        }
        sorted.extend(ready);
        waiting = blocked;
    }
    sorted
}

/// Runs `work` for each node, at most `limit` at a time. A failure stops only the nodes that depend on it.
pub(crate) async fn run_graph<T, E, F: Future<Output = Result<T, E>>>(
    nodes: Vec<GraphNode>,
    limit: usize,
    work: impl Fn(ResourceKey) -> F,
) -> BTreeMap<ResourceKey, NodeResult<T, E>> {
    let mut schedule = GraphSchedule::new(nodes, limit);
    let mut running = FuturesUnordered::new();
    let mut results = BTreeMap::new();
    loop {
        while let Some(node) = schedule.start_next() {
            let future = work(node.key.clone());
            running.push(async move { (node, future.await) });
        }
        let Some((node, result)) = running.next().await else { return results };
        schedule.finish(&node);
        let result = match result {
            Ok(value) => NodeResult::Done(value),
            Err(error) => {
                for key in schedule.remove_dependents(&node.key) {
                    results.insert(key, NodeResult::Blocked(node.key.clone()));
                }
                NodeResult::Failed(error)
            }
        };
        results.insert(node.key, result);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    fn node(key: &str, depends_on: &[&str], lock: &str) -> GraphNode {
        GraphNode {
            key: ResourceKey::new(key),
            depends_on: depends_on.iter().map(|key| ResourceKey::new(*key)).collect(),
            lock: lock.to_owned(),
        }
    }

    fn run(
        nodes: Vec<GraphNode>,
        limit: usize,
        failing: &str,
    ) -> (Vec<String>, BTreeMap<ResourceKey, NodeResult<(), String>>) {
        let started = RefCell::new(Vec::new());
        let results = futures::executor::block_on(run_graph(nodes, limit, |key| {
            started.borrow_mut().push(key.to_string());
            let failed = key.as_str() == failing;
            async move { if failed { Err("no".to_owned()) } else { Ok(()) } }
        }));
        (started.into_inner(), results)
    }

    #[test]
    fn failure_blocks_only_dependents() {
        let nodes = vec![
            node("group", &[], "group"),
            node("vnet", &["group"], "vnet"),
            node("link", &["vnet"], "link"),
            node("address", &["group"], "address"),
        ];
        let (started, results) = run(nodes, 4, "vnet");
        assert_eq!(started, ["group", "vnet", "address"]);
        let result = |key| results.get(&ResourceKey::new(key)).cloned();
        assert_eq!(result("vnet"), Some(NodeResult::Failed("no".to_owned())));
        assert_eq!(result("link"), Some(NodeResult::Blocked(ResourceKey::new("vnet"))));
        assert_eq!(result("address"), Some(NodeResult::Done(())));
    }

    #[test]
    fn nodes_with_one_lock_run_one_after_the_other() {
        let nodes =
            vec![node("a", &[], "identity"), node("b", &[], "identity"), node("c", &[], "c")];
        let mut schedule = GraphSchedule::new(nodes, 8);
        let first = schedule.start_next().unwrap();
        assert_eq!((first.key.as_str(), schedule.start_next().unwrap().key.as_str()), ("a", "c"));
        assert_eq!(schedule.start_next(), None);
        schedule.finish(&first);
        assert_eq!(schedule.start_next().unwrap().key.as_str(), "b");
    }

    #[test]
    fn longest_chain_starts_first() {
        let nodes = vec![
            node("short", &[], "1"),
            node("long", &[], "2"),
            node("end", &["middle"], "3"),
            node("middle", &["long"], "4"),
        ];
        let (started, _) = run(nodes, 1, "");
        assert_eq!(started, ["long", "middle", "short", "end"]);
    }

    proptest! {
        #[test]
        fn every_node_runs_once_and_after_its_dependencies(
            edges in proptest::collection::vec((0_usize..12, 0_usize..12), 0..30),
            limit in 1_usize..5,
        ) {
            let depends = |at: usize| edges.iter()
                .filter(move |(from, to)| *from == at && to < from)
                .map(|(_, to)| ResourceKey::new(to.to_string())).collect::<Vec<_>>();
            let nodes: Vec<_> = (0..12).map(|at| GraphNode {
                key: ResourceKey::new(at.to_string()), depends_on: depends(at), lock: (at % 5).to_string(),
            }).collect();
            let (started, results) = run(nodes.clone(), limit, "");
            prop_assert_eq!(started.len(), 12);
            prop_assert_eq!(results.len(), 12);
            let position = |key: &str| started.iter().position(|it| it == key);
            for node in nodes {
                for dependency in &node.depends_on {
                    prop_assert!(position(dependency.as_str()) < position(node.key.as_str()));
                }
            }
        }
    }
}
