//! The app_service service.

use crate::operations::Operation;

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[];
