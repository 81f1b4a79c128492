//! Logs go to standard error, so that standard output contains only data.

use std::str::FromStr;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::output;

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
    /// What to log, as a filter such as `info` or `warn,lanyard_credential=debug` [default: `info` for `node`,
    /// `operator`, `kms` and `canary`, `warn` for `azure`, `error` for commands that print their own errors]
    #[arg(
        long = "log",
        global = true,
        env = "LANYARD_LOG",
        value_name = "FILTER",
        help_heading = "Global options"
    )]
    filter: Option<LogFilter>,
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

/// A log filter: levels, alone or for a target.
#[derive(Debug, Clone)]
pub(crate) struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        for directive in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            // A word that is not a level would name a target that does not exist, and switch everything else off.
            let is_target = directive.starts_with("lanyard");
            if !directive.contains('=') && !is_target && directive.parse::<LevelFilter>().is_err() {
                return Err(format!("`{directive}` is not one of {LEVELS}"));
            }
        }
        text.parse().map(Self).map_err(|error| format!("{error}; the levels are {LEVELS}"))
    }
}

const LEVELS: &str = "off, error, warn, info, debug and trace";

/// Starts logging with the format and filter of `args`. `json` selects JSON regardless of `args`, for
/// commands with a JSON flag of their own.
pub(crate) fn init(args: &LogArgs, default: &str, json: bool) {
    let filter = match &args.filter {
        Some(LogFilter(filter)) => filter.clone(),
        None => default.parse().unwrap_or_else(|_| Targets::new()),
    };
    let is_json = json || matches!(args.format, LogFormat::Json);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(output::uses_colour(&std::io::stderr()))
        .with_writer(move || output::HarmlessLines { inner: std::io::stderr(), is_json });
    let registry = tracing_subscriber::registry();
    if is_json {
        registry.with(lines.json().with_filter(filter)).init();
    } else {
        registry.with(lines.with_filter(filter)).init();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_levels_and_targets_are_accepted() {
        for text in [
            "info",
            "off",
            "WARN",
            "warn,lanyard_credential=debug",
            "lanyard_node",
            "debug,h2=info, hyper=off",
            "",
        ] {
            assert!(text.parse::<LogFilter>().is_ok(), "{text}");
        }
    }

    #[test]
    fn misspelled_filter_is_rejected() {
        for text in ["inof", "warn,debgu", "lanyard_credential=debgu", "info;warn"] {
            let error = text.parse::<LogFilter>().unwrap_err();
            assert!(error.contains("off, error, warn, info, debug and trace"), "{text}: {error}");
        }
    }
}
