//! Benchmark of the local Azure: its vaults beside a server that returns the same bytes without any work, and
//! its blobs beside Azurite. Start, memory, throughput, processor time for each request, and the cost of one
//! operation for different numbers of objects.
//!
//! It only measures. `cargo xtask bench azure` compares the results with the goals.

mod azure_client;
mod blob_benchmark;
mod blob_requests;
mod https_connection;
mod key_vault_benchmark;
mod load_generator;
mod object_count_benchmark;
mod server_certificate;
mod server_process;
mod start_benchmark;
mod stored_objects;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use parking_lot::Mutex;
use serde::Serialize;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The programs and files of the benchmark.
#[derive(Debug)]
pub(crate) struct AzureBenchmarkInputs {
    pub(crate) lanyard_program: PathBuf,
    /// The HostedCluster for which the local Azure is seeded.
    pub(crate) hosted_cluster: PathBuf,
    /// The server that returns the same response to every request.
    pub(crate) bare_server_program: PathBuf,
    /// The script of Azurite's blob service; `None` if Node.js is not installed.
    pub(crate) azurite_script: Option<PathBuf>,
    pub(crate) scale: AzureBenchmarkScale,
    /// The output file.
    pub(crate) output: PathBuf,
}

/// The extent of a benchmark run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AzureBenchmarkScale {
    /// The largest number of objects of each kind.
    objects: usize,
    warm_up: Duration,
    /// How long the requests of a load count.
    window: Duration,
    /// How often each load is repeated; the best round counts.
    rounds: usize,
    /// How often each server is started; the median counts.
    starts: usize,
    /// How long a process may settle before its memory is measured.
    rest: Duration,
}

impl AzureBenchmarkScale {
    /// The extent for a number of objects. A run with few objects only checks that the benchmark works.
    pub(crate) const fn for_objects(objects: usize) -> Self {
        if objects < FULL_OBJECT_COUNT {
            return Self {
                objects,
                warm_up: Duration::from_millis(100),
                window: Duration::from_millis(400),
                rounds: 1,
                starts: 3,
                rest: Duration::from_millis(500),
            };
        }
        Self {
            objects,
            warm_up: Duration::from_millis(500),
            window: Duration::from_secs(3),
            rounds: 3,
            starts: 11,
            rest: Duration::from_secs(5),
        }
    }
}

/// The number of objects from which a run counts as a full run.
const FULL_OBJECT_COUNT: usize = 50_000;

/// One measured value.
#[derive(Debug, Clone, Serialize)]
struct AzureMeasurement {
    subject: &'static str,
    metric: String,
    unit: &'static str,
    value: f64,
}

/// Subjects in the results.
const LANYARD_SUBJECT: &str = "lanyard azure";
const BARE_SERVER_SUBJECT: &str = "bare TLS server";
const AZURITE_SUBJECT: &str = "Azurite 3.35.0";

/// The measured values of a run.
#[derive(Debug, Default)]
struct AzureMeasurements(Vec<AzureMeasurement>);

impl AzureMeasurements {
    fn add(&mut self, subject: &'static str, metric: &str, unit: &'static str, value: f64) {
        print_progress(&format!("{subject}: {metric} {value:.3} {unit}"));
        self.0.push(AzureMeasurement { subject, metric: metric.to_owned(), unit, value });
    }
}

/// A part of the benchmark. Each part starts its own servers.
#[derive(Debug, Clone, Copy)]
enum AzureBenchmarkPart {
    Start,
    KeyVault,
    ObjectCounts,
    Blobs,
}

impl AzureBenchmarkPart {
    const ALL: [Self; 4] = [Self::Start, Self::KeyVault, Self::ObjectCounts, Self::Blobs];

    const fn name(self) -> &'static str {
        match self {
            Self::Start => "measure_azure::start",
            Self::KeyVault => "measure_azure::key_vault",
            Self::ObjectCounts => "measure_azure::object_counts",
            Self::Blobs => "measure_azure::blobs",
        }
    }

    async fn measure(
        self,
        inputs: &AzureBenchmarkInputs,
        directory: &std::path::Path,
    ) -> Result<AzureMeasurements, Failed> {
        match self {
            Self::Start => start_benchmark::measure_starts(inputs, directory).await,
            Self::KeyVault => key_vault_benchmark::measure_key_vault(inputs, directory).await,
            Self::ObjectCounts => {
                object_count_benchmark::measure_object_counts(inputs, directory).await
            }
            Self::Blobs => blob_benchmark::measure_blobs(inputs, directory).await,
        }
    }
}

/// The trials that run the parts of the benchmark. A trial fails if something could not be measured. Each
/// writes the results so far to the output file.
pub(crate) fn trials(inputs: AzureBenchmarkInputs) -> Vec<Trial> {
    let (inputs, results) = (Arc::new(inputs), Arc::new(Mutex::new(AzureMeasurements::default())));
    let trial = |part: AzureBenchmarkPart| {
        let (inputs, results) = (Arc::clone(&inputs), Arc::clone(&results));
        Trial::test(part.name(), move || {
            let directory = TempDir::new()?;
            let measured =
                Runtime::new()?.block_on(part.measure(&inputs, directory.path())).inspect_err(
                    // The caller reads only the results, so the error goes to standard error.
                    |failed| print_progress(failed.message().unwrap_or_default()),
                )?;
            let mut results = results.lock();
            results.0.extend(measured.0);
            fs::write(&inputs.output, serde_json::to_string(&results.0)?)?;
            Ok(())
        })
    };
    AzureBenchmarkPart::ALL.map(trial).into()
}

/// Prints a line to standard error.
fn print_progress(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// The median of some durations, in milliseconds.
fn median_milliseconds(mut durations: Vec<Duration>) -> Result<f64, Failed> {
    durations.sort_unstable();
    let median = durations.get(durations.len() / 2).ok_or("nothing was measured")?;
    Ok(median.as_secs_f64() * 1e3)
}

/// Converts a count to a double. The counts of the benchmark are far below 2^53.
fn count_to_f64(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::INFINITY, f64::from)
}
