//! Parses duration flags as Go programs do.

use std::str::FromStr;
use std::time::Duration;

use lanyard_vocabulary::parse_go_duration;

/// A duration flag with the syntax of Go's `time.ParseDuration`: `90s`, `2m`, `1h30m`, `1.5h`, `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) struct GoDuration(pub(in crate::commands) Duration);

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_go_duration(text)
            .map(Self)
            .ok_or_else(|| "give a duration such as 90s or 1h30m".into())
    }
}
