//! Service principals in the engine of the local Azure, in virtual time.
//!
//! Two commands change the same service principal at the same time, with random interleavings of their requests, and
//! each may be killed at any request: at every moment, the application accepts the certificate in the secret. A purge
//! leaves nothing. The engine of changes continues or undoes each creation of an application.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "service_principals/application_runs.rs"]
mod application_runs;
#[path = "support/engine_client.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod engine_client;
#[path = "service_principals/environment.rs"]
mod environment;
#[path = "service_principals/late_purge.rs"]
mod late_purge;
#[path = "service_principals/two_commands.rs"]
mod two_commands;
#[path = "service_principals/virtual_sleep.rs"]
mod virtual_sleep;

use lanyard_service_principals::Deletion;

use crate::application_runs::{
    assert_application_of_another_client_stays, assert_cut_creation_is_continued_or_undone,
    assert_replacement_of_another_client_stays,
};
use crate::environment::Environment;
use crate::late_purge::assert_nothing_is_left;
use crate::two_commands::{Counts, TwoCommands};

/// Two threads of the test program run the sequences. Most of their time is spent on keys of certificates.
const SEQUENCES: u64 = 300;
const THREADS: u64 = 2;

fn block_on(test: impl Future<Output = ()>) {
    // The only blocking thread, so that the test can wait for blocking work.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.max_blocking_threads(1).build().unwrap().block_on(test);
}

#[expect(clippy::print_stderr, reason = "the counts are the evidence of the property")]
fn run_sequences(thread: u64) {
    block_on(async {
        let environment = Environment::new();
        let commands = TwoCommands::prepare(&environment).await;
        let mut counts = Counts::default();
        for seed in (thread..SEQUENCES).step_by(usize::try_from(THREADS).unwrap()) {
            commands.run_sequence(seed, &mut counts).await;
        }
        eprintln!("{counts:?}");
        assert!(counts.rotated >= counts.sequences / 4, "{counts:?}");
        assert!(counts.killed >= counts.sequences / 8, "{counts:?}");
    });
}

#[test]
fn application_accepts_the_certificate_in_the_secret_in_even_sequences() {
    run_sequences(0);
}

#[test]
fn application_accepts_the_certificate_in_the_secret_in_odd_sequences() {
    run_sequences(1);
}

#[test]
fn purge_leaves_nothing_if_azure_does_not_know_the_deleted_objects_yet() {
    block_on(async {
        let environment = Environment::new();
        assert_nothing_is_left(&environment, &[Deletion::Permanent]).await;
    });
}

#[test]
fn purge_finds_what_an_earlier_run_deleted() {
    block_on(async {
        let environment = Environment::new();
        let runs = [Deletion::Recoverable, Deletion::Permanent];
        assert_nothing_is_left(&environment, &runs).await;
    });
}

#[test]
fn creation_of_an_application_that_ends_at_any_request_is_continued_or_rolled_back() {
    block_on(async { assert_cut_creation_is_continued_or_undone(&Environment::new()).await });
}

#[test]
fn application_of_another_client_with_the_unique_name_is_used_and_stays() {
    block_on(async { assert_application_of_another_client_stays(&Environment::new()).await });
}

#[test]
fn application_that_another_client_created_in_the_place_of_a_recorded_one_stays() {
    block_on(async { assert_replacement_of_another_client_stays(&Environment::new()).await });
}
