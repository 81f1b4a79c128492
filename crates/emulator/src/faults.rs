//! Faults to inject.

use serde::{Deserialize, Serialize};

/// The rules of injected faults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Faults {}
