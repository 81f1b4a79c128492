//! What a hit costs while a request for something else, or for its own renewal, hangs.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::contestant::{self, Contestant, Lanyard, scope, take};
use crate::failure::BenchError;
use crate::measurement::{Measurement, quantile};
use crate::service::Answer;

/// How long the request hangs.
const HANG: Duration = Duration::from_secs(1);
/// By then a token that is due after a second is due, whatever the jitter.
const DUE: Duration = Duration::from_millis(1_300);
/// As many hits are timed, unless one of them waits for the request.
const HITS: usize = 300_000;
/// Of a thousand hits.
const TAIL: usize = 999;
/// How often to look whether the request hangs, a millisecond apart.
const LOOKS: usize = 5_000;

/// What hangs.
struct Disturbance {
    metric: &'static str,
    answer: Answer,
    /// How long to wait until the request has a reason.
    delay: Duration,
    /// The scope of the request; hits are of scope 0.
    scope: usize,
}

const DISTURBANCES: [Disturbance; 2] = [
    Disturbance {
        metric: "hit_beside_hanging_request",
        answer: Answer::DayLongToken,
        delay: Duration::ZERO,
        scope: 1,
    },
    Disturbance {
        metric: "hit_beside_hanging_renewal",
        answer: Answer::SoonDueToken,
        delay: DUE,
        scope: 0,
    },
];

pub fn measure(clock: SystemClock) -> Result<Vec<Measurement>, BenchError> {
    let runtime = contestant::runtime()?;
    // A hit may begin a renewal, in the background of the runtime that is entered.
    let _entered = runtime.enter();
    let mut measured = Vec::new();
    for disturbance in &DISTURBANCES {
        let lanyard = Lanyard::open(&runtime, clock, disturbance.answer, Duration::ZERO)?;
        let peer = Contestant::azure_identity(clock, disturbance.answer, Duration::ZERO)?;
        for contestant in [&lanyard.contestant, &peer] {
            measured.push(disturb(&runtime, clock, contestant, disturbance)?);
        }
    }
    Ok(measured)
}

/// How much slower the slowest hits get, in microseconds.
fn disturb(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &Contestant,
    disturbance: &Disturbance,
) -> Result<Measurement, BenchError> {
    contestant.fill(runtime, 1)?;
    let baseline = tail(clock, contestant, |_| true)?;
    contestant.service.answer_after(HANG);
    runtime.block_on(clock.sleep(disturbance.delay));
    let (credential, scope) = (Arc::clone(&contestant.credential), scope(disturbance.scope));
    let call = runtime.spawn(async move { credential.get_token(&[&scope], None).await });
    let mut looks = 0;
    while !contestant.service.is_hanging() {
        looks += 1;
        if contestant.service.requests() > 1 || looks > LOOKS {
            let what = "no request hung".to_owned();
            return Err(BenchError::Unexpected { subject: contestant.name, what });
        }
        runtime.block_on(clock.sleep(Duration::from_millis(1)));
    }
    let hanging = tail(clock, contestant, |contestant| contestant.service.is_hanging())?;
    runtime.block_on(call)??;
    let microseconds = ((hanging - baseline) * 1e6).max(0.0);
    Ok(Measurement::count(contestant.name, disturbance.metric, "µs", microseconds))
}

/// The 99.9th percentile of hits in seconds, taken while `goes_on` says so.
fn tail(
    clock: SystemClock,
    contestant: &Contestant,
    goes_on: impl Fn(&Contestant) -> bool,
) -> Result<f64, BenchError> {
    let scope = scope(0);
    let mut hits = Vec::with_capacity(HITS);
    while hits.len() < HITS && goes_on(contestant) {
        let start = clock.monotonic();
        drop(take(&*contestant.credential, &scope)?);
        hits.push(clock.monotonic().saturating_sub(start).as_secs_f64());
    }
    Ok(quantile(&mut hits, TAIL))
}
