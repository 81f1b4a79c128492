//! What was recorded a while ago.

use std::collections::{HashSet, VecDeque};

use aws_lc_rs::digest::{SHA256, digest};

use crate::audit::event::AuditEvent;

/// How many events are remembered: some hundred pods with some ten objects, many times over. Two
/// megabytes at most.
pub(super) const MAX_REMEMBERED_EVENTS: usize = 16_384;

/// Remembers events by their digests. The oldest is forgotten first, whoever met it since: an
/// event that comes again after that is written again, which is harmless.
#[derive(Debug, Default)]
pub(super) struct RecentAuditEvents {
    digests: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl RecentAuditEvents {
    /// Forgets an event that was not written. Its place in the order stays, and makes it forgotten
    /// early should it come again, which is harmless too.
    pub(super) fn remove(&mut self, event: &AuditEvent) {
        if let Some(key) = event_digest(event) {
            self.digests.remove(&key);
        }
    }

    /// Whether the event was not known yet; it is now.
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

/// The digest of everything that the event says.
fn event_digest(event: &AuditEvent) -> Option<[u8; 32]> {
    let text = serde_json::to_vec(event).ok()?;
    digest(&SHA256, &text).as_ref().try_into().ok()
}
