//! What stops a measurement.

use std::io;

use lanyard_credential::LoadError;
use thiserror::Error;

/// A measurement that would have said nothing.
#[derive(Debug, Error)]
pub enum BenchError {
    #[error("the runtime did not start")]
    Runtime(#[source] io::Error),
    #[error("the credential file could not be written")]
    File(#[source] io::Error),
    #[error("the credential file could not be used")]
    Load(#[from] LoadError),
    #[error("a token was refused")]
    Token(#[from] azure_core::Error),
    #[error("a caller did not come to its end")]
    Caller(#[from] tokio::task::JoinError),
    #[error("{subject} did not do what is measured here: {what}")]
    Unexpected { subject: &'static str, what: String },
    #[error("the measurements could not be written")]
    Output(#[source] io::Error),
    #[error("the measurements could not be encoded")]
    Json(#[from] serde_json::Error),
}
