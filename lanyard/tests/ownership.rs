//! Lanyard never deletes, changes or takes over a resource of another client, and removes what it created itself.
//!
//! Random sequences of runs, each of which may end at any of its requests, and of another client that creates, deletes
//! and tags resources with the same names, against the engine of the local Azure.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "ownership/contested_resources.rs"]
mod contested_resources;
#[path = "support/engine_client.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod engine_client;
#[path = "ownership/role_assignments.rs"]
mod role_assignments;
#[path = "ownership/two_clients.rs"]
mod two_clients;

use crate::two_clients::TwoClients;

/// Several threads of the test program run the sequences.
const SEQUENCES: u64 = 10_000;
const THREADS: u64 = 4;

fn run_sequences(thread: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut clients = TwoClients::new();
        for seed in (thread..SEQUENCES).step_by(usize::try_from(THREADS).unwrap()) {
            clients.run_sequence(seed).await;
        }
    });
}

macro_rules! sequences {
    ($($name:ident = $thread:literal),*) => {
        $(#[test]
        fn $name() {
            run_sequences($thread);
        })*
    };
}

sequences!(
    resources_of_another_client_stay_in_the_first_quarter_of_the_sequences = 0,
    resources_of_another_client_stay_in_the_second_quarter_of_the_sequences = 1,
    resources_of_another_client_stay_in_the_third_quarter_of_the_sequences = 2,
    resources_of_another_client_stay_in_the_fourth_quarter_of_the_sequences = 3
);
