//! The queue of requests to one host: ordered by priority, and fair between the flows of a
//! priority.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::circuit_breaker::{BreakerProbe, CircuitBreaker};
use crate::rate_limiter::{RateLimiter, RequestRate};

/// The priority of a request that waits for a host.
///
/// Requests of a higher priority are sent before all queued requests of lower ones. Lower ones may
/// starve while higher ones keep arriving; they then fail with
/// [`crate::ThrottleCause::LocalRateLimit`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestPriority {
    /// A caller cannot start without the response, for example a mount.
    High,
    /// A caller waits for the response.
    #[default]
    Normal,
    /// No caller waits, for example a periodic refresh.
    Low,
}

/// Identifies the caller that a request belongs to, for example a reader session. Within a
/// priority, flows take turns, so that a flow with many requests does not delay the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FlowId(pub u64);

/// A position in the queue of a host: priority, round and arrival number. The smallest is first.
pub(crate) type QueuePosition = (RequestPriority, u64, u64);

/// The state of one host: its rate limit, its circuit breaker and the requests that wait for it.
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

/// The queued requests of one flow in one priority.
#[derive(Debug)]
struct FlowRounds {
    queued: usize,
    /// The round of the last queued request.
    last_round: u64,
}

/// What a queued request does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueDecision {
    /// Send the request; it has left the queue. It may be the circuit breaker's probe.
    SendNow(Option<BreakerProbe>),
    /// The request is first; check again after this time.
    Wait(Duration),
    /// Wait until the requests ahead have left the queue.
    WaitInQueue,
    /// Fail: the circuit breaker is open for this time.
    CircuitOpen(Duration),
}

impl HostQueue {
    /// Adds a request to the queue; the returned [`Notify`] wakes it when it should call
    /// [`Self::decide`] again.
    pub(crate) fn enqueue(
        &mut self,
        priority: RequestPriority,
        flow: FlowId,
    ) -> (QueuePosition, Arc<Notify>) {
        // A flow without queued requests joins the current round, so that it gains nothing from a
        // pause.
        let equals = (priority, 0, 0)..=(priority, u64::MAX, u64::MAX);
        let round = self.queue.range(equals).next().map_or(0, |((_, round, _), _)| *round);
        let entry = self.flows.entry((priority, flow));
        let rounds = entry
            .and_modify(|rounds| rounds.last_round = round.max(rounds.last_round.saturating_add(1)))
            .or_insert(FlowRounds { queued: 0, last_round: round });
        rounds.queued += 1;
        let position = (priority, rounds.last_round, self.arrivals);
        self.arrivals += 1;
        let wakeup = Arc::new(Notify::new());
        self.queue.insert(position, QueuedRequest { flow, wakeup: Arc::clone(&wakeup) });
        (position, wakeup)
    }

    /// Decides what the request at `position` does now.
    pub(crate) fn decide(
        &mut self,
        position: QueuePosition,
        now: Duration,
        rate: RequestRate,
    ) -> QueueDecision {
        let outage = self.circuit_breaker.remaining_pause(now);
        if !outage.is_zero() {
            return QueueDecision::CircuitOpen(outage);
        }
        if self.queue.first_key_value().is_some_and(|(first, _)| *first != position) {
            return QueueDecision::WaitInQueue;
        }
        let wait = self.rate_limiter.time_until_ready(now, rate);
        if !wait.is_zero() {
            return QueueDecision::Wait(wait);
        }
        self.rate_limiter.take_token(now, rate);
        let probe = self.circuit_breaker.begin_request(now);
        self.dequeue(position);
        QueueDecision::SendNow(probe)
    }

    /// Removes a request from the queue and wakes the new first one.
    pub(crate) fn dequeue(&mut self, position: QueuePosition) {
        if let Some(gone) = self.queue.remove(&position) {
            let key = (position.0, gone.flow);
            let is_last = self.flows.get_mut(&key).is_none_or(|rounds| {
                rounds.queued = rounds.queued.saturating_sub(1);
                rounds.queued == 0
            });
            if is_last {
                self.flows.remove(&key);
            }
        }
        if let Some((_, first)) = self.queue.first_key_value() {
            first.wakeup.notify_one();
        }
    }

    /// How long the request at `position` will wait, if no other request overtakes it.
    pub(crate) fn estimated_wait(
        &self,
        position: QueuePosition,
        now: Duration,
        rate: RequestRate,
    ) -> Duration {
        let ahead = u32::try_from(self.queue.range(..position).count()).unwrap_or(u32::MAX);
        self.rate_limiter
            .time_until_ready(now, rate)
            .saturating_add(rate.interval().saturating_mul(ahead))
    }

    pub(crate) fn has_queued_requests(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether throttling or the circuit breaker blocks requests to the host.
    pub(crate) fn is_paused(&self, now: Duration) -> bool {
        self.rate_limiter.is_throttled(now) || !self.circuit_breaker.remaining_pause(now).is_zero()
    }

    /// Wakes all queued requests, because the circuit breaker opened.
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
        let positions = priorities.map(|priority| host.enqueue(priority, ONE).0);
        let (mut now, mut order) = (Duration::ZERO, Vec::new());
        while order.len() < positions.len() {
            now += TENTH;
            let gone = positions.iter().position(|position| {
                !order.contains(position)
                    && host.decide(*position, now, RATE) == QueueDecision::SendNow(None)
            });
            order.push(positions[gone.unwrap()]);
        }
        let expected = [3, 4, 1, 0, 2].map(|index: usize| positions[index]);
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

    /// Removes `count` requests from the front of the queue and returns their flows in order.
    fn drain_queue(host: &mut HostQueue, count: usize) -> Vec<u64> {
        let mut served = Vec::new();
        for _ in 0..count {
            let (position, flow) = {
                let (position, waiting) = host.queue.first_key_value().unwrap();
                (*position, waiting.flow)
            };
            host.dequeue(position);
            served.push(flow.0);
        }
        served
    }

    #[test]
    fn flow_with_many_requests_does_not_delay_other_flows() {
        let mut host = HostQueue::default();
        for flow in [1, 1, 1, 1, 2, 2, 3] {
            host.enqueue(RequestPriority::High, FlowId(flow));
        }
        assert_eq!(drain_queue(&mut host, 3), [1, 2, 3]);
        // A flow that arrives joins the current round, even if it had requests before.
        for flow in [3, 4, 1] {
            host.enqueue(RequestPriority::High, FlowId(flow));
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
        let positions: Vec<_> =
            (0..9).map(|_| host.enqueue(RequestPriority::High, FlowId(1)).0).collect();
        for _ in 0..3 {
            host.enqueue(RequestPriority::High, FlowId(2));
        }
        for position in positions {
            host.dequeue(position);
        }
        host.enqueue(RequestPriority::High, FlowId(1));
        assert_eq!(drain_queue(&mut host, 4), [2, 1, 2, 2]);
    }
}
