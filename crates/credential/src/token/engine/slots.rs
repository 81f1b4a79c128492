//! The fetches of an engine, by key: those under way, and those that failed a moment ago.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Flight, SharedOutcome};
use crate::token::error::TokenError;
use crate::token::request::TokenKey;

/// What is under way or has failed, by key.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) by_key: HashMap<TokenKey, Slot>,
}

pub(super) enum Slot {
    InFlight(SharedOutcome),
    Failed { until: Duration, error: TokenError, streak: u32 },
}

impl Slots {
    /// Clears the slot that `flight` holds; false if it no longer holds it.
    pub(super) fn vacate(&mut self, flight: &Flight) -> bool {
        let held = matches!(
            self.by_key.get(&flight.key),
            Some(Slot::InFlight(outcome)) if Arc::ptr_eq(outcome, &flight.outcome)
        );
        if held {
            self.by_key.remove(&flight.key);
        }
        held
    }

    pub(super) fn prune(&mut self, now: Duration) {
        if self.by_key.len() > MANY_SLOTS {
            self.by_key.retain(|_, slot| match slot {
                Slot::InFlight(_) => true,
                Slot::Failed { until, .. } => now < *until,
            });
        }
    }
}

/// Above this many slots, failures that nobody asks about any more are cleared away.
const MANY_SLOTS: usize = 1_024;
