//! How far a write got, and how an accepted one is followed.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far a write got with its request.
#[derive(Debug)]
pub enum WriteProgress {
    /// The write is complete; the body of the resource, or null after a deletion.
    Complete(Value),
    /// The service works on the write.
    Accepted(AcceptedWrite),
}

/// What an access needs to follow a write that the service accepted, also in another process. It may contain signed
/// URLs, so it is not shown.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AcceptedWrite(Value);

impl AcceptedWrite {
    /// The access's own document.
    pub const fn new(document: Value) -> Self {
        Self(document)
    }

    /// The access's own document.
    pub const fn document(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for AcceptedWrite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AcceptedWrite").finish_non_exhaustive()
    }
}

/// How long and how often an accepted write is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimits {
    /// The pause between two polls if the service names none.
    pub interval: Duration,
    /// The longest wait.
    pub timeout: Duration,
}
