//! Measures `lanyard-credential` and `azure_identity` in one process.
//!
//! Writes a JSON array of [`CredentialMeasurement`] to standard output, and the progress to standard
//! error. Both libraries send their requests to a token service in this process.

mod cached_tokens;
mod cold_scope;
mod error;
mod hanging_requests;
mod library;
mod measurement;
mod rejected_requests;
mod reload;
mod service;
mod threads;

use std::io::{self, Write as _};
use std::process::ExitCode;

use lanyard_clock::SystemClock;

use crate::error::BenchError;
use crate::measurement::CredentialMeasurement;

type BenchmarkFunction = fn(SystemClock) -> Result<Vec<CredentialMeasurement>, BenchError>;

const BENCHMARKS: [(&str, BenchmarkFunction); 6] = [
    ("cached tokens", cached_tokens::measure),
    ("threads", threads::measure),
    ("callers on a cold scope", cold_scope::measure),
    ("cached tokens while a request hangs", hanging_requests::measure),
    ("callers of a service that returns errors", rejected_requests::measure),
    ("reload", reload::measure),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                eprintln!("  caused by: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), BenchError> {
    let clock = SystemClock::new();
    let mut measurements = Vec::new();
    for (name, measure) in BENCHMARKS {
        eprintln!("credential: {name}");
        measurements.extend(measure(clock)?);
    }
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &measurements)?;
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(BenchError::Output)
}
