//! Ten thousand callers who want a token that nobody has yet.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::contestant::{self, Contestant, Lanyard, scope};
use crate::failure::BenchError;
use crate::measurement::{Measurement, median, number};
use crate::service::Answer;

const CALLERS: usize = 10_000;
/// Many, because one round differs from the next by more than the libraries differ.
const ROUNDS: usize = 41;
/// As far away as Entra is at best.
const LATENCY: Duration = Duration::from_millis(50);

pub fn measure(clock: SystemClock) -> Result<Vec<Measurement>, BenchError> {
    let runtime = contestant::runtime()?;
    let lanyard = Lanyard::open(&runtime, clock, Answer::DayLongToken, LATENCY)?;
    let peer = Contestant::azure_identity(clock, Answer::DayLongToken, LATENCY)?;
    let contestants = [&lanyard.contestant, &peer];
    let mut times = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for (contestant, times) in contestants.iter().zip(&mut times) {
            times.push(stampede(&runtime, clock, contestant, &scope(round))?.as_secs_f64());
        }
    }
    let mut measured = Vec::new();
    for (contestant, times) in contestants.iter().zip(&mut times) {
        let requests = number(contestant.service.requests()) / number(ROUNDS);
        let time = Duration::from_secs_f64(median(times));
        measured.push(Measurement::count(
            contestant.name,
            "cold_scope_requests",
            "requests",
            requests,
        ));
        measured.push(Measurement::milliseconds(contestant.name, "cold_scope_time", time));
    }
    Ok(measured)
}

/// From the first call to the last token.
fn stampede(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &Contestant,
    scope: &str,
) -> Result<Duration, BenchError> {
    let scope: Arc<str> = scope.into();
    let start = clock.monotonic();
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (credential, scope) = (Arc::clone(&contestant.credential), Arc::clone(&scope));
                tokio::spawn(async move { credential.get_token(&[&scope], None).await })
            })
            .collect();
        for caller in callers {
            caller.await??;
        }
        Ok(clock.monotonic().saturating_sub(start))
    })
}
