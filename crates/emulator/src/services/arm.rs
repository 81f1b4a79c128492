//! Azure Resource Manager.

mod resources;

pub(crate) use resources::{RESOURCE_GROUP, Resource, Resources, Stored, Subscription};

use crate::operations::Operation;

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[];
