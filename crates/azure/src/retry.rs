//! Decides which requests are retried, and when. Does no I/O.

use std::time::Duration;

use azure_core::http::Method;
use lanyard_clock::Backoff;

/// The retry policy for failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of attempts after the first one.
    pub retries: u32,
    /// The delay before the first retry; it doubles with each retry.
    pub base: Duration,
    /// The longest delay between two attempts, including a Retry-After of the server.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { retries: 3, base: Duration::from_millis(800), cap: Duration::from_mins(1) }
    }
}

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// A reply with this status and Retry-After.
    Responded { status: u16, retry_after: Option<Duration> },
    /// No connection was made, so the request was not sent.
    ConnectFailed,
    /// The connection broke, so it is unknown whether the server handled the request.
    ConnectionLost,
}

impl AttemptOutcome {
    /// Whether the host was unreachable or failed. A 4xx reply is not a failure.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::ConnectFailed | Self::ConnectionLost | Self::Responded { status: 500.., .. }
        )
    }
}

impl RetryPolicy {
    /// The delay before the next attempt, or `None` if the outcome is final.
    ///
    /// `attempt` counts from 0; `chance` is the random number of [`Backoff::delay_with_jitter`].
    pub(crate) fn delay_before_retry(
        &self,
        attempt: u32,
        method: Method,
        outcome: AttemptOutcome,
        chance: f64,
    ) -> Option<Duration> {
        if attempt >= self.retries {
            return None;
        }
        let requested_delay = match outcome {
            AttemptOutcome::ConnectFailed => None,
            AttemptOutcome::Responded { status: 429 | 503, retry_after } => retry_after,
            AttemptOutcome::ConnectionLost
            | AttemptOutcome::Responded { status: 408 | 500 | 502 | 504, .. }
                if is_idempotent(method) =>
            {
                None
            }
            AttemptOutcome::ConnectionLost | AttemptOutcome::Responded { .. } => return None,
        };
        match requested_delay {
            // A Retry-After beyond the cap ends the retries; the caller gets the reply.
            Some(delay) if delay > self.cap => None,
            Some(delay) => Some(delay),
            None => {
                let backoff = Backoff::new(self.base, self.cap);
                Some(backoff.delay_with_jitter(attempt.saturating_add(1), chance))
            }
        }
    }
}

/// Whether a request may be repeated if it is unknown whether the server handled it (RFC 9110,
/// 9.2.2).
fn is_idempotent(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Put | Method::Delete)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { retries: 3, base: Duration::from_secs(1), cap: Duration::from_mins(1) };

    fn responded(status: u16, retry_after: Option<u64>) -> AttemptOutcome {
        AttemptOutcome::Responded { status, retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn each_outcome_is_retried_only_when_allowed() {
        let cases = [
            (Method::Get, responded(200, None), None),
            (Method::Get, responded(403, None), None),
            (Method::Get, responded(404, Some(5)), None),
            (Method::Get, responded(500, None), Some(1_000)),
            (Method::Post, responded(500, None), None),
            (Method::Post, responded(429, None), Some(1_000)),
            (Method::Post, responded(429, Some(7)), Some(7_000)),
            (Method::Get, responded(503, Some(61)), None),
            (Method::Get, AttemptOutcome::ConnectionLost, Some(1_000)),
            (Method::Post, AttemptOutcome::ConnectionLost, None),
            (Method::Post, AttemptOutcome::ConnectFailed, Some(1_000)),
        ];
        for (method, outcome, expected) in cases {
            let pause = POLICY.delay_before_retry(0, method, outcome, 0.0);
            assert_eq!(pause, expected.map(Duration::from_millis), "{method:?} {outcome:?}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_the_cap_and_ends_with_the_retries() {
        let pauses: Vec<_> = (0..4)
            .map(|attempt| {
                POLICY.delay_before_retry(attempt, Method::Get, responded(500, None), 0.0)
            })
            .collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pauses, [seconds(1), seconds(2), seconds(4), None]);
        let patient = RetryPolicy { retries: 99, ..POLICY };
        assert_eq!(
            patient.delay_before_retry(40, Method::Get, AttemptOutcome::ConnectionLost, 0.0),
            seconds(60)
        );
    }
}
