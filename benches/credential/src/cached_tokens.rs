//! What a cached token costs: time and allocations, with few and with many scopes held.

use std::hint::black_box;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};

use crate::error::BenchError;
use crate::library::{
    self, BenchmarkedLibrary, LANYARD, LanyardLibrary, get_token_now, scope_name,
};
use crate::measurement::{CredentialMeasurement, count_as_f64, median};
use crate::service::ServiceResponse;

/// Rounds in which every racer runs once, so that a disturbance of the machine hits all alike.
const ROUNDS: usize = 2_000;
/// Calls of one racer in one round: so few that most rounds pass without losing the processor.
const CALLS: usize = 1_000;
const MANY_SCOPE_COUNT: usize = 1_000;

/// Code that is timed, with the metric that it is timed for.
struct TimedCall<'a> {
    subject: &'static str,
    metric: &'static str,
    allocations: Option<&'static str>,
    call: Box<dyn FnMut() + 'a>,
}

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    let open = |scopes| {
        let lanyard =
            LanyardLibrary::open(&runtime, clock, ServiceResponse::DayLongToken, Duration::ZERO)?;
        let peer = BenchmarkedLibrary::azure_identity(
            clock,
            ServiceResponse::DayLongToken,
            Duration::ZERO,
        )?;
        lanyard.library.prefetch_tokens(&runtime, scopes)?;
        peer.prefetch_tokens(&runtime, scopes)?;
        Ok::<_, BenchError>((lanyard, peer))
    };
    let (lanyard_one, peer_one) = open(1)?;
    let (lanyard_many, peer_many) = open(MANY_SCOPE_COUNT)?;
    let all: Vec<String> = (0..MANY_SCOPE_COUNT).map(scope_name).collect();
    let (first, middle) = (&all[0], &all[MANY_SCOPE_COUNT / 2]);
    let racers = [
        get_token_call(&lanyard_one.library, first, ONE_SCOPE, Some(ONE_SCOPE_ALLOCATIONS)),
        get_token_call(&peer_one, first, ONE_SCOPE, Some(ONE_SCOPE_ALLOCATIONS)),
        get_token_call(&lanyard_many.library, middle, MANY_SCOPES, Some(MANY_SCOPES_ALLOCATIONS)),
        get_token_call(&peer_many, middle, MANY_SCOPES, Some(MANY_SCOPES_ALLOCATIONS)),
        rotating_scopes_call(&lanyard_many.library, &all),
        rotating_scopes_call(&peer_many, &all),
        with_cached_token_call(
            &lanyard_one,
            first,
            "lent_token_1_scope",
            Some("lent_token_1_scope_allocations"),
        ),
        with_cached_token_call(&lanyard_many, middle, "lent_token_1000_scopes", None),
    ];
    check_request_count(&[&lanyard_one.library, &peer_one], 1)?;
    check_request_count(&[&lanyard_many.library, &peer_many], MANY_SCOPE_COUNT)?;
    let measured = run_interleaved(clock, racers);
    // Nothing was asked for again: what ran were hits.
    check_request_count(&[&lanyard_one.library, &peer_one], 1)?;
    check_request_count(&[&lanyard_many.library, &peer_many], MANY_SCOPE_COUNT)?;
    Ok(measured)
}

fn get_token_call<'a>(
    contestant: &'a BenchmarkedLibrary,
    scope: &'a str,
    metric: &'static str,
    allocations: Option<&'static str>,
) -> TimedCall<'a> {
    let credential = &*contestant.credential;
    let call =
        Box::new(move || drop(black_box(get_token_now(black_box(credential), black_box(scope)))));
    TimedCall { subject: contestant.name, metric, allocations, call }
}

/// Every scope in turn: tokens are not in the processor's nearest cache, as in a busy program.
fn rotating_scopes_call<'a>(
    contestant: &'a BenchmarkedLibrary,
    scopes: &'a [String],
) -> TimedCall<'a> {
    let credential = &*contestant.credential;
    let mut slot = scopes.iter().cycle();
    let call = Box::new(move || {
        if let Some(scope) = slot.next() {
            drop(black_box(get_token_now(black_box(credential), scope)));
        }
    });
    TimedCall { subject: contestant.name, metric: IN_TURN, allocations: None, call }
}

fn with_cached_token_call<'a>(
    lanyard: &'a LanyardLibrary,
    scope: &'a str,
    metric: &'static str,
    allocations: Option<&'static str>,
) -> TimedCall<'a> {
    let credential = &*lanyard.credential;
    let call = Box::new(move || {
        black_box(credential.with_cached_token(black_box(scope), str::len));
    });
    TimedCall { subject: LANYARD, metric, allocations, call }
}

fn run_interleaved<const N: usize>(
    clock: SystemClock,
    mut racers: [TimedCall<'_>; N],
) -> Vec<CredentialMeasurement> {
    let mut samples = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (racer, samples) in racers.iter_mut().zip(&mut samples) {
            let start = clock.monotonic();
            // Counting takes some of the time that is measured here.
            allocation_counter::opt_out(|| (0..CALLS).for_each(|_| (racer.call)()));
            let elapsed = clock.monotonic().saturating_sub(start);
            samples.push(elapsed.as_secs_f64() * 1e9 / count_as_f64(CALLS));
        }
    }
    let mut measured = Vec::new();
    for (racer, samples) in racers.iter_mut().zip(&mut samples) {
        measured.push(CredentialMeasurement::nanoseconds(
            racer.subject,
            racer.metric,
            median(samples),
        ));
        if let Some(metric) = racer.allocations {
            let info = allocation_counter::measure(|| (0..CALLS).for_each(|_| (racer.call)()));
            let total = usize::try_from(info.count_total).unwrap_or(usize::MAX);
            let each = count_as_f64(total) / count_as_f64(CALLS);
            measured.push(CredentialMeasurement::count(racer.subject, metric, "allocations", each));
        }
    }
    measured
}

fn check_request_count(
    contestants: &[&BenchmarkedLibrary],
    requests: usize,
) -> Result<(), BenchError> {
    for contestant in contestants {
        let created = contestant.service.request_count();
        if created != requests {
            let what = format!("{created} requests for {requests} scopes");
            return Err(BenchError::Unexpected { subject: contestant.name, what });
        }
    }
    Ok(())
}

const ONE_SCOPE: &str = "cached_token_1_scope";
const ONE_SCOPE_ALLOCATIONS: &str = "cached_token_1_scope_allocations";
const MANY_SCOPES: &str = "cached_token_1000_scopes";
const MANY_SCOPES_ALLOCATIONS: &str = "cached_token_1000_scopes_allocations";
const IN_TURN: &str = "cached_token_1000_scopes_in_turn";
