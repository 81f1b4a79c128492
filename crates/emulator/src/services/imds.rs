//! The metadata service of a machine.

use lanyard_vocabulary::ClientId;
use serde::{Deserialize, Serialize};

use crate::operations::Operation;

/// Which identities the metadata service answers for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Imds {
    /// The managed identities that are assigned to the machine.
    pub(crate) assigned: Vec<ClientId>,
}

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[];
