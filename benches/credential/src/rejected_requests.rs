//! Measures 20 concurrent callers while the token service returns an error.

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
    let azure_identity =
        BenchmarkedLibrary::azure_identity(clock, ServiceResponse::UnauthorizedClient, LATENCY)?;
    let mut measured = Vec::new();
    for library in [&lanyard.library, &azure_identity] {
        let longest = longest_caller_wait(&runtime, clock, library)?;
        let requests = count_as_f64(library.service.request_count());
        measured.push(CredentialMeasurement::count(
            library.name,
            "refused_requests",
            "requests",
            requests,
        ));
        measured.push(CredentialMeasurement::milliseconds(
            library.name,
            "refused_longest_wait",
            longest,
        ));
    }
    Ok(measured)
}

fn longest_caller_wait(
    runtime: &Runtime,
    clock: SystemClock,
    library: &BenchmarkedLibrary,
) -> Result<Duration, BenchError> {
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let credential = Arc::clone(&library.credential);
                tokio::spawn(async move {
                    let start = clock.monotonic();
                    let failed = credential.get_token(&[&scope_name(0)], None).await.is_err();
                    (failed, clock.monotonic().saturating_sub(start))
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        for caller in callers {
            let (failed, wait) = caller.await?;
            if !failed {
                let what =
                    "a caller received a token although the service returns errors".to_owned();
                return Err(BenchError::Unexpected { subject: library.name, what });
            }
            longest = longest.max(wait);
        }
        Ok(longest)
    })
}
