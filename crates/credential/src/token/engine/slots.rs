//! The fetches of an engine, by key: those under way, and those that failed a moment ago.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{InFlightFetch, SharedFetchOutcome};
use crate::token::error::TokenError;
use crate::token::request::TokenKey;

/// What is under way or has failed, by key.
#[derive(Default)]
pub(super) struct FetchSlots {
    pub(super) by_key: HashMap<TokenKey, FetchSlot>,
}

pub(super) enum FetchSlot {
    InFlight(SharedFetchOutcome),
    Failed { until: Duration, error: TokenError, consecutive_failures: u32 },
}

impl FetchSlots {
    /// Clears the slot that `flight` holds; false if it no longer holds it.
    pub(super) fn remove_in_flight(&mut self, flight: &InFlightFetch) -> bool {
        let held = matches!(
            self.by_key.get(&flight.key),
            Some(FetchSlot::InFlight(outcome)) if Arc::ptr_eq(outcome, &flight.outcome)
        );
        if held {
            self.by_key.remove(&flight.key);
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

/// Above this many slots, failures that nobody asks about any more are cleared away.
const PRUNE_THRESHOLD: usize = 1_024;
