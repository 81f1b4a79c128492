//! Failures between the operator and the API server, in virtual time and with a fake API that injects
//! faults. `cargo xtask conformance operator` runs the operator against a real API server.

#![cfg(test)]

#[path = "faults/api_state.rs"]
mod api_state;
#[path = "faults/canaries.rs"]
mod canaries;
#[path = "faults/encryption_keys.rs"]
mod encryption_keys;
#[path = "faults/fixture.rs"]
mod fixture;
#[path = "faults/management_api.rs"]
mod management_api;
#[path = "faults/many_clusters.rs"]
mod many_clusters;
#[path = "faults/namespace_access.rs"]
mod namespace_access;
#[path = "faults/plans.rs"]
mod plans;
#[path = "faults/reference_copies.rs"]
mod reference_copies;
#[path = "faults/request_path.rs"]
mod request_path;
#[path = "faults/unusable_values.rs"]
mod unusable_values;
#[path = "faults/watches.rs"]
mod watches;
#[path = "faults/write_conflicts.rs"]
mod write_conflicts;
