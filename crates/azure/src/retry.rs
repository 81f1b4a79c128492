//! Which requests are tried again, and when: a pure decision.

use std::time::Duration;

use azure_core::http::Method;

/// How failed requests are tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries after the first one.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each.
    pub base: Duration,
    /// The longest pause between two tries, a server's wish included.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { retries: 3, base: Duration::from_millis(800), cap: Duration::from_mins(1) }
    }
}

/// What a try came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Try {
    /// A reply with this status and the pause that the server asks for.
    Replied { status: u16, retry_after: Option<Duration> },
    /// No connection: nothing was sent.
    NotSent,
    /// The connection broke: it is unknown whether the request was served.
    Broken,
}

impl Try {
    /// Whether the host is to blame: it was not reached, or failed. A refusal is no failure.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(self, Self::NotSent | Self::Broken | Self::Replied { status: 500.., .. })
    }
}

impl RetryPolicy {
    /// The pause before the next try, or nothing if this result stands.
    ///
    /// `attempt` counts from 0; `jitter` lies in 0..=1 and stretches the pause to 80..=130 %, as
    /// the Azure SDKs do.
    pub(crate) fn pause(
        &self,
        attempt: u32,
        method: Method,
        outcome: Try,
        jitter: f64,
    ) -> Option<Duration> {
        if attempt >= self.retries {
            return None;
        }
        let server_wish = match outcome {
            Try::NotSent => None,
            Try::Replied { status: 429 | 503, retry_after } => retry_after,
            Try::Broken | Try::Replied { status: 408 | 500 | 502 | 504, .. }
                if repeatable(method) =>
            {
                None
            }
            Try::Broken | Try::Replied { .. } => return None,
        };
        match server_wish {
            // A server that asks for more patience than we have gets its refusal handed on.
            Some(wish) if wish > self.cap => None,
            Some(wish) => Some(wish),
            None => {
                let doubled = self.base.saturating_mul(2_u32.saturating_pow(attempt));
                Some(doubled.mul_f64(0.8 + 0.5 * jitter.clamp(0.0, 1.0)).min(self.cap))
            }
        }
    }
}

/// Whether a request may be sent again when its fate is unknown (RFC 9110, 9.2.2).
fn repeatable(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Put | Method::Delete)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { retries: 3, base: Duration::from_secs(1), cap: Duration::from_mins(1) };

    fn replied(status: u16, retry_after: Option<u64>) -> Try {
        Try::Replied { status, retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn each_result_is_tried_again_exactly_when_it_may_be() {
        let cases = [
            (Method::Get, replied(200, None), None),
            (Method::Get, replied(403, None), None),
            (Method::Get, replied(404, Some(5)), None),
            (Method::Get, replied(500, None), Some(800)),
            (Method::Post, replied(500, None), None),
            (Method::Post, replied(429, None), Some(800)),
            (Method::Post, replied(429, Some(7)), Some(7_000)),
            (Method::Get, replied(503, Some(61)), None),
            (Method::Get, Try::Broken, Some(800)),
            (Method::Post, Try::Broken, None),
            (Method::Post, Try::NotSent, Some(800)),
        ];
        for (method, outcome, expected) in cases {
            let pause = POLICY.pause(0, method, outcome, 0.0);
            assert_eq!(pause, expected.map(Duration::from_millis), "{method:?} {outcome:?}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_the_cap_and_ends_with_the_retries() {
        let pauses: Vec<_> = (0..4)
            .map(|attempt| POLICY.pause(attempt, Method::Get, replied(500, None), 0.4))
            .collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pauses, [seconds(1), seconds(2), seconds(4), None]);
        let patient = RetryPolicy { retries: 99, ..POLICY };
        assert_eq!(patient.pause(40, Method::Get, Try::Broken, 1.0), seconds(60));
    }
}
