//! Measures calls for a cached token on several threads at the same time.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};

use crate::error::BenchError;
use crate::library::{self, BenchmarkedLibrary, LanyardLibrary, get_token_now, scope_name};
use crate::measurement::{CredentialMeasurement, count_as_f64};
use crate::service::ServiceResponse;

/// Each round measures every library with every number of threads.
const ROUNDS: usize = 300;
/// Calls of one thread in one round, which take one or two milliseconds.
const CALLS: u32 = 10_000;

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    let lanyard =
        LanyardLibrary::open(&runtime, clock, ServiceResponse::DayLongToken, Duration::ZERO)?;
    let azure_identity =
        BenchmarkedLibrary::azure_identity(clock, ServiceResponse::DayLongToken, Duration::ZERO)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let thread_counts = [
        ("cached_token_throughput_1_thread", 1),
        ("cached_token_throughput_all_cores", cores),
        ("cached_token_throughput_twice_the_cores", 2 * cores),
    ];
    let libraries = [&lanyard.library, &azure_identity];
    for library in libraries {
        library.prefetch_tokens(&runtime, 1)?;
    }
    // The best round counts: other programs can only slow a round down, and slow many threads down more than
    // one.
    let mut best = [[0.0_f64; 3]; 2];
    for _ in 0..ROUNDS {
        for (library, best) in libraries.iter().zip(&mut best) {
            for ((_, threads), best) in thread_counts.iter().zip(best) {
                *best = best.max(measure_throughput(clock, library, *threads));
            }
        }
    }
    let mut measured = Vec::new();
    for (library, best) in libraries.iter().zip(best) {
        for ((metric, _), value) in thread_counts.iter().zip(best) {
            measured.push(CredentialMeasurement::count(library.name, metric, "calls/ms", value));
        }
    }
    Ok(measured)
}

/// Returns the calls per millisecond of all threads together, from the first start to the last end.
fn measure_throughput(clock: SystemClock, library: &BenchmarkedLibrary, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let token_scope = scope_name(0);
    let run = || {
        barrier.wait();
        let start = clock.monotonic();
        allocation_counter::opt_out(|| {
            for _ in 0..CALLS {
                drop(black_box(get_token_now(
                    black_box(&*library.credential),
                    black_box(&token_scope),
                )));
            }
        });
        (start, clock.monotonic())
    };
    let spans: Vec<(Duration, Duration)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let first = spans.iter().map(|(start, _)| *start).min().unwrap_or_default();
    let last = spans.iter().map(|(_, end)| *end).max().unwrap_or_default();
    let calls = f64::from(CALLS) * count_as_f64(spans.len());
    calls / (last.saturating_sub(first).as_secs_f64() * 1e3)
}
