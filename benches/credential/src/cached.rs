//! What a cached token costs: time and allocations, with few and with many scopes held.

use std::hint::black_box;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};

use crate::contestant::{self, Contestant, LANYARD, Lanyard, scope, take};
use crate::failure::BenchError;
use crate::measurement::{Measurement, median, number};
use crate::service::Answer;

/// Rounds in which every racer runs once, so that a disturbance of the machine hits all alike.
const ROUNDS: usize = 2_000;
/// Calls of one racer in one round: so few that most rounds pass without losing the processor.
const CALLS: usize = 1_000;
const MANY: usize = 1_000;

/// Code that is timed, with the metric that it is timed for.
struct Racer<'a> {
    subject: &'static str,
    metric: &'static str,
    allocations: Option<&'static str>,
    call: Box<dyn FnMut() + 'a>,
}

pub fn measure(clock: SystemClock) -> Result<Vec<Measurement>, BenchError> {
    let runtime = contestant::runtime()?;
    let open = |scopes| {
        let lanyard = Lanyard::open(&runtime, clock, Answer::DayLongToken, Duration::ZERO)?;
        let peer = Contestant::azure_identity(clock, Answer::DayLongToken, Duration::ZERO)?;
        lanyard.contestant.fill(&runtime, scopes)?;
        peer.fill(&runtime, scopes)?;
        Ok::<_, BenchError>((lanyard, peer))
    };
    let (lanyard_one, peer_one) = open(1)?;
    let (lanyard_many, peer_many) = open(MANY)?;
    let all: Vec<String> = (0..MANY).map(scope).collect();
    let (first, middle) = (&all[0], &all[MANY / 2]);
    let racers = [
        getting(&lanyard_one.contestant, first, ONE_SCOPE, Some(ONE_SCOPE_ALLOCATIONS)),
        getting(&peer_one, first, ONE_SCOPE, Some(ONE_SCOPE_ALLOCATIONS)),
        getting(&lanyard_many.contestant, middle, MANY_SCOPES, Some(MANY_SCOPES_ALLOCATIONS)),
        getting(&peer_many, middle, MANY_SCOPES, Some(MANY_SCOPES_ALLOCATIONS)),
        in_turn(&lanyard_many.contestant, &all),
        in_turn(&peer_many, &all),
        lending(&lanyard_one, first, "lent_token_1_scope", Some("lent_token_1_scope_allocations")),
        lending(&lanyard_many, middle, "lent_token_1000_scopes", None),
    ];
    check(&[&lanyard_one.contestant, &peer_one], 1)?;
    check(&[&lanyard_many.contestant, &peer_many], MANY)?;
    let measured = race(clock, racers);
    // Nothing was asked for again: what ran were hits.
    check(&[&lanyard_one.contestant, &peer_one], 1)?;
    check(&[&lanyard_many.contestant, &peer_many], MANY)?;
    Ok(measured)
}

fn getting<'a>(
    contestant: &'a Contestant,
    scope: &'a str,
    metric: &'static str,
    allocations: Option<&'static str>,
) -> Racer<'a> {
    let credential = &*contestant.credential;
    let call = Box::new(move || drop(black_box(take(black_box(credential), black_box(scope)))));
    Racer { subject: contestant.name, metric, allocations, call }
}

/// Every scope in turn: tokens are not in the processor's nearest cache, as in a busy program.
fn in_turn<'a>(contestant: &'a Contestant, scopes: &'a [String]) -> Racer<'a> {
    let credential = &*contestant.credential;
    let mut turn = scopes.iter().cycle();
    let call = Box::new(move || {
        if let Some(scope) = turn.next() {
            drop(black_box(take(black_box(credential), scope)));
        }
    });
    Racer { subject: contestant.name, metric: IN_TURN, allocations: None, call }
}

fn lending<'a>(
    lanyard: &'a Lanyard,
    scope: &'a str,
    metric: &'static str,
    allocations: Option<&'static str>,
) -> Racer<'a> {
    let credential = &*lanyard.credential;
    let call = Box::new(move || {
        black_box(credential.with_cached_token(black_box(scope), str::len));
    });
    Racer { subject: LANYARD, metric, allocations, call }
}

fn race<const N: usize>(clock: SystemClock, mut racers: [Racer<'_>; N]) -> Vec<Measurement> {
    let mut samples = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (racer, samples) in racers.iter_mut().zip(&mut samples) {
            let start = clock.monotonic();
            // Counting takes some of the time that is measured here.
            allocation_counter::opt_out(|| (0..CALLS).for_each(|_| (racer.call)()));
            let elapsed = clock.monotonic().saturating_sub(start);
            samples.push(elapsed.as_secs_f64() * 1e9 / number(CALLS));
        }
    }
    let mut measured = Vec::new();
    for (racer, samples) in racers.iter_mut().zip(&mut samples) {
        measured.push(Measurement::nanoseconds(racer.subject, racer.metric, median(samples)));
        if let Some(metric) = racer.allocations {
            let info = allocation_counter::measure(|| (0..CALLS).for_each(|_| (racer.call)()));
            let total = usize::try_from(info.count_total).unwrap_or(usize::MAX);
            let each = number(total) / number(CALLS);
            measured.push(Measurement::count(racer.subject, metric, "allocations", each));
        }
    }
    measured
}

fn check(contestants: &[&Contestant], requests: usize) -> Result<(), BenchError> {
    for contestant in contestants {
        let made = contestant.service.requests();
        if made != requests {
            let what = format!("{made} requests for {requests} scopes");
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
