//! What may go wrong between the operator and the API, in virtual time and with an API that misbehaves
//! at one's bidding. What a real one does is shown by `cargo xtask conformance operator`.

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
#[path = "faults/request_path.rs"]
mod request_path;
#[path = "faults/watches.rs"]
mod watches;
#[path = "faults/write_conflicts.rs"]
mod write_conflicts;
