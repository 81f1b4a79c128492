//! The node plugin beside the Secrets Store CSI driver and its Azure provider.

use super::row::{Goal, Metric, Peer, Row};
use crate::conformance;
use crate::failure::TaskError;
use crate::house::House;
use crate::image::{self, Product};

/// The names under which the numbers are reported.
const OURSELVES: &str = "lanyard node";
const PAIR: Peer = Peer { name: "driver 1.6.0 + provider 1.8.2", absence: None };

/// Builds the programs, has the conformance driver measure, and sets the numbers side by side.
pub(super) fn measure(house: &House) -> Result<Vec<Row>, TaskError> {
    // As it is shipped.
    let lanyard = image::build_released(house, Product::Node)?.root.join("lanyard");
    let mut command = conformance::measuring_driver(house, &lanyard)?;
    let file = house.target().join("node-measurements.json");
    command.arg("--measurements").arg(&file);
    super::rows(OURSELVES, &metrics(), &super::measured(&mut command, &file)?)
}

/// What is measured, and what it should be.
fn metrics() -> Vec<Metric> {
    let beside = |name, factor, limit| Metric {
        name,
        goal: Goal::AtMostOfPeer { factor, limit },
        peers: vec![PAIR],
    };
    let metric = |name, goal| Metric { name, goal, peers: vec![PAIR] };
    vec![
        beside("idle_memory", 0.2, Some(10.0)),
        beside("memory_100_volumes_9000_classes", 0.2, Some(15.0)),
        metric("memory_after_rotations", Goal::None),
        beside("cold_mounts_time", 0.1, None),
        metric("cold_mount_median", Goal::None),
        metric("cold_mount_slowest", Goal::None),
        metric("cold_mounts_processor_time", Goal::None),
        metric("unchanged_republish_median", Goal::AtMost(1.0)),
        metric("late_republish_median", Goal::None),
        // One for each of the nine objects that a hundred volumes share.
        metric("vault_requests_per_interval", Goal::AtMost(9.0)),
        metric("api_writes_per_interval", Goal::AtMost(0.0)),
    ]
}
