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
const TAIL: f64 = 0.999;

pub fn measure(clock: SystemClock) -> Result<Vec<Measurement>, BenchError> {
    let runtime = contestant::runtime()?;
    // Requests begin in the background of the runtime that is entered.
    let _entered = runtime.enter();
    let mut measured = Vec::new();
    let lanyard = Lanyard::open(&runtime, clock, Answer::DayLongToken, Duration::ZERO)?;
    let peer = Contestant::azure_identity(clock, Answer::DayLongToken, Duration::ZERO)?;
    for contestant in [&lanyard.contestant, &peer] {
        measured.push(other_scope(&runtime, clock, contestant)?);
    }
    let lanyard = Lanyard::open(&runtime, clock, Answer::SoonDueToken, Duration::ZERO)?;
    let peer = Contestant::azure_identity(clock, Answer::SoonDueToken, Duration::ZERO)?;
    for contestant in [&lanyard.contestant, &peer] {
        measured.push(own_renewal(&runtime, clock, contestant)?);
    }
    Ok(measured)
}

/// A token is cached; a request for another scope hangs.
fn other_scope(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &Contestant,
) -> Result<Measurement, BenchError> {
    contestant.fill(runtime, 1)?;
    let baseline = tail(clock, contestant, |_| true)?;
    contestant.service.answer_after(HANG);
    let credential = Arc::clone(&contestant.credential);
    let other = runtime.spawn(async move { credential.get_token(&[&scope(1)], None).await });
    while !contestant.service.is_hanging() {
        runtime.block_on(clock.sleep(Duration::from_millis(1)));
    }
    let hanging = tail(clock, contestant, |contestant| contestant.service.is_hanging())?;
    runtime.block_on(other)??;
    Ok(over(contestant, "hit_beside_hanging_request", baseline, hanging))
}

/// A token is cached and due for renewal; the request that renews it hangs.
fn own_renewal(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &Contestant,
) -> Result<Measurement, BenchError> {
    contestant.fill(runtime, 1)?;
    let baseline = tail(clock, contestant, |_| true)?;
    contestant.service.answer_after(HANG);
    runtime.block_on(clock.sleep(DUE));
    let hanging = tail(clock, contestant, |contestant| {
        contestant.service.requests() < 2 || contestant.service.is_hanging()
    })?;
    if contestant.service.requests() < 2 {
        let what = "the token was not renewed".to_owned();
        return Err(BenchError::Unexpected { subject: contestant.name, what });
    }
    Ok(over(contestant, "hit_beside_hanging_renewal", baseline, hanging))
}

/// The 99.9th percentile of hits in seconds, while `goes_on` says so.
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

fn over(contestant: &Contestant, metric: &'static str, baseline: f64, hanging: f64) -> Measurement {
    let microseconds = ((hanging - baseline) * 1e6).max(0.0);
    Measurement::count(contestant.name, metric, "us", microseconds)
}
