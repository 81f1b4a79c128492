//! The lowest number of requests that Azure Resource Manager would still have accepted at once.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::response_headers::ResponseHeaders;

/// The lowest values of the headers `x-ms-ratelimit-remaining-subscription-*` since the client was created. Azure
/// fills its token buckets for each subscription and principal all the time, so these are no daily quotas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitHeadroom {
    /// Reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<u32>,
    /// Writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<u32>,
    /// Deletions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletes: Option<u32>,
}

impl fmt::Display for RateLimitHeadroom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = [("reads", self.reads), ("writes", self.writes), ("deletions", self.deletes)];
        let known: Vec<_> = values
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{} {name}", value?)))
            .collect();
        write!(formatter, "lowest rate limit headroom: {}", known.join(", "))
    }
}

/// Collects the lowest values of all clones of a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadroomRecorder(Arc<Mutex<RateLimitHeadroom>>);

impl HeadroomRecorder {
    pub(crate) fn observe(&self, headers: &ResponseHeaders) {
        let mut lowest = self.0.lock();
        let smaller = |known: Option<u32>, new| known.into_iter().chain(new).min();
        lowest.reads = smaller(lowest.reads, headers.remaining_reads);
        lowest.writes = smaller(lowest.writes, headers.remaining_writes);
        lowest.deletes = smaller(lowest.deletes, headers.remaining_deletes);
    }

    /// The lowest values; `None` if no reply had the headers.
    pub(crate) fn lowest(&self) -> Option<RateLimitHeadroom> {
        let lowest = *self.0.lock();
        (lowest != RateLimitHeadroom::default()).then_some(lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_value_of_each_kind_is_kept() {
        let recorder = HeadroomRecorder::default();
        assert_eq!(recorder.lowest(), None);
        for remaining_writes in [Some(199), Some(12), None, Some(80)] {
            recorder.observe(&ResponseHeaders { remaining_writes, ..ResponseHeaders::default() });
        }
        let lowest = recorder.lowest().unwrap();
        assert_eq!((lowest.reads, lowest.writes), (None, Some(12)));
        assert_eq!(lowest.to_string(), "lowest rate limit headroom: 12 writes");
    }
}
