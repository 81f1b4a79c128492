//! Kills `lanyard azure serve` with SIGKILL while a stock HTTP client writes, and checks that the next process
//! has every write that was answered.

#![cfg(feature = "emulator")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
mod azure_serve_process;
#[path = "azure_kill/azure_writer.rs"]
mod azure_writer;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use azure_serve_process::AzureServeProcess;
use azure_writer::{AzureWrite, AzureWriter};
use lanyard_clock::{Clock as _, SystemClock};

const ROUNDS: usize = 3;
/// The process is killed after this number of answers.
const ANSWERS: usize = 1_500;
const WRITERS: usize = 64;
/// The longest time of one round.
const TIMEOUT: Duration = Duration::from_mins(2);

fn lanyard_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"] {
        command.env_remove(variable);
    }
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_write_survives_a_kill() {
    let state = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let process = AzureServeProcess::start(lanyard_command(), state.path());
        let writer = Arc::new(AzureWriter::sign_in(&process).await);
        let (answered, seconds) = write_until_killed(round, process, &writer).await;
        let rate = f64::from(u32::try_from(answered.len()).unwrap()) / seconds;
        println!("round {round}: {} writes answered, {rate:.0} a second", answered.len());
        assert!(answered.len() >= ANSWERS);

        let process = AzureServeProcess::start(lanyard_command(), state.path());
        let reader = Arc::new(AzureWriter::sign_in(&process).await);
        let missing = find_missing_writes(answered, &reader).await;
        assert_eq!(missing, [], "round {round}: answered and lost");
        drop(process);
    }
}

/// Writes with many tasks, and kills the process when enough writes were answered. Returns these writes, and
/// how long they took.
async fn write_until_killed(
    round: usize,
    process: AzureServeProcess,
    writer: &Arc<AzureWriter>,
) -> (Vec<AzureWrite>, f64) {
    let (clock, count) = (SystemClock::new(), Arc::new(AtomicUsize::new(0)));
    let began = clock.monotonic();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|task| {
            let (writer, count) = (Arc::clone(writer), Arc::clone(&count));
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for number in 0_usize.. {
                    let write = AzureWrite::numbered(round, task, number);
                    // The process was killed.
                    let Ok(status) = writer.write(write).await else { break };
                    assert!(status.is_success(), "{write:?}: {status}");
                    answered.push(write);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                answered
            })
        })
        .collect();
    while count.load(Ordering::Relaxed) < ANSWERS {
        assert!(clock.monotonic().saturating_sub(began) < TIMEOUT, "the writes take too long");
        clock.sleep(Duration::from_millis(5)).await;
    }
    let seconds = clock.monotonic().saturating_sub(began).as_secs_f64();
    // Sends SIGKILL while every task waits for an answer.
    drop(process);
    let mut answered = Vec::new();
    for task in tasks {
        answered.extend(task.await.unwrap());
    }
    (answered, seconds)
}

/// Reads every written object, and returns the writes without their object.
async fn find_missing_writes(
    written: Vec<AzureWrite>,
    reader: &Arc<AzureWriter>,
) -> Vec<AzureWrite> {
    let shares = written.chunks(written.len().div_ceil(16)).map(|share| {
        let (share, reader) = (share.to_vec(), Arc::clone(reader));
        tokio::spawn(async move {
            let mut missing = Vec::new();
            for write in share {
                if !reader.is_stored(write).await {
                    missing.push(write);
                }
            }
            missing
        })
    });
    let mut missing = Vec::new();
    for share in shares.collect::<Vec<_>>() {
        missing.extend(share.await.unwrap());
    }
    missing
}
