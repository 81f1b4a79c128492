//! What may go wrong between the operator and the API, in virtual time and with an API that misbehaves
//! at one's bidding. What a real one does is shown by `cargo xtask conformance operator`.

#![cfg(test)]

#[path = "faults/canaries.rs"]
mod canaries;
#[path = "faults/crowd.rs"]
mod crowd;
#[path = "faults/keys.rs"]
mod keys;
#[path = "faults/path.rs"]
mod path;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/stage.rs"]
mod stage;
#[path = "faults/state.rs"]
mod state;
#[path = "faults/storms.rs"]
mod storms;
#[path = "faults/watches.rs"]
mod watches;
