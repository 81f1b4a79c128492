//! Measures the time and the allocations of one call for a cached token, with 1 and with 1 000 cached scopes.

use std::hint::black_box;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};

use crate::error::BenchError;
use crate::library::{
    self, BenchmarkedLibrary, LANYARD, LanyardLibrary, get_token_now, scope_name,
};
use crate::measurement::{CredentialMeasurement, count_as_f64, median};
use crate::service::ServiceResponse;

/// Each round runs every timed call once, so that other load on the machine affects all of them equally.
const ROUNDS: usize = 2_000;
/// Calls in one round: few enough that the thread is rarely preempted during a round.
const CALLS: usize = 1_000;
const MANY_SCOPE_COUNT: usize = 1_000;

/// A call to measure, with the names of its metrics.
struct TimedCall<'a> {
    subject: &'static str,
    metric: &'static str,
    /// The metric of the allocations of one call, if they are counted.
    allocation_metric: Option<&'static str>,
    call: Box<dyn FnMut() + 'a>,
}

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    let open_both = |scopes| {
        let lanyard =
            LanyardLibrary::open(&runtime, clock, ServiceResponse::DayLongToken, Duration::ZERO)?;
        let azure_identity = BenchmarkedLibrary::azure_identity(
            clock,
            ServiceResponse::DayLongToken,
            Duration::ZERO,
        )?;
        lanyard.library.prefetch_tokens(&runtime, scopes)?;
        azure_identity.prefetch_tokens(&runtime, scopes)?;
        Ok::<_, BenchError>((lanyard, azure_identity))
    };
    let (lanyard_one, azure_identity_one) = open_both(1)?;
    let (lanyard_many, azure_identity_many) = open_both(MANY_SCOPE_COUNT)?;
    let scopes: Vec<String> = (0..MANY_SCOPE_COUNT).map(scope_name).collect();
    let (first, middle) = (&scopes[0], &scopes[MANY_SCOPE_COUNT / 2]);
    let timed_calls = [
        get_token_call(&lanyard_one.library, first, ONE_SCOPE, Some(ONE_SCOPE_ALLOCATIONS)),
        get_token_call(&azure_identity_one, first, ONE_SCOPE, Some(ONE_SCOPE_ALLOCATIONS)),
        get_token_call(&lanyard_many.library, middle, MANY_SCOPES, Some(MANY_SCOPES_ALLOCATIONS)),
        get_token_call(&azure_identity_many, middle, MANY_SCOPES, Some(MANY_SCOPES_ALLOCATIONS)),
        rotating_scopes_call(&lanyard_many.library, &scopes),
        rotating_scopes_call(&azure_identity_many, &scopes),
        with_cached_token_call(
            &lanyard_one,
            first,
            "lent_token_1_scope",
            Some("lent_token_1_scope_allocations"),
        ),
        with_cached_token_call(&lanyard_many, middle, "lent_token_1000_scopes", None),
    ];
    check_request_count(&[&lanyard_one.library, &azure_identity_one], 1)?;
    check_request_count(&[&lanyard_many.library, &azure_identity_many], MANY_SCOPE_COUNT)?;
    let measured = run_interleaved(clock, timed_calls);
    // Without a further token request, every measured call returned a cached token.
    check_request_count(&[&lanyard_one.library, &azure_identity_one], 1)?;
    check_request_count(&[&lanyard_many.library, &azure_identity_many], MANY_SCOPE_COUNT)?;
    Ok(measured)
}

fn get_token_call<'a>(
    library: &'a BenchmarkedLibrary,
    scope: &'a str,
    metric: &'static str,
    allocation_metric: Option<&'static str>,
) -> TimedCall<'a> {
    let credential = &*library.credential;
    let call =
        Box::new(move || drop(black_box(get_token_now(black_box(credential), black_box(scope)))));
    TimedCall { subject: library.name, metric, allocation_metric, call }
}

/// A call that requests the scopes in turn, so that the next token is rarely in the nearest processor cache.
fn rotating_scopes_call<'a>(
    library: &'a BenchmarkedLibrary,
    scopes: &'a [String],
) -> TimedCall<'a> {
    let credential = &*library.credential;
    let mut remaining = scopes.iter().cycle();
    let call = Box::new(move || {
        if let Some(scope) = remaining.next() {
            drop(black_box(get_token_now(black_box(credential), scope)));
        }
    });
    TimedCall { subject: library.name, metric: MANY_SCOPES_IN_TURN, allocation_metric: None, call }
}

fn with_cached_token_call<'a>(
    lanyard: &'a LanyardLibrary,
    scope: &'a str,
    metric: &'static str,
    allocation_metric: Option<&'static str>,
) -> TimedCall<'a> {
    let credential = &*lanyard.credential;
    let call = Box::new(move || {
        black_box(credential.with_cached_token(black_box(scope), str::len));
    });
    TimedCall { subject: LANYARD, metric, allocation_metric, call }
}

fn run_interleaved<const N: usize>(
    clock: SystemClock,
    mut timed_calls: [TimedCall<'_>; N],
) -> Vec<CredentialMeasurement> {
    let mut samples = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (timed_call, samples) in timed_calls.iter_mut().zip(&mut samples) {
            let start = clock.monotonic();
            // Opted out, because counting would add to the measured time.
            allocation_counter::opt_out(|| (0..CALLS).for_each(|_| (timed_call.call)()));
            let elapsed = clock.monotonic().saturating_sub(start);
            samples.push(elapsed.as_secs_f64() * 1e9 / count_as_f64(CALLS));
        }
    }
    let mut measured = Vec::new();
    for (timed_call, samples) in timed_calls.iter_mut().zip(&mut samples) {
        measured.push(CredentialMeasurement::nanoseconds(
            timed_call.subject,
            timed_call.metric,
            median(samples),
        ));
        if let Some(metric) = timed_call.allocation_metric {
            let info = allocation_counter::measure(|| (0..CALLS).for_each(|_| (timed_call.call)()));
            let total = usize::try_from(info.count_total).unwrap_or(usize::MAX);
            let per_call = count_as_f64(total) / count_as_f64(CALLS);
            measured.push(CredentialMeasurement::count(
                timed_call.subject,
                metric,
                "allocations",
                per_call,
            ));
        }
    }
    measured
}

fn check_request_count(
    libraries: &[&BenchmarkedLibrary],
    expected: usize,
) -> Result<(), BenchError> {
    for library in libraries {
        let requests = library.service.request_count();
        if requests != expected {
            let what = format!("{requests} token requests for {expected} scopes");
            return Err(BenchError::Unexpected { subject: library.name, what });
        }
    }
    Ok(())
}

const ONE_SCOPE: &str = "cached_token_1_scope";
const ONE_SCOPE_ALLOCATIONS: &str = "cached_token_1_scope_allocations";
const MANY_SCOPES: &str = "cached_token_1000_scopes";
const MANY_SCOPES_ALLOCATIONS: &str = "cached_token_1000_scopes_allocations";
const MANY_SCOPES_IN_TURN: &str = "cached_token_1000_scopes_in_turn";
