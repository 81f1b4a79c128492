//! `lanyard forecast`: when credentials expire, and until when a renewal can prevent it.

mod table;

use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::SystemClock;
use lanyard_desired::forecast::calendar::render_icalendar;
use lanyard_desired::forecast::{TimelineEntry, renewal_timeline};

use super::kubectl::{KubectlArgs, NO_IDENTITIES_FOUND};
use super::rotation_timing::{RotationTimingArgs, parse_duration};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, OUTPUT_HEADING};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard forecast --all-namespaces --within 14d
  lanyard forecast --input hostedclusteridentities.yaml --at 2026-12-24T18:00:00Z
  lanyard forecast --all-namespaces -o ics > identities.ics

Exit codes:
  0  no action is needed
  1  a credential is overdue, too late or expired, or expires --within the given time; unless
     --ignore-unknown also if an expiry is unknown, or if there is no identity
  2  an input is invalid or empty, or there is no cluster of that name
  3  the environment prevents the command, such as an API server that does not answer";

/// Show when each credential expires, and until when a renewal still helps
///
/// For every identity that the operator reports, the forecast shows when its credential should be renewed,
/// when the renewal is overdue, the last moment at which a new version in the vault still propagates in time,
/// and the expiry. The verdict of an identity is ok, renewal-due, overdue, too-late, expired or unknown.
///
/// A renewal is overdue when it should have been in use: a rotator that writes within --renewal-grace-period of
/// `renew_after` is never reported, and a rotator that has stopped is reported while a write still helps.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The HostedCluster [default: all]
    name: Option<String>,
    #[command(flatten)]
    kubectl: KubectlArgs,
    /// Exit with 1 if a credential expires within this time, such as `14d`, `36h` or `1w 2d`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    within: Option<Duration>,
    /// Do not exit with 1 for an unknown expiry, nor if there are no identities
    #[arg(long)]
    ignore_unknown: bool,
    /// The time for which the forecast is made, such as 2026-12-24T18:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    #[command(flatten)]
    rotation_timing: RotationTimingArgs,
    /// The format of the output
    #[arg(
        long,
        short,
        value_enum,
        default_value = "table",
        value_name = "FORMAT",
        help_heading = OUTPUT_HEADING
    )]
    output: ForecastFormat,
}

/// The output format of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForecastFormat {
    /// A table for people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// A calendar to subscribe to (iCalendar, RFC 5545)
    Ics,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clusters = args.kubectl.fetch_identities(&environment, args.name.as_deref()).await?;
    let now = args.at.unwrap_or_else(|| SystemClock::shared().now());
    let entries = renewal_timeline(&clusters, &args.rotation_timing.forecast_policy(), now);
    if entries.is_empty() {
        output::print_stderr(NO_IDENTITIES_FOUND);
    }
    let expiring = expiring_entries(&entries, args.within);
    match args.output {
        ForecastFormat::Table if entries.is_empty() => {}
        ForecastFormat::Table => {
            let text = table::render(&entries, &expiring, now, output::stdout_width());
            output::print_text(&text)?;
        }
        ForecastFormat::Json | ForecastFormat::Yaml | ForecastFormat::Ics => {
            let text = match args.output {
                ForecastFormat::Ics => render_icalendar(&entries, now),
                ForecastFormat::Yaml => output::serialize_document(&entries, CliOutputFormat::Yaml),
                _ => output::serialize_document(&entries, CliOutputFormat::Json),
            };
            output::print_stdout(&text)?;
            for entry in &expiring {
                output::print_stderr(&table::expiring_line(entry));
            }
        }
    }
    Ok(forecast_exit(&entries, args.within, args.ignore_unknown))
}

/// The credentials that need no action, but expire within the time of `--within`.
fn expiring_entries(entries: &[TimelineEntry], within: Option<Duration>) -> Vec<&TimelineEntry> {
    let Some(within) = within else { return Vec::new() };
    let is_expiring = |entry: &&TimelineEntry| {
        !entry.forecast.verdict.requires_action() && entry.ends_within(within)
    };
    entries.iter().filter(is_expiring).collect()
}

fn forecast_exit(
    entries: &[TimelineEntry],
    within: Option<Duration>,
    ignore_unknown: bool,
) -> CommandExit {
    let within = within.unwrap_or_default();
    let needs_action = |entry: &TimelineEntry| {
        entry.ends_within(within) || (entry.is_unknown() && !ignore_unknown)
    };
    // An empty forecast proves nothing, so it counts as unknown.
    let is_unknown = entries.is_empty() && !ignore_unknown;
    if is_unknown || entries.iter().any(needs_action) {
        CommandExit::Failed
    } else {
        CommandExit::Success
    }
}
