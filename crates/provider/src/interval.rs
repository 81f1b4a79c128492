//! The poll interval of a volume.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::parse_go_duration;
use serde::{Deserialize, Serialize};

/// The longest time between two polls of a healthy volume, without jitter.
///
/// The format is Go's duration format (`time.ParseDuration`), as in the Secrets Store CSI driver's
/// `--rotation-poll-interval` flag: `2m`, `1h30m`, `90s`, `1.5h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PollInterval(Duration);

impl PollInterval {
    /// The default of the Secrets Store CSI driver.
    pub const DEFAULT: Self = Self(Duration::from_mins(2));

    /// The interval as a [`Duration`].
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// The minimum wait between two polls of a healthy volume: a quarter of the interval, but at least 30 s and
    /// never more than the interval.
    pub fn min_wait(self) -> Duration {
        (self.0 / 4).max(MIN_WAIT_BOUND).min(self.0)
    }

    /// Parses an interval and checks that it is within `bounds`.
    pub fn parse_within(text: &str, bounds: IntervalBounds) -> Result<Self, ParseIntervalError> {
        let invalid = |problem| ParseIntervalError { text: text.to_owned(), problem };
        let duration =
            parse_go_duration(text.trim()).ok_or_else(|| invalid(IntervalProblem::Malformed))?;
        let IntervalBounds { min, max } = bounds;
        if duration < min.0 {
            return Err(invalid(IntervalProblem::TooShort { min }));
        }
        if duration > max.0 {
            return Err(invalid(IntervalProblem::TooLong { max }));
        }
        Ok(Self(duration))
    }
}

const MIN_WAIT_BOUND: Duration = Duration::from_secs(30);

impl Default for PollInterval {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl FromStr for PollInterval {
    type Err = ParseIntervalError;

    /// Parses an interval that the administrator of the node sets: one second to one week. The
    /// bounds for a SecretProviderClass are narrower.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse_within(text, IntervalBounds::NODE)
    }
}

impl TryFrom<String> for PollInterval {
    type Error = ParseIntervalError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PollInterval> for String {
    fn from(interval: PollInterval) -> Self {
        interval.to_string()
    }
}

impl fmt::Display for PollInterval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_nanos() == 0 {
            write!(formatter, "{}s", self.0.as_secs())
        } else {
            write!(formatter, "{}ns", self.0.as_nanos())
        }
    }
}

/// The shortest and the longest poll interval that a SecretProviderClass may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalBounds {
    /// The shortest allowed interval.
    pub min: PollInterval,
    /// The longest allowed interval.
    pub max: PollInterval,
}

impl IntervalBounds {
    const NODE: Self = Self {
        min: PollInterval(Duration::from_secs(1)),
        max: PollInterval(Duration::from_hours(168)),
    };

    /// The default bounds for a SecretProviderClass. A shorter interval would let one tenant
    /// exhaust a vault that others share; a longer one would keep a revoked certificate for days.
    pub const CLASS: Self = Self {
        min: PollInterval(Duration::from_secs(30)),
        max: PollInterval(Duration::from_hours(24)),
    };
}

impl Default for IntervalBounds {
    fn default() -> Self {
        Self::CLASS
    }
}

/// The error for text that is not an allowed interval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {problem}")]
pub struct ParseIntervalError {
    /// The rejected text.
    pub text: String,
    /// The rule that it violates.
    pub problem: IntervalProblem,
}

impl ErrorHint for ParseIntervalError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self.problem {
            IntervalProblem::Malformed => "write a duration such as `90s`, `5m` or `1h30m`",
            IntervalProblem::TooShort { .. } => {
                "choose a longer interval; to poll once immediately, \
                 change the annotation `lanyard.dev/refresh`"
            }
            IntervalProblem::TooLong { .. } => "choose a shorter interval",
        }))
    }
}

/// The rule that an interval violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntervalProblem {
    /// It is not a Go duration.
    Malformed,
    /// It is below the minimum.
    TooShort {
        /// The shortest allowed interval.
        min: PollInterval,
    },
    /// It is above the maximum.
    TooLong {
        /// The longest allowed interval.
        max: PollInterval,
    },
}

impl fmt::Display for IntervalProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => formatter.write_str("is not a duration"),
            Self::TooShort { min } => write!(formatter, "is shorter than {min}"),
            Self::TooLong { max } => write!(formatter, "is longer than {max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn minimum_wait_is_a_quarter_of_the_interval_within_bounds() {
        for (interval, seconds) in [("1h", 900), ("2m", 30), ("30s", 30), ("5s", 5)] {
            assert_eq!(
                interval.parse::<PollInterval>().unwrap().min_wait(),
                Duration::from_secs(seconds)
            );
        }
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, seconds) in [
            ("2m", 120.0),
            ("1h30m", 5_400.0),
            ("90s", 90.0),
            ("1.5h", 5_400.0),
            (".5h", 1_800.0),
            ("1h0m0s", 3_600.0),
            ("1500ms", 1.5),
            (" 5m ", 300.0),
        ] {
            let interval: PollInterval = text.parse().unwrap();
            assert_eq!(interval.duration(), Duration::from_secs_f64(seconds), "{text}");
        }
        for text in ["", "5", "m", "5 m", "-5m", "+5m", "1h30", "1..5h", ".s", "5min", "1e3s"] {
            let error = text.parse::<PollInterval>().unwrap_err();
            assert_eq!(error.problem, IntervalProblem::Malformed, "{text}");
        }
    }

    #[test]
    fn class_intervals_have_tighter_bounds_than_the_node_interval() {
        let within = |text| PollInterval::parse_within(text, IntervalBounds::CLASS);
        for text in ["30s", "24h"] {
            assert!(within(text).is_ok(), "{text}");
        }
        let short = within("29.999s").unwrap_err();
        assert_eq!(short.to_string(), "\"29.999s\" is shorter than 30s");
        assert!(short.hint().unwrap().contains("lanyard.dev/refresh"));
        let long = within("24h1ns").unwrap_err();
        assert_eq!(long.to_string(), "\"24h1ns\" is longer than 86400s");
        assert!("1s".parse::<PollInterval>().is_ok());
        assert!("0s".parse::<PollInterval>().is_err());
    }

    proptest! {
        #[test]
        fn displayed_interval_parses_back(nanos in 1_000_000_000_u64..=604_800_000_000_000) {
            let interval = PollInterval(Duration::from_nanos(nanos));
            prop_assert_eq!(interval.to_string().parse(), Ok(interval));
        }

        #[test]
        fn parsing_an_interval_never_panics(text in "[0-9.hmsnu µ]{0,40}") {
            let _outcome = text.parse::<PollInterval>();
        }
    }
}
