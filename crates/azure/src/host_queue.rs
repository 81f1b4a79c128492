//! Whose turn it is at one host: those who wait, by priority, and within one in turns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::circuit_breaker::{BreakerProbe, CircuitBreaker};
use crate::rate_limiter::{RateLimiter, RequestRate};

/// Which of the requests that wait for a host goes first.
///
/// A higher one passes all lower ones that still wait. Lower ones may starve while higher ones
/// keep coming; they are then refused, because all turns are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestPriority {
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
pub struct FlowId(pub u64);

/// A place in the queue of a host: priority, round and arrival. The least is the first.
pub(crate) type QueuePosition = (RequestPriority, u64, u64);

/// What is known of one host, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct HostQueue {
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) circuit_breaker: CircuitBreaker,
    queue: BTreeMap<QueuePosition, QueuedRequest>,
    flows: HashMap<(RequestPriority, FlowId), FlowRounds>,
    arrivals: u64,
}

#[derive(Debug)]
struct QueuedRequest {
    flow: FlowId,
    wakeup: Arc<Notify>,
}

/// The places of one asker in one priority.
#[derive(Debug)]
struct FlowRounds {
    queued: usize,
    /// The round of the last of them.
    last_round: u64,
}

/// What somebody in the queue does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueDecision {
    /// Sends; the place is gone. The request may be the one that decides about an outage.
    SendNow(Option<BreakerProbe>),
    /// Is the first, and looks again after this time.
    Wait(Duration),
    /// Waits until the first is gone.
    WaitInQueue,
    /// Goes away: the host is left alone for this time, because it failed.
    CircuitOpen(Duration),
}

impl HostQueue {
    /// Joins the queue; the bell rings when it is time to [`Self::decide`] again.
    pub(crate) fn enqueue(
        &mut self,
        priority: RequestPriority,
        asker: FlowId,
    ) -> (QueuePosition, Arc<Notify>) {
        // The round that is under way: nobody is put before it for having been away.
        let equals = (priority, 0, 0)..=(priority, u64::MAX, u64::MAX);
        let round = self.queue.range(equals).next().map_or(0, |((_, round, _), _)| *round);
        let turns = self.flows.entry((priority, asker));
        let turns = turns
            .and_modify(|turns| turns.last_round = round.max(turns.last_round.saturating_add(1)))
            .or_insert(FlowRounds { queued: 0, last_round: round });
        turns.queued += 1;
        let place = (priority, turns.last_round, self.arrivals);
        self.arrivals += 1;
        let bell = Arc::new(Notify::new());
        self.queue.insert(place, QueuedRequest { flow: asker, wakeup: Arc::clone(&bell) });
        (place, bell)
    }

    /// What the one at `place` does now.
    pub(crate) fn decide(
        &mut self,
        place: QueuePosition,
        now: Duration,
        rate: RequestRate,
    ) -> QueueDecision {
        let outage = self.circuit_breaker.remaining_pause(now);
        if !outage.is_zero() {
            return QueueDecision::CircuitOpen(outage);
        }
        if self.queue.first_key_value().is_some_and(|(first, _)| *first != place) {
            return QueueDecision::WaitInQueue;
        }
        let wait = self.rate_limiter.time_until_ready(now, rate);
        if !wait.is_zero() {
            return QueueDecision::Wait(wait);
        }
        self.rate_limiter.take_token(now, rate);
        let probe = self.circuit_breaker.begin_request(now);
        self.dequeue(place);
        QueueDecision::SendNow(probe)
    }

    /// Leaves the queue, and rings for whoever is the first then.
    pub(crate) fn dequeue(&mut self, place: QueuePosition) {
        if let Some(gone) = self.queue.remove(&place) {
            let key = (place.0, gone.flow);
            let is_last = self.flows.get_mut(&key).is_none_or(|turns| {
                turns.queued = turns.queued.saturating_sub(1);
                turns.queued == 0
            });
            if is_last {
                self.flows.remove(&key);
            }
        }
        if let Some((_, first)) = self.queue.first_key_value() {
            first.wakeup.notify_one();
        }
    }

    /// How long the one at `place` will wait, if nobody passes it.
    pub(crate) fn estimated_wait(
        &self,
        place: QueuePosition,
        now: Duration,
        rate: RequestRate,
    ) -> Duration {
        let ahead = u32::try_from(self.queue.range(..place).count()).unwrap_or(u32::MAX);
        self.rate_limiter
            .time_until_ready(now, rate)
            .saturating_add(rate.interval().saturating_mul(ahead))
    }

