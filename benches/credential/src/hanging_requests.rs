//! Measures calls for a cached token while a token request hangs: for another scope, or for the renewal of
//! the same token.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::error::BenchError;
use crate::library::{self, BenchmarkedLibrary, LanyardLibrary, get_token_now, scope_name};
use crate::measurement::{CredentialMeasurement, quantile};
use crate::service::ServiceResponse;

/// The time until the token service responds.
const HANG_DURATION: Duration = Duration::from_secs(1);
/// Longer than the second after which a token is due for renewal, plus the jitter.
const RENEWAL_DUE_DELAY: Duration = Duration::from_millis(1_300);
/// The number of timed calls; fewer if a call waits for the hanging request.
const HITS: usize = 300_000;
/// The reported percentile, per mille.
const TAIL_PER_MILLE: usize = 999;
/// The maximum number of polls, a millisecond apart, until the service has a pending request.
const MAX_POLLS: usize = 5_000;

/// A hanging token request, and the metric of the calls meanwhile.
struct HangScenario {
    metric: &'static str,
    response: ServiceResponse,
    /// The wait before the call that makes the request, so that a renewal is due.
    delay: Duration,
    /// The number of the requested scope; the measured calls request scope 0.
    scope: usize,
}

const HANG_SCENARIOS: [HangScenario; 2] = [
    HangScenario {
        metric: "hit_beside_hanging_request",
        response: ServiceResponse::DayLongToken,
        delay: Duration::ZERO,
        scope: 1,
    },
    HangScenario {
        metric: "hit_beside_hanging_renewal",
        response: ServiceResponse::SoonDueToken,
        delay: RENEWAL_DUE_DELAY,
        scope: 0,
    },
];

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    // A call for a cached token may start a background renewal on the entered runtime.
    let _entered = runtime.enter();
    let mut measured = Vec::new();
    for scenario in &HANG_SCENARIOS {
        let lanyard = LanyardLibrary::open(&runtime, clock, scenario.response, Duration::ZERO)?;
        let azure_identity =
            BenchmarkedLibrary::azure_identity(clock, scenario.response, Duration::ZERO)?;
        for library in [&lanyard.library, &azure_identity] {
            measured.push(measure_hang_impact(&runtime, clock, library, scenario)?);
        }
    }
    Ok(measured)
}

/// Returns the added time of the slowest calls, in microseconds.
fn measure_hang_impact(
    runtime: &Runtime,
    clock: SystemClock,
    library: &BenchmarkedLibrary,
    scenario: &HangScenario,
) -> Result<CredentialMeasurement, BenchError> {
    library.prefetch_tokens(runtime, 1)?;
    let baseline = hit_latency_p999(clock, library, |_| true)?;
    library.service.set_latency(HANG_DURATION);
    runtime.block_on(clock.sleep(scenario.delay));
    let (credential, scope) = (Arc::clone(&library.credential), scope_name(scenario.scope));
    let call = runtime.spawn(async move { credential.get_token(&[&scope], None).await });
    let mut polls = 0;
    while !library.service.has_pending_request() {
        polls += 1;
        if library.service.request_count() > 1 || polls > MAX_POLLS {
            let what = "no request was pending".to_owned();
            return Err(BenchError::Unexpected { subject: library.name, what });
        }
        runtime.block_on(clock.sleep(Duration::from_millis(1)));
    }
    let while_hanging =
        hit_latency_p999(clock, library, |library| library.service.has_pending_request())?;
    runtime.block_on(call)??;
    let microseconds = ((while_hanging - baseline) * 1e6).max(0.0);
    Ok(CredentialMeasurement::count(library.name, scenario.metric, "µs", microseconds))
}

/// Returns the 99.9th percentile of the times of calls for a cached token, in seconds. Stops when
/// `should_continue` returns false.
fn hit_latency_p999(
    clock: SystemClock,
    library: &BenchmarkedLibrary,
    should_continue: impl Fn(&BenchmarkedLibrary) -> bool,
) -> Result<f64, BenchError> {
    let scope = scope_name(0);
    let mut times = Vec::with_capacity(HITS);
    while times.len() < HITS && should_continue(library) {
        let start = clock.monotonic();
        drop(get_token_now(&*library.credential, &scope)?);
        times.push(clock.monotonic().saturating_sub(start).as_secs_f64());
    }
    Ok(quantile(&mut times, TAIL_PER_MILLE))
}
