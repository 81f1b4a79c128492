//! Cool-downs that services requested.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

/// The cool-downs of authorities and of throttled applications, shared by all callers.
#[derive(Debug, Default)]
pub(crate) struct CoolDowns {
    ends_at: Mutex<HashMap<String, Duration>>,
}

impl CoolDowns {
    /// Starts a cool-down of `whom` for `duration` from `now` on, limited to [`MAX_COOL_DOWN`].
    pub(crate) fn start(&self, key: &str, now: Duration, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        let until = now.saturating_add(duration.min(MAX_COOL_DOWN));
        let mut all = self.ends_at.lock();
        all.retain(|_, until| *until > now);
        let entry = all.entry(key.to_owned()).or_insert(until);
        *entry = until.max(*entry);
    }

    /// The remaining cool-down of `whom`.
    pub(crate) fn remaining(&self, key: &str, now: Duration) -> Option<Duration> {
        let until = self.ends_at.lock().get(key).copied()?;
        Some(until.saturating_sub(now)).filter(|remaining| !remaining.is_zero())
    }
}

/// The maximum cool-down: a misread header must not stop a process for days.
const MAX_COOL_DOWN: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_cool_down_ends_by_itself_and_is_never_shortened() {
        let all = CoolDowns::default();
        all.start("https://a", seconds(10), seconds(60));
        all.start("https://a", seconds(11), seconds(1));
        assert_eq!(all.remaining("https://a", seconds(20)), Some(seconds(50)));
        assert_eq!(all.remaining("https://b", seconds(20)), None);
        assert_eq!(all.remaining("https://a", seconds(70)), None);
    }

    #[test]
    fn cool_down_is_capped_at_the_maximum() {
        let all = CoolDowns::default();
        all.start("https://a", seconds(0), Duration::MAX);
        assert_eq!(all.remaining("https://a", seconds(0)), Some(MAX_COOL_DOWN));
    }
}
