//! Azure Resource Manager.

use serde::{Deserialize, Serialize};

use crate::operations::Operation;

/// What Azure Resource Manager stores.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {}

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[];
