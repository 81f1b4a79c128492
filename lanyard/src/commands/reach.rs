//! How long what is written to a vault takes to be in use: for all commands that measure by it.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use lanyard_desired::forecast::{Policy, Reach};

/// How long what is written to a vault takes to be in use.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Rotation")]
pub(crate) struct ReachArgs {
    /// The poll interval of the nodes
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    rotation_poll_interval: Duration,
    /// The nodes run the Secrets Store CSI driver and not lanyard's: consumers notice a rotation
    /// at their own timer of six hours only
    #[arg(long)]
    secrets_store_driver: bool,
    /// How long after `renew_after` a rotator that does its work may take to write
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    patience: Duration,
}

impl ReachArgs {
    /// What renewals and rotations are measured by.
    pub(crate) fn policy(&self) -> Policy {
        let reach = if self.secrets_store_driver {
            Reach::of_secrets_store_driver
        } else {
            Reach::of_node_plugin
        };
        Policy { reach: reach(self.rotation_poll_interval), patience: self.patience }
    }
}

/// A time in weeks, days and smaller units; a day has 24 hours.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refused = "give a duration such as 90s, 36h, 14d or 1w 2d";
    let span: Span = text.parse().map_err(|_source: jiff::Error| refused.to_owned())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
    let duration = duration.ok().and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| refused.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_the_units_in_which_people_think_of_certificates() {
        for (text, hours) in
            [("14d", 14 * 24), ("1w 2d", 9 * 24), ("36h", 36), ("1h", 1), ("P7D", 7 * 24)]
        {
            assert_eq!(duration(text), Ok(Duration::from_hours(hours)), "{text}");
        }
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        for text in ["", "14", "-1d", "soon", "1month", "1y"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