    /// Whether requests wait for the host.
    pub(crate) fn has_queued_requests(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the host throttled or failed, and may not be asked yet.
    pub(crate) fn is_paused(&self, now: Duration) -> bool {
        self.rate_limiter.is_throttled(now) || !self.circuit_breaker.remaining_pause(now).is_zero()
    }

    /// Rings for everybody: what all of them wait for will not come.
    pub(crate) fn wake_all(&self) {
        for waiting in self.queue.values() {
            waiting.wakeup.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RequestRate = RequestRate { per_second: 10, burst: 1 };
    const TENTH: Duration = Duration::from_millis(100);
    const ONE: FlowId = FlowId(1);

    #[test]
    fn higher_priority_goes_first_and_equal_priorities_keep_their_order() {
        let mut host = HostQueue::default();
        host.rate_limiter.take_token(Duration::ZERO, RATE);
        let priorities = [
            RequestPriority::Low,
            RequestPriority::Normal,
            RequestPriority::Low,
            RequestPriority::High,
            RequestPriority::High,
        ];
        let places = priorities.map(|priority| host.enqueue(priority, ONE).0);
        let (mut now, mut order) = (Duration::ZERO, Vec::new());
        while order.len() < places.len() {
            now += TENTH;
            let gone = places.iter().position(|place| {
                !order.contains(place)
                    && host.decide(*place, now, RATE) == QueueDecision::SendNow(None)
            });
            order.push(places[gone.unwrap()]);
        }
        let expected = [3, 4, 1, 0, 2].map(|index: usize| places[index]);
        assert_eq!(order, expected);
    }

    #[test]
    fn wait_estimate_counts_the_requests_ahead() {
        let mut host = HostQueue::default();
        host.rate_limiter.take_token(Duration::ZERO, RATE);
        let (low, _) = host.enqueue(RequestPriority::Low, ONE);
        host.enqueue(RequestPriority::High, ONE);
        host.enqueue(RequestPriority::High, ONE);
        assert_eq!(host.estimated_wait(low, Duration::ZERO, RATE), TENTH * 3);
    }

    /// Serves everybody who waits; who it was, in order.
    fn drain_queue(host: &mut HostQueue, count: usize) -> Vec<u64> {
        let mut served = Vec::new();
        for _ in 0..count {
            let (place, asker) = {
                let (place, waiting) = host.queue.first_key_value().unwrap();
                (*place, waiting.flow)
            };
            host.dequeue(place);
            served.push(asker.0);
        }
        served
    }

    #[test]
    fn flow_with_many_requests_does_not_delay_other_flows() {
        let mut host = HostQueue::default();
        for asker in [1, 1, 1, 1, 2, 2, 3] {
            host.enqueue(RequestPriority::High, FlowId(asker));
        }
        assert_eq!(drain_queue(&mut host, 3), [1, 2, 3]);
        // Newcomers join the round that is under way, also those who were there before.
        for asker in [3, 4, 1] {
            host.enqueue(RequestPriority::High, FlowId(asker));
        }
        assert_eq!(drain_queue(&mut host, 7), [1, 2, 3, 4, 1, 1, 1]);
        assert!(host.queue.is_empty() && host.flows.is_empty());
    }

    #[test]
    fn priority_goes_before_fairness() {
        let mut host = HostQueue::default();
        host.enqueue(RequestPriority::Low, FlowId(1));
        for _ in 0..3 {
            host.enqueue(RequestPriority::High, FlowId(2));
        }
        assert_eq!(drain_queue(&mut host, 4), [2, 2, 2, 1]);
    }

    #[test]
    fn cancelled_requests_do_not_delay_later_requests_of_the_same_flow() {
        let mut host = HostQueue::default();
        let places: Vec<_> =
            (0..9).map(|_| host.enqueue(RequestPriority::High, FlowId(1)).0).collect();
        for _ in 0..3 {
            host.enqueue(RequestPriority::High, FlowId(2));
        }
        for place in places {
            host.dequeue(place);
        }
        host.enqueue(RequestPriority::High, FlowId(1));
        assert_eq!(drain_queue(&mut host, 4), [2, 1, 2, 2]);
    }
}
