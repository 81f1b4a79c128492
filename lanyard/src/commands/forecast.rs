//! `lanyard forecast`: when credentials expire, and until when a renewal can prevent it.

mod input;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::HostedClusterIdentities;
use lanyard_clock::SystemClock;
use lanyard_desired::forecast::calendar::render_icalendar;
use lanyard_desired::forecast::{TimelineEntry, renewal_timeline};

use super::kubectl::{KubectlArgs, NO_IDENTITIES_FOUND, filter_by_name};
use super::rotation_timing::{RotationTimingArgs, parse_duration};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;

/// Show when each credential expires, and until when a renewal still helps
///
/// For every identity that the operator reports, the forecast shows when its credential should be renewed,
/// when the renewal is overdue, the last moment at which a new version in the vault still propagates in time,
/// and the expiry. The verdict of an identity is ok, renewal-due, overdue, too-late, expired or unknown.
///
/// A renewal is overdue when it should have been in use: a rotator that writes within --renewal-grace-period of
/// `renew_after` is never reported, and a rotator that has stopped is reported while a write still helps.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes of this command: 0 when no action is needed; 1 when a credential is overdue, \
too late or expired, expires --within the given time, or has an unknown expiry, or when there are no \
identities (both unless --ignore-unknown); 2 invalid or empty input, or no cluster of that name; 3 the API server cannot be read."
)]
pub(crate) struct Args {
    /// The HostedCluster [default: all]
    name: Option<String>,
    #[command(flatten)]
    kubectl: KubectlArgs,
    /// Read HostedClusterIdentities from a file as kubectl prints them (YAML or JSON, a list or documents)
    /// instead of from an API server; `-` reads standard input
    #[arg(
        long,
        short = 'f',
        value_name = "FILE",
        conflicts_with_all = ["kubeconfig", "context", "namespace", "all_namespaces"]
    )]
    input: Option<PathBuf>,
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
    /// The output format
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: ForecastFormat,
}

/// The output format of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForecastFormat {
    /// A timeline for people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// A calendar to subscribe to (iCalendar, RFC 5545)
    Ics,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clusters = load_identities(&args, &environment).await?;
    let now = args.at.unwrap_or_else(|| SystemClock::shared().now());
    let entries = renewal_timeline(&clusters, &args.rotation_timing.forecast_policy(), now);
    if entries.is_empty() {
        output::print_stderr(NO_IDENTITIES_FOUND);
    }
    match args.output {
        ForecastFormat::Table if entries.is_empty() => {}
        ForecastFormat::Table => output::print_stdout(&table::render(&entries, now))?,
        ForecastFormat::Json => output::print_stdout(&output::serialize_document(
            &entries,
            output::CliOutputFormat::Json,
        ))?,
        ForecastFormat::Yaml => output::print_stdout(&output::serialize_document(
            &entries,
            output::CliOutputFormat::Yaml,
        ))?,
        ForecastFormat::Ics => output::print_stdout(&render_icalendar(&entries, now))?,
    }
    Ok(forecast_exit(&entries, args.within, args.ignore_unknown))
}

async fn load_identities(
    args: &Args,
    environment: &ProcessEnvironment,
) -> Result<Vec<HostedClusterIdentities>, CommandError> {
    let Some(path) = &args.input else {
        return args.kubectl.fetch_identities(environment, args.name.as_deref()).await;
    };
    filter_by_name(input::load_file(path)?, args.name.as_deref())
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
