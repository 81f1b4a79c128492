//! Entity tags of containers and blobs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An entity tag of a container or blob.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlobEtag(pub(super) u64);

impl fmt::Display for BlobEtag {
    /// The tag without quotes, as in lists.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "0x{:X}", self.0)
    }
}
