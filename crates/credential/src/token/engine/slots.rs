//! The fetches of an engine by key: those in flight, and those that failed recently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{InFlightFetch, SharedFetchOutcome};
use crate::token::error::TokenError;
use crate::token::request::TokenKey;

/// Fetches in flight and recent failures, by key.
#[derive(Default)]
pub(super) struct FetchSlots {
    pub(super) by_key: HashMap<TokenKey, FetchSlot>,
}

pub(super) enum FetchSlot {
    InFlight(SharedFetchOutcome),
    Failed { until: Duration, error: TokenError, consecutive_failures: u32 },
}

impl FetchSlots {
    /// Clears the slot of `flight`; returns `false` if another fetch holds the slot.
    pub(super) fn remove_in_flight(&mut self, fetch: &InFlightFetch) -> bool {
        let held = matches!(
            self.by_key.get(&fetch.key),
            Some(FetchSlot::InFlight(outcome)) if Arc::ptr_eq(outcome, &fetch.outcome)
        );
        if held {
            self.by_key.remove(&fetch.key);
        }
        held
    }

    pub(super) fn prune_expired_failures(&mut self, now: Duration) {
        if self.by_key.len() > PRUNE_THRESHOLD {
            self.by_key.retain(|_, slot| match slot {
                FetchSlot::InFlight(_) => true,
                FetchSlot::Failed { until, .. } => now < *until,
            });
        }
    }
}

/// Above this number of slots, expired failures are removed.
const PRUNE_THRESHOLD: usize = 1_024;
