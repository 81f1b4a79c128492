//! The Blob service of storage accounts.

use crate::operations::ServiceOperation;

/// The operations of the Blob service.
pub(crate) const OPERATIONS: &[&[ServiceOperation]] = &[];

/// The operations of static websites.
pub(crate) const WEBSITE_OPERATIONS: &[&[ServiceOperation]] = &[];
