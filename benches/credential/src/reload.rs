//! Measures the processor time and the elapsed time of loading a new version of the credential file.

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

/// Measures only lanyard: a credential of `azure_identity` does not reload its certificate.
pub fn measure(clock: SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(BenchError::Runtime)?;
    let directory = tempfile::tempdir().map_err(BenchError::File)?;
    let path = directory.path().join("identity.json");
    let write = |version| fs::write(&path, credential_document(version)).map_err(BenchError::File);
    write(0)?;
    let mut options = CredentialFileOptions::default();
    options.events = false;
    let open = CredentialFile::open(&path, options, SystemClock::shared());
    let file = runtime.block_on(open)?;
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for version in 1..=RELOADS {
        write(version)?;
        let (start, cpu_start) = (clock.monotonic(), processor_time());
        let outcome = runtime.block_on(file.reload());
        cpu.push(processor_time().saturating_sub(cpu_start).as_secs_f64());
        wall.push(clock.monotonic().saturating_sub(start).as_secs_f64());
        if !matches!(outcome, ReloadOutcome::Changed(_)) {
            let what = format!("{outcome:?} after a new version");
            return Err(BenchError::Unexpected { subject: LANYARD, what });
        }
    }
    let measurement = |metric, samples: &mut Vec<f64>| {
        CredentialMeasurement::milliseconds(
            LANYARD,
            metric,
            Duration::from_secs_f64(median(samples)),
        )
    };
    Ok(vec![measurement("reload_cpu", &mut cpu), measurement("reload_wall", &mut wall)])
}

/// The processor time of all threads of the process.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
