//! Whose turn it is at one host: those who wait, by priority and then by arrival.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::breaker::{Breaker, Probe};
use crate::pace::{Pace, Rate};

/// Which of the requests that wait for a host goes first.
///
/// A higher one passes all lower ones that still wait. Lower ones may starve while higher ones
/// keep coming; they are then refused, because all turns are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Somebody cannot begin without the answer.
    High,
    /// Somebody waits for it.
    #[default]
    Normal,
    /// Nobody waits: it is time to look again.
    Low,
}

/// A place in the queue of a host; the least is the first.
pub(crate) type Place = (Priority, u64);

/// What is known of one host, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) pace: Pace,
    pub(crate) breaker: Breaker,
    waiting: BTreeMap<Place, Arc<Notify>>,
    arrivals: u64,
}

/// What somebody in the queue does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Sends; the place is gone. The request may be the one that decides about an outage.
    Go(Option<Probe>),
    /// Is the first, and looks again after this time.
    Wait(Duration),
    /// Waits until the first is gone.
    Queue,
    /// Goes away: the host is left alone for this time, because it failed.
    Outage(Duration),
}

impl Host {
    /// Joins the queue; the bell rings when it is time to [`Self::step`] again.
    pub(crate) fn join(&mut self, priority: Priority) -> (Place, Arc<Notify>) {
        let place = (priority, self.arrivals);
        self.arrivals += 1;
        let bell = Arc::new(Notify::new());
        self.waiting.insert(place, Arc::clone(&bell));
        (place, bell)
    }

    /// What the one at `place` does now.
    pub(crate) fn step(&mut self, place: Place, now: Duration, rate: Rate) -> Step {
        let outage = self.breaker.closed_in(now);
        if !outage.is_zero() {
            return Step::Outage(outage);
        }
        if self.waiting.first_key_value().is_some_and(|(first, _)| *first != place) {
            return Step::Queue;
        }
        let wait = self.pace.ready_in(now, rate);
        if !wait.is_zero() {
            return Step::Wait(wait);
        }
        self.pace.take(now, rate);
        let probe = self.breaker.begin(now);
        self.leave(place);
        Step::Go(probe)
    }

    /// Leaves the queue, and rings for whoever is the first then.
    pub(crate) fn leave(&mut self, place: Place) {
        self.waiting.remove(&place);
        if let Some((_, bell)) = self.waiting.first_key_value() {
            bell.notify_one();
        }
    }

    /// How long the one at `place` will wait, if nobody passes it.
    pub(crate) fn estimate(&self, place: Place, now: Duration, rate: Rate) -> Duration {
        let ahead = u32::try_from(self.waiting.range(..place).count()).unwrap_or(u32::MAX);
        self.pace.ready_in(now, rate).saturating_add(rate.interval().saturating_mul(ahead))
    }

    /// Rings for everybody: what all of them wait for will not come.
    pub(crate) fn ring(&self) {
        for bell in self.waiting.values() {
            bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 1 };
    const TENTH: Duration = Duration::from_millis(100);

    #[test]
    fn a_higher_priority_passes_those_who_wait_and_equals_keep_their_order() {
        let mut host = Host::default();
        host.pace.take(Duration::ZERO, RATE);
        let priorities =
            [Priority::Low, Priority::Normal, Priority::Low, Priority::High, Priority::High];
        let places = priorities.map(|priority| host.join(priority).0);
        let (mut now, mut order) = (Duration::ZERO, Vec::new());
        while order.len() < places.len() {
            now += TENTH;
            let gone = places.iter().position(|place| {
                !order.contains(place) && host.step(*place, now, RATE) == Step::Go(None)
            });
            order.push(places[gone.unwrap()]);
        }
        let expected = [3, 4, 1, 0, 2].map(|index: usize| places[index]);
        assert_eq!(order, expected);
    }

    #[test]
    fn the_wait_is_estimated_by_those_ahead() {
        let mut host = Host::default();
        host.pace.take(Duration::ZERO, RATE);
        let (low, _) = host.join(Priority::Low);
        host.join(Priority::High);
        host.join(Priority::High);
        assert_eq!(host.estimate(low, Duration::ZERO, RATE), TENTH * 3);
    }
}
