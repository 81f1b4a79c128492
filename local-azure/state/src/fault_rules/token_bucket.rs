//! Token buckets: each request takes a token, and tokens return at a steady rate.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// The capacity of a bucket, and the tokens that return in a number of seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketSize {
    pub(super) capacity: u32,
    pub(super) tokens: u32,
    pub(super) seconds: u32,
}

/// The levels of the buckets, by key. A bucket without a level is full.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TokenBuckets {
    levels: BTreeMap<String, BucketLevel>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BucketLevel {
    /// The tokens in the bucket, in thousandths.
    milli_tokens: i64,
    measured: Timestamp,
}

impl TokenBuckets {
    /// Takes a token. Returns the time until the next token if there is none.
    pub(super) fn take_token(
        &mut self,
        key: String,
        size: BucketSize,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        let full = i64::from(size.capacity) * 1_000;
        let level =
            self.levels.entry(key).or_insert(BucketLevel { milli_tokens: full, measured: now });
        let millis = i64::try_from(now.duration_since(level.measured).as_millis()).unwrap_or(0);
        let (tokens, seconds) = (i64::from(size.tokens), i64::from(size.seconds.max(1)));
        let returned = millis.max(0).saturating_mul(tokens) / seconds;
        // Until something returns, `measured` stays, so that the elapsed time counts later.
        if returned > 0 {
            level.milli_tokens = level.milli_tokens.saturating_add(returned).min(full);
            level.measured = now;
        }
        if level.milli_tokens >= 1_000 {
            level.milli_tokens -= 1_000;
            return None;
        }
        let missing = 1_000 - level.milli_tokens;
        Some(if tokens == 0 {
            SignedDuration::from_hours(1)
        } else {
            SignedDuration::from_millis((missing * seconds + tokens - 1) / tokens)
        })
    }
}
