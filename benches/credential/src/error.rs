//! The error of a benchmark run.

use std::io;

use lanyard_credential::LoadError;
use thiserror::Error;

/// The benchmark cannot run, or a library did not do what the benchmark measures.
#[derive(Debug, Error)]
pub enum BenchError {
    #[error("the Tokio runtime cannot start")]
    Runtime(#[source] io::Error),
    #[error("the credential file cannot be written")]
    File(#[source] io::Error),
    #[error("the credential file cannot be loaded")]
    Load(#[from] LoadError),
    #[error("a token request failed")]
    Token(#[from] azure_core::Error),
    #[error("the task of a caller failed")]
    Caller(#[from] tokio::task::JoinError),
    #[error("{subject}: unexpected result: {what}")]
    Unexpected { subject: &'static str, what: String },
    #[error("the measurements cannot be written")]
    Output(#[source] io::Error),
    #[error("the measurements cannot be encoded")]
    Json(#[from] serde_json::Error),
}
