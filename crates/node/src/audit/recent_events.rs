//! The recently recorded audit events.

use std::collections::{HashSet, VecDeque};

use aws_lc_rs::digest::{SHA256, digest};

use crate::audit::event::AuditEvent;

/// The number of remembered events: some hundred pods with some ten objects, many times over. At most two
/// megabytes.
pub(super) const MAX_REMEMBERED_EVENTS: usize = 16_384;

/// Remembers events by their digests. The oldest is evicted first, regardless of repetitions: its next
/// occurrence is written again, which is harmless.
#[derive(Debug, Default)]
pub(super) struct RecentAuditEvents {
    digests: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl RecentAuditEvents {
    /// Removes an event that was not written. Its place in the order stays, so that the event is evicted
    /// early if it occurs again, which is harmless.
    pub(super) fn remove(&mut self, event: &AuditEvent) {
        if let Some(key) = event_digest(event) {
            self.digests.remove(&key);
        }
    }

    /// Inserts an event and returns whether it is new.
    pub(super) fn insert(&mut self, event: &AuditEvent) -> bool {
        let Some(key) = event_digest(event) else { return true };
        if !self.digests.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_REMEMBERED_EVENTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
        true
    }
}

/// Returns the digest of all fields of the event.
fn event_digest(event: &AuditEvent) -> Option<[u8; 32]> {
    let text = serde_json::to_vec(event).ok()?;
    digest(&SHA256, &text).as_ref().try_into().ok()
}
