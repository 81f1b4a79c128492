//! The data plane of vaults.

use serde::{Deserialize, Serialize};

use crate::operations::Operation;

/// The content of the vaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Vaults {}

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[];
