//! Measures 10 000 concurrent callers of one scope without a cached token.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::error::BenchError;
use crate::library::{self, BenchmarkedLibrary, LanyardLibrary, scope_name};
use crate::measurement::{CredentialMeasurement, count_as_f64, median};
use crate::service::ServiceResponse;

const CALLERS: usize = 10_000;
/// Many rounds, because the times of two rounds differ by more than the libraries do.
const ROUNDS: usize = 41;
/// About the lowest latency of Entra.
const LATENCY: Duration = Duration::from_millis(50);

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    let lanyard = LanyardLibrary::open(&runtime, clock, ServiceResponse::DayLongToken, LATENCY)?;
    let azure_identity =
        BenchmarkedLibrary::azure_identity(clock, ServiceResponse::DayLongToken, LATENCY)?;
    let libraries = [&lanyard.library, &azure_identity];
    let mut times = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for (library, times) in libraries.iter().zip(&mut times) {
            times.push(
                time_concurrent_callers(&runtime, clock, library, &scope_name(round))?
                    .as_secs_f64(),
            );
        }
    }
    let mut measured = Vec::new();
    for (library, times) in libraries.iter().zip(&mut times) {
        let requests = count_as_f64(library.service.request_count()) / count_as_f64(ROUNDS);
        let time = Duration::from_secs_f64(median(times));
        measured.push(CredentialMeasurement::count(
            library.name,
            "cold_scope_requests",
            "requests",
            requests,
        ));
        measured.push(CredentialMeasurement::milliseconds(library.name, "cold_scope_time", time));
    }
    Ok(measured)
}

/// Returns the time from the first call until the last caller has its token.
fn time_concurrent_callers(
    runtime: &Runtime,
    clock: SystemClock,
    library: &BenchmarkedLibrary,
    scope: &str,
) -> Result<Duration, BenchError> {
    let scope: Arc<str> = scope.into();
    let start = clock.monotonic();
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (credential, scope) = (Arc::clone(&library.credential), Arc::clone(&scope));
                tokio::spawn(async move { credential.get_token(&[&scope], None).await })
            })
            .collect();
        for caller in callers {
            caller.await??;
        }
        Ok(clock.monotonic().saturating_sub(start))
    })
}
