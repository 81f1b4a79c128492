//! What a hit costs while a request for something else, or for its own renewal, hangs.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::error::BenchError;
use crate::library::{self, BenchmarkedLibrary, LanyardLibrary, get_token_now, scope_name};
use crate::measurement::{CredentialMeasurement, quantile};
use crate::service::ServiceResponse;

/// How long the request hangs.
const HANG_DURATION: Duration = Duration::from_secs(1);
/// By then a token that is due after a second is due, whatever the jitter.
const RENEWAL_DUE_DELAY: Duration = Duration::from_millis(1_300);
/// As many hits are timed, unless one of them waits for the request.
const HITS: usize = 300_000;
/// Of a thousand hits.
const TAIL_PER_MILLE: usize = 999;
/// How often to look whether the request hangs, a millisecond apart.
const MAX_POLLS: usize = 5_000;

/// What hangs.
struct HangScenario {
    metric: &'static str,
    answer: ServiceResponse,
    /// How long to wait until the request has a reason.
    delay: Duration,
    /// The scope of the request; hits are of scope 0.
    scope: usize,
}

const HANG_SCENARIOS: [HangScenario; 2] = [
    HangScenario {
        metric: "hit_beside_hanging_request",
        answer: ServiceResponse::DayLongToken,
        delay: Duration::ZERO,
        scope: 1,
    },
    HangScenario {
        metric: "hit_beside_hanging_renewal",
        answer: ServiceResponse::SoonDueToken,
        delay: RENEWAL_DUE_DELAY,
        scope: 0,
    },
];

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    // A hit may begin a renewal, in the background of the runtime that is entered.
    let _entered = runtime.enter();
    let mut measured = Vec::new();
    for disturbance in &HANG_SCENARIOS {
        let lanyard = LanyardLibrary::open(&runtime, clock, disturbance.answer, Duration::ZERO)?;
        let peer = BenchmarkedLibrary::azure_identity(clock, disturbance.answer, Duration::ZERO)?;
        for contestant in [&lanyard.library, &peer] {
            measured.push(measure_hang_impact(&runtime, clock, contestant, disturbance)?);
        }
    }
    Ok(measured)
}

/// How much slower the slowest hits get, in microseconds.
fn measure_hang_impact(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &BenchmarkedLibrary,
    disturbance: &HangScenario,
) -> Result<CredentialMeasurement, BenchError> {
    contestant.prefetch_tokens(runtime, 1)?;
    let baseline = hit_latency_p999(clock, contestant, |_| true)?;
    contestant.service.set_latency(HANG_DURATION);
    runtime.block_on(clock.sleep(disturbance.delay));
    let (credential, scope) = (Arc::clone(&contestant.credential), scope_name(disturbance.scope));
    let call = runtime.spawn(async move { credential.get_token(&[&scope], None).await });
    let mut looks = 0;
    while !contestant.service.has_pending_request() {
        looks += 1;
        if contestant.service.request_count() > 1 || looks > MAX_POLLS {
            let what = "no request hung".to_owned();
            return Err(BenchError::Unexpected { subject: contestant.name, what });
        }
        runtime.block_on(clock.sleep(Duration::from_millis(1)));
    }
    let hanging =
        hit_latency_p999(clock, contestant, |contestant| contestant.service.has_pending_request())?;
    runtime.block_on(call)??;
    let microseconds = ((hanging - baseline) * 1e6).max(0.0);
    Ok(CredentialMeasurement::count(contestant.name, disturbance.metric, "µs", microseconds))
}

/// The 99.9th percentile of hits in seconds, taken while `goes_on` says so.
fn hit_latency_p999(
    clock: SystemClock,
    contestant: &BenchmarkedLibrary,
    goes_on: impl Fn(&BenchmarkedLibrary) -> bool,
) -> Result<f64, BenchError> {
    let scope = scope_name(0);
    let mut hits = Vec::with_capacity(HITS);
    while hits.len() < HITS && goes_on(contestant) {
        let start = clock.monotonic();
        drop(get_token_now(&*contestant.credential, &scope)?);
        hits.push(clock.monotonic().saturating_sub(start).as_secs_f64());
    }
    Ok(quantile(&mut hits, TAIL_PER_MILLE))
}
