//! Whose turn it is at one host: those who wait, by priority, and within one in turns.

use std::collections::{BTreeMap, HashMap};
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

/// On whose behalf requests are sent. Within a priority everybody has a turn before somebody has
/// the next one, so that whoever has much to ask does not keep the others waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Asker(pub u64);

/// A place in the queue of a host: priority, round and arrival. The least is the first.
pub(crate) type Place = (Priority, u64, u64);

/// What is known of one host, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) pace: Pace,
    pub(crate) breaker: Breaker,
    waiting: BTreeMap<Place, Waiting>,
    askers: HashMap<(Priority, Asker), Turns>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    asker: Asker,
    bell: Arc<Notify>,
}

/// The places of one asker in one priority.
#[derive(Debug)]
struct Turns {
    places: usize,
    /// The round of the last of them.
    last: u64,
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
    pub(crate) fn join(&mut self, priority: Priority, asker: Asker) -> (Place, Arc<Notify>) {
        // The round that is under way: nobody is put before it for having been away.
        let equals = (priority, 0, 0)..=(priority, u64::MAX, u64::MAX);
        let round = self.waiting.range(equals).next().map_or(0, |((_, round, _), _)| *round);
        let turns = self.askers.entry((priority, asker));
        let turns = turns
            .and_modify(|turns| turns.last = round.max(turns.last.saturating_add(1)))
            .or_insert(Turns { places: 0, last: round });
        turns.places += 1;
        let place = (priority, turns.last, self.arrivals);
        self.arrivals += 1;
        let bell = Arc::new(Notify::new());
        self.waiting.insert(place, Waiting { asker, bell: Arc::clone(&bell) });
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
        if let Some(gone) = self.waiting.remove(&place) {
            let key = (place.0, gone.asker);
            let is_last = self.askers.get_mut(&key).is_none_or(|turns| {
                turns.places = turns.places.saturating_sub(1);
                turns.places == 0
            });
            if is_last {
                self.askers.remove(&key);
            }
        }
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.bell.notify_one();
        }
    }

    /// How long the one at `place` will wait, if nobody passes it.
    pub(crate) fn estimate(&self, place: Place, now: Duration, rate: Rate) -> Duration {
        let ahead = u32::try_from(self.waiting.range(..place).count()).unwrap_or(u32::MAX);
        self.pace.ready_in(now, rate).saturating_add(rate.interval().saturating_mul(ahead))
    }

    /// Whether requests wait for the host.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the host throttled or failed, and may not be asked yet.
    pub(crate) fn rests(&self, now: Duration) -> bool {
        self.pace.is_throttled(now) || !self.breaker.closed_in(now).is_zero()
    }

    /// Rings for everybody: what all of them wait for will not come.
    pub(crate) fn ring(&self) {
        for waiting in self.waiting.values() {
            waiting.bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 1 };
    const TENTH: Duration = Duration::from_millis(100);
    const ONE: Asker = Asker(1);

    #[test]
    fn a_higher_priority_passes_those_who_wait_and_equals_keep_their_order() {
        let mut host = Host::default();
        host.pace.take(Duration::ZERO, RATE);
        let priorities =
            [Priority::Low, Priority::Normal, Priority::Low, Priority::High, Priority::High];
        let places = priorities.map(|priority| host.join(priority, ONE).0);
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
        let (low, _) = host.join(Priority::Low, ONE);
        host.join(Priority::High, ONE);
        host.join(Priority::High, ONE);
        assert_eq!(host.estimate(low, Duration::ZERO, RATE), TENTH * 3);
    }

    /// Serves everybody who waits; who it was, in order.
    fn serve(host: &mut Host, count: usize) -> Vec<u64> {
        let mut served = Vec::new();
        for _ in 0..count {
            let (place, asker) = {
                let (place, waiting) = host.waiting.first_key_value().unwrap();
                (*place, waiting.asker)
            };
            host.leave(place);
            served.push(asker.0);
        }
        served
    }

    #[test]
    fn whoever_asks_much_does_not_keep_the_others_waiting() {
        let mut host = Host::default();
        for asker in [1, 1, 1, 1, 2, 2, 3] {
            host.join(Priority::High, Asker(asker));
        }
        assert_eq!(serve(&mut host, 3), [1, 2, 3]);
        // Newcomers join the round that is under way, also those who were there before.
        for asker in [3, 4, 1] {
            host.join(Priority::High, Asker(asker));
        }
        assert_eq!(serve(&mut host, 7), [1, 2, 3, 4, 1, 1, 1]);
        assert!(host.waiting.is_empty() && host.askers.is_empty());
    }

    #[test]
    fn priority_goes_before_fairness() {
        let mut host = Host::default();
        host.join(Priority::Low, Asker(1));
        for _ in 0..3 {
            host.join(Priority::High, Asker(2));
        }
        assert_eq!(serve(&mut host, 4), [2, 2, 2, 1]);
    }

    #[test]
    fn who_has_gone_away_is_not_held_against_who_comes_back() {
        let mut host = Host::default();
        let places: Vec<_> = (0..9).map(|_| host.join(Priority::High, Asker(1)).0).collect();
        for _ in 0..3 {
            host.join(Priority::High, Asker(2));
        }
        for place in places {
            host.leave(place);
        }
        host.join(Priority::High, Asker(1));
        assert_eq!(serve(&mut host, 4), [2, 1, 2, 2]);
    }
}
