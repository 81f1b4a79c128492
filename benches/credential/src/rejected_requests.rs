//! Twenty callers while the service refuses.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::error::BenchError;
use crate::library::{self, BenchmarkedLibrary, LanyardLibrary, scope_name};
use crate::measurement::{CredentialMeasurement, count_as_f64};
use crate::service::ServiceResponse;

const CALLERS: usize = 20;
const LATENCY: Duration = Duration::from_millis(200);

pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = library::runtime()?;
    let lanyard =
        LanyardLibrary::open(&runtime, clock, ServiceResponse::UnauthorizedClient, LATENCY)?;
    let peer =
        BenchmarkedLibrary::azure_identity(clock, ServiceResponse::UnauthorizedClient, LATENCY)?;
    let mut measured = Vec::new();
    for contestant in [&lanyard.library, &peer] {
        let longest = longest_caller_wait(&runtime, clock, contestant)?;
        let requests = count_as_f64(contestant.service.request_count());
        measured.push(CredentialMeasurement::count(
            contestant.name,
            "refused_requests",
            "requests",
            requests,
        ));
        measured.push(CredentialMeasurement::milliseconds(
            contestant.name,
            "refused_longest_wait",
            longest,
        ));
    }
    Ok(measured)
}

fn longest_caller_wait(
    runtime: &Runtime,
    clock: SystemClock,
    contestant: &BenchmarkedLibrary,
) -> Result<Duration, BenchError> {
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let credential = Arc::clone(&contestant.credential);
                tokio::spawn(async move {
                    let start = clock.monotonic();
                    let refused = credential.get_token(&[&scope_name(0)], None).await.is_err();
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
