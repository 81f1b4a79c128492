//! The time from writing a new version to a vault until the cluster uses it, as flags for all commands that
//! need it.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use lanyard_desired::forecast::{PropagationDelay, RenewalPolicy};

/// The flags for the propagation delay of a rotation.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Rotation")]
pub(crate) struct RotationTimingArgs {
    /// The poll interval of the nodes
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    rotation_poll_interval: Duration,
    /// The nodes run the Secrets Store CSI driver instead of lanyard: consumers notice a rotation only with
    /// their own timer of six hours
    #[arg(long)]
    secrets_store_driver: bool,
    /// How long after `renew_after` a working rotator may take to write
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    renewal_grace_period: Duration,
}

impl RotationTimingArgs {
    /// The policy by which renewals are evaluated.
    pub(crate) fn forecast_policy(&self) -> RenewalPolicy {
        let reach = if self.secrets_store_driver {
            PropagationDelay::for_secrets_store_driver
        } else {
            PropagationDelay::for_node_plugin
        };
        RenewalPolicy {
            propagation_delay: reach(self.rotation_poll_interval),
            grace_period: self.renewal_grace_period,
        }
    }
}

/// Parses a duration in weeks, days and smaller units; a day has 24 hours.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let message = "give a duration such as 90s, 36h, 14d or 1w 2d";
    let span: Span = text.parse().map_err(|_source: jiff::Error| message.to_owned())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
    let duration = duration.ok().and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_accept_days_and_weeks() {
        for (text, hours) in
            [("14d", 14 * 24), ("1w 2d", 9 * 24), ("36h", 36), ("1h", 1), ("P7D", 7 * 24)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_hours(hours)), "{text}");
        }
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_mins(90)));
        for text in ["", "14", "-1d", "soon", "1month", "1y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
