//! What the end of a road came to.

use crate::roadbed::RoadError;

/// What the end of a road came to. Nothing that could not be cleared away keeps the rest from it.
#[derive(Debug, Default)]
#[must_use]
pub struct Closed {
    /// What stays on a server of others because these have put something into it, a sentence each.
    pub stays: Vec<String>,
    /// What could not be cleared away.
    pub left: Vec<RoadError>,
}

impl From<Result<(), RoadError>> for Closed {
    fn from(closed: Result<(), RoadError>) -> Self {
        Self { stays: Vec::new(), left: closed.err().into_iter().collect() }
    }
}
