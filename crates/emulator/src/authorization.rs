//! Role definitions and assignments.

use serde::{Deserialize, Serialize};

/// Role definitions and assignments.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Authorization {}
