//! Logs go to standard error, so that standard output contains only data.

use std::io::IsTerminal;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

/// The log flags, which all commands share.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LogArgs {
    /// What to log, as a filter such as `info` or `lanyard_credential=debug` [default: `warn` for
    /// long-running commands, `error` for commands that print their own errors]
    #[arg(
        long = "log",
        global = true,
        env = "LANYARD_LOG",
        value_name = "FILTER",
        help_heading = "Global options"
    )]
    filter: Option<String>,
    /// The format of log lines
    #[arg(
        long = "log-format",
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT",
        help_heading = "Global options"
    )]
    format: LogFormat,
}

/// Starts logging with the format and filter of `args`. `json` selects JSON regardless of `args`, for
/// commands with a JSON flag of their own. An invalid filter is logged as an error and replaced by the
/// default.
pub(crate) fn init(args: &LogArgs, default: &str, json: bool) {
    let wanted = args.filter.as_deref().unwrap_or(default);
    let (filter, complaint) = match wanted.parse() {
        Ok(filter) => (filter, None),
        Err(error) => (default.parse().unwrap_or_else(|_| Targets::new()), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry();
    match if json { LogFormat::Json } else { args.format } {
        LogFormat::Text => registry.with(lines.with_filter(filter)).init(),
        LogFormat::Json => registry.with(lines.json().with_filter(filter)).init(),
    }
    if let Some(error) = complaint {
        tracing::error!(filter = wanted, %error, "the log filter cannot be read");
    }
}
