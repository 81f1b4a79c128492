//! The operator beside a plain loop that writes the very same bytes.

use super::row::{Goal, Metric, Peer, Row};
use crate::conformance;
use crate::failure::TaskError;
use crate::house::House;
use crate::image::{self, Product};

/// The names under which the numbers are reported.
const OURSELVES: &str = "lanyard operator";
const LOOP: Peer = Peer { name: "plain loop", absence: None };

/// Builds the programs, has the judge of the operator measure a fleet of this many clusters, and sets
/// the numbers side by side.
pub(super) fn measure(house: &House, clusters: u32) -> Result<Vec<Row>, TaskError> {
    // As it is shipped.
    let lanyard = image::build_released(house, Product::Lanyard)?.root.join("lanyard");
    let mut command = conformance::measuring_operator_driver(house, &lanyard)?;
    let file = house.target().join("operator-measurements.json");
    command.arg("--measurements").arg(&file).arg("--clusters").arg(clusters.to_string());
    super::rows(OURSELVES, &metrics(), &super::measured(&mut command, &file)?)
}

/// What is measured, and what it should be.
fn metrics() -> Vec<Metric> {
    let beside = |name, goal| Metric { name, goal, peers: vec![LOOP] };
    let alone = |name, goal| Metric { name, goal, peers: Vec::new() };
    vec![
        beside("converge_rate", Goal::AtLeastOfPeer(0.8)),
        beside("converge_time", Goal::AtMostOfPeer { factor: 1.25, limit: None }),
        alone("longest_pause", Goal::None),
        alone("converge_refused", Goal::AtMost(0.0)),
        beside("writes_per_cluster", Goal::None),
        alone("requests_per_cluster", Goal::None),
        beside("requests_at_once", Goal::None),
        alone("converge_processor_time", Goal::None),
        beside("arrival_rate", Goal::None),
        alone("settled_writes", Goal::AtMost(0.0)),
        alone("settled_lease_writes", Goal::None),
        alone("settled_requests", Goal::None),
        alone("idle_memory", Goal::None),
        alone("idle_memory_own", Goal::None),
        alone("converged_memory", Goal::None),
        alone("converged_memory_own", Goal::AtMost(60.0)),
        alone("settled_memory", Goal::None),
        // It does not grow: a tenth is what an allocator may do.
        alone("settled_memory_own", Goal::AtMostTimes(1.1, "converged_memory_own")),
        // The cluster, its control plane, what is told of it; the class, the configuration and the
        // deployment of the component.
        alone("changed_by_one_name", Goal::Exactly(6.0)),
        alone("unaffected_by_one_name", Goal::None),
        alone("one_name_time", Goal::None),
        alone("one_name_writes", Goal::None),
    ]
}
