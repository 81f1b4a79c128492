//! `lanyard forecast`: what will break next, and until when it can be helped.

mod input;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};
use lanyard_api::HostedClusterIdentities;
use lanyard_clock::SystemClock;
use lanyard_desired::forecast::calendar::calendar;
use lanyard_desired::forecast::{Entry, Policy, Reach, timeline};

use super::kubectl::KubectlArgs;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output;
use crate::settings::Environment;

/// Say which credential ends when, and until when a renewal still helps
///
/// From what the operator knows of every identity: when its credential is to be renewed, when that
/// is overdue, the last moment at which something written to the vault is still in use in time, and
/// the end. The verdict of an identity is ok, renewal-due, overdue, too-late, expired or unknown.
///
/// A renewal is overdue when it should have been in use: a rotator that writes within --patience of
/// `renew_after` is never told, and one that has stopped is told while a write still helps.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes of this command: 0 when nothing needs anybody; 1 when a credential is overdue, \
too late or expired, ends --within the time that was asked for, or when nobody knows when it ends \
(unless --ignore-unknown); 2 invalid input; 3 the API server cannot be read."
)]
pub(crate) struct Args {
    /// The HostedCluster [default: all]
    name: Option<String>,
    #[command(flatten)]
    kubectl: KubectlArgs,
    /// Read HostedClusterIdentities from a file as kubectl prints them (YAML or JSON, a list or
    /// documents) instead of from an API server; `-` reads standard input
    #[arg(
        long,
        short = 'f',
        value_name = "FILE",
        conflicts_with_all = ["kubeconfig", "context", "namespace", "all_namespaces"]
    )]
    input: Option<PathBuf>,
    /// End with 1 if a credential ends within this time, such as `14d`, `36h` or `1w 2d`
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    within: Option<Duration>,
    /// Do not end with 1 for what nobody knows
    #[arg(long)]
    ignore_unknown: bool,
    /// The time to tell the forecast for, such as 2026-12-24T18:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    #[command(flatten)]
    reach: ReachArgs,
    /// The form of the forecast
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: ForecastFormat,
}

/// How long what is written to a vault takes to be in use.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Rotation")]
struct ReachArgs {
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

/// The form of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForecastFormat {
    /// A timeline for people.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// A calendar to subscribe to (iCalendar, RFC 5545).
    Ics,
}

impl ReachArgs {
    fn policy(&self) -> Policy {
        let reach = if self.secrets_store_driver {
            Reach::of_secrets_store_driver
        } else {
            Reach::of_node_plugin
        };
        Policy { reach: reach(self.rotation_poll_interval), patience: self.patience }
    }
}

/// Prints the forecast.
pub(crate) async fn run(args: Args, environment: Environment) -> CommandResult {
    let clusters = load(&args, &environment).await?;
    let now = args.at.unwrap_or_else(|| SystemClock::shared().now());
    let entries = timeline(&clusters, &args.reach.policy(), now);
    if entries.is_empty() {
        output::note("no identities found: no HostedCluster here, or no operator that reports");
    }
    match args.output {
        ForecastFormat::Table if entries.is_empty() => {}
        ForecastFormat::Table => output::print(&table::render(&entries, now)),
        ForecastFormat::Json => output::print(&output::document(&entries, output::Format::Json)),
        ForecastFormat::Yaml => output::print(&output::document(&entries, output::Format::Yaml)),
        ForecastFormat::Ics => output::print(&calendar(&entries, now)),
    }
    Ok(exit(&entries, args.within, args.ignore_unknown))
}

async fn load(
    args: &Args,
    environment: &Environment,
) -> Result<Vec<HostedClusterIdentities>, CommandError> {
    let Some(path) = &args.input else {
        return args.kubectl.fetch_identities(environment, args.name.as_deref()).await;
    };
    let mut clusters = input::load(path)?;
    let is_wanted = |it: &HostedClusterIdentities| {
        args.name.is_none() || it.metadata.name.as_deref() == args.name.as_deref()
    };
    clusters.retain(is_wanted);
    Ok(clusters)
}

fn exit(entries: &[Entry], within: Option<Duration>, ignore_unknown: bool) -> Exit {
    let within = within.unwrap_or_default();
    let needs_somebody =
        |entry: &Entry| entry.ends_within(within) || (entry.is_unknown() && !ignore_unknown);
    if entries.iter().any(needs_somebody) { Exit::Failed } else { Exit::Good }
}

/// A time in weeks, days and smaller units; a day has 24 hours.
fn duration(text: &str) -> Result<Duration, String> {
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
