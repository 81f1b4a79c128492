//! What it costs to take a new version of the credential file.

use std::fs;
use std::time::Duration;

use lanyard_clock::{Clock as _, SystemClock};
use lanyard_credential::{CredentialFile, CredentialFileOptions, ReloadOutcome};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime;

use crate::error::BenchError;
use crate::library::{LANYARD, credential_document};
use crate::measurement::{CredentialMeasurement, median};

const RELOADS: usize = 300;

/// `azure_identity` has no counterpart: its certificate does not change while it lives.
pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(BenchError::Runtime)?;
    let folder = tempfile::tempdir().map_err(BenchError::File)?;
    let path = folder.path().join("identity.json");
    let write = |version| fs::write(&path, credential_document(version)).map_err(BenchError::File);
    write(0)?;
    let mut options = CredentialFileOptions::default();
    options.events = false;
    let opening = CredentialFile::open(&path, options, SystemClock::shared());
    let file = runtime.block_on(opening)?;
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for version in 1..=RELOADS {
        write(version)?;
        let (start, start_of_cpu) = (clock.monotonic(), processor_time());
        let outcome = runtime.block_on(file.reload());
        cpu.push(processor_time().saturating_sub(start_of_cpu).as_secs_f64());
        wall.push(clock.monotonic().saturating_sub(start).as_secs_f64());
        if !matches!(outcome, ReloadOutcome::Changed(_)) {
            let what = format!("a new version was {outcome:?}");
            return Err(BenchError::Unexpected { subject: LANYARD, what });
        }
    }
    let row = |metric, samples: &mut Vec<f64>| {
        CredentialMeasurement::milliseconds(
            LANYARD,
            metric,
            Duration::from_secs_f64(median(samples)),
        )
    };
    Ok(vec![row("reload_cpu", &mut cpu), row("reload_wall", &mut wall)])
}

/// The processor time of the whole process, whichever thread did the work.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
