//! What may go wrong between the operator and the API, in virtual time and with an API that misbehaves
//! at one's bidding. What a real one does is shown by `cargo xtask conformance operator`.

#![cfg(test)]

#[path = "faults/canaries.rs"]
mod canaries;
#[path = "faults/crowd.rs"]
mod many_clusters;
#[path = "faults/keys.rs"]
mod encryption_keys;
#[path = "faults/path.rs"]
mod request_path;
#[path = "faults/server.rs"]
mod management_api;
#[path = "faults/stage.rs"]
mod fixture;
#[path = "faults/state.rs"]
mod api_state;
#[path = "faults/storms.rs"]
mod write_conflicts;
#[path = "faults/watches.rs"]
mod watches;
