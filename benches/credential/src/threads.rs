//! Cached tokens on several threads at once.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};

use crate::error::BenchError;
use crate::library::{self, BenchmarkedLibrary, LanyardLibrary, get_token_now, scope_name};
use crate::measurement::{CredentialMeasurement, count_as_f64};
use crate::service::ServiceResponse;

/// Rounds of every contestant with every number of threads, in turn.
const ROUNDS: usize = 300;
/// Calls of one thread in one round: a millisecond or two.
const CALLS: u32 = 10_000;

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    let lanyard =
        LanyardLibrary::open(&runtime, clock, ServiceResponse::DayLongToken, Duration::ZERO)?;
    let peer =
        BenchmarkedLibrary::azure_identity(clock, ServiceResponse::DayLongToken, Duration::ZERO)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let crowds = [
        ("cached_token_throughput_1_thread", 1),
        ("cached_token_throughput_all_cores", cores),
        ("cached_token_throughput_twice_the_cores", 2 * cores),
    ];
    let contestants = [&lanyard.library, &peer];
    for contestant in contestants {
        contestant.prefetch_tokens(&runtime, 1)?;
    }
    // The best round counts: whatever else runs on the machine only ever takes time away, and takes
    // it from many threads sooner than from one.
    let mut best = [[0.0_f64; 3]; 2];
    for _ in 0..ROUNDS {
        for (contestant, best) in contestants.iter().zip(&mut best) {
            for ((_, threads), best) in crowds.iter().zip(best) {
                *best = best.max(measure_throughput(clock, contestant, *threads));
            }
        }
    }
    let mut measured = Vec::new();
    for (contestant, best) in contestants.iter().zip(best) {
        for ((metric, _), value) in crowds.iter().zip(best) {
            measured.push(CredentialMeasurement::count(contestant.name, metric, "calls/ms", value));
        }
    }
    Ok(measured)
}

/// Calls per millisecond of all threads together, from the first start to the last end.
fn measure_throughput(clock: SystemClock, contestant: &BenchmarkedLibrary, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let scope = scope_name(0);
    let run = || {
        barrier.wait();
        let start = clock.monotonic();
        allocation_counter::opt_out(|| {
            for _ in 0..CALLS {
                drop(black_box(get_token_now(
                    black_box(&*contestant.credential),
                    black_box(&scope),
                )));
            }
        });
        (start, clock.monotonic())
    };
    let spans: Vec<(Duration, Duration)> = thread::scope(|crowd| {
        let running: Vec<_> = (0..threads).map(|_| crowd.spawn(run)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let first = spans.iter().map(|(start, _)| *start).min().unwrap_or_default();
    let last = spans.iter().map(|(_, end)| *end).max().unwrap_or_default();
    let calls = f64::from(CALLS) * count_as_f64(spans.len());
    calls / (last.saturating_sub(first).as_secs_f64() * 1e3)
}
