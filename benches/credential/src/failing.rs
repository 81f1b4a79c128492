//! Twenty callers while the service refuses.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::contestant::{self, Contestant, Lanyard, scope};
use crate::failure::BenchError;
use crate::measurement::{Measurement, number};
use crate::service::Answer;

const CALLERS: usize = 20;
const LATENCY: Duration = Duration::from_millis(200);

pub fn measure(clock: SystemClock) -> Result<Vec<Measurement>, BenchError> {
    let runtime = contestant::runtime()?;
    let lanyard = Lanyard::open(&runtime, clock, Answer::Refusal, LATENCY)?;
    let peer = Contestant::azure_identity(clock, Answer::Refusal, LATENCY)?;
    let mut measured = Vec::new();
    for contestant in [&lanyard.contestant, &peer] {
        let longest = longest_wait(&runtime, clock, contestant)?;
        let requests = number(contestant.service.requests());
        measured.push(Measurement::count(
            contestant.name,
            "refused_requests",
            "requests",
            requests,
        ));
        measured.push(Measurement::milliseconds(contestant.name, "refused_longest_wait", longest));
    }
    Ok(measured)
}

fn longest_wait(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &Contestant,
) -> Result<Duration, BenchError> {
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let credential = Arc::clone(&contestant.credential);
                tokio::spawn(async move {
                    let start = clock.monotonic();
                    let refused = credential.get_token(&[&scope(0)], None).await.is_err();
                    (refused, clock.monotonic().saturating_sub(start))
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        for caller in callers {
            let (refused, wait) = caller.await?;
            if !refused {
                let what = "a caller got a token from a service that refuses".to_owned();
                return Err(BenchError::Unexpected { subject: contestant.name, what });
            }
            longest = longest.max(wait);
        }
        Ok(longest)
    })
}
