//! Standard output: tables for people, JSON and YAML for programs.

mod foreign_text;
#[cfg(any(feature = "cli", feature = "up"))]
mod table;
#[cfg(any(feature = "cli", feature = "up"))]
mod terminal;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use self::foreign_text::neutralize_json;
pub(crate) use self::foreign_text::{HarmlessLines, neutralize};
#[cfg(any(feature = "cli", feature = "up"))]
pub(crate) use self::table::{ColumnKind, TextTable};
#[cfg(any(feature = "cli", feature = "up"))]
pub(crate) use self::terminal::{fit_lines, stderr_width, stdout_width};
use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// The flag `--output`, which all commands that print data share.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputArgs {
    /// The format of the output
    #[arg(
        id = "output",
        long = "output",
        short = 'o',
        value_enum,
        default_value = "table",
        value_name = "FORMAT",
        help_heading = OUTPUT_HEADING
    )]
    pub(crate) format: CliOutputFormat,
}

/// The heading of `--output` in the help.
pub(crate) const OUTPUT_HEADING: &str = "Output";

/// The output format of a command. Documents contain what tables abbreviate; their keys are camelCase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CliOutputFormat {
    /// A table for people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Serializes a value as a document, whose text cannot command a terminal or a pipeline. A YAML document with such
/// text is written in JSON syntax, which is YAML too and has escape sequences everywhere.
pub(crate) fn serialize_document(value: &impl Serialize, format: CliOutputFormat) -> String {
    if format == CliOutputFormat::Yaml {
        let yaml = serde_saphyr::to_string(value).unwrap_or_else(|error| error.to_string());
        if neutralize(&yaml) == yaml {
            return yaml;
        }
    }
    let json = serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string());
    neutralize_json(&json).into_owned()
}

/// Prints a value in a format. `to_text` makes the text of the table format, whose lines are then limited to
/// the width of the terminal.
#[cfg(any(feature = "cli", feature = "up"))]
pub(crate) fn print_value(
    value: &impl Serialize,
    format: CliOutputFormat,
    to_text: impl FnOnce(Option<usize>) -> String,
) -> Result<(), CommandError> {
    match format {
        CliOutputFormat::Table => print_text(&to_text(stdout_width())),
        format => print_stdout(&serialize_document(value, format)),
    }
}

/// Prints text for people, in lines that are not longer than the terminal is wide.
#[cfg(any(feature = "cli", feature = "up"))]
pub(crate) fn print_text(text: &str) -> Result<(), CommandError> {
    print_stdout(&neutralize(&fit_lines(text, stdout_width())))
}

/// A number with its noun, such as `1 request` or `2 requests`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Writes data to standard output as it is; [`print_text`] is for text with names of Azure. A closed pipe (`| head`) is not an error. A full disk is an error, because the
/// reader of the file must not mistake a partial file for a complete one.
pub(crate) fn print_stdout(text: &str) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(newline.as_bytes()))
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::unavailable("standard output cannot be written").with_cause(&error))
        }
        _ => Ok(()),
    }
}

/// Writes a line of progress or explanation to standard error.
pub(crate) fn print_stderr(text: &str) {
    // A failed write to standard error cannot be reported anywhere.
    drop(writeln!(io::stderr().lock(), "{}", neutralize(text)));
}

/// Writes a JSON document to standard error.
#[cfg(feature = "cli")]
pub(crate) fn print_stderr_document(document: &str) {
    drop(writeln!(io::stderr().lock(), "{}", neutralize_json(document)));
}

/// Whether text on this stream may have colours: only on a terminal that has them, and unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub(crate) fn uses_colour(stream: &impl IsTerminal) -> bool {
    let is_allowed = ProcessEnvironment::read_variable("NO_COLOR").is_none_or(|it| it.is_empty());
    stream.is_terminal() && is_allowed && !is_dumb_terminal()
}

/// Whether the terminal shows text only: it has neither colours nor a cursor that moves.
pub(crate) fn is_dumb_terminal() -> bool {
    ProcessEnvironment::read_variable("TERM").is_some_and(|name| name == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_foreign_values_without_commands_of_pipelines() {
        let value = serde_json::json!({
            "a##vso[b]": "##[command]\u{202e}x",
            "lines": "first\n::set-env name=x::y\n\u{1b}[8mhidden",
        });
        for format in [CliOutputFormat::Json, CliOutputFormat::Yaml] {
            let document = serialize_document(&value, format);
            assert_eq!(neutralize(&document), document, "{format:?}");
            let read: serde_json::Value = serde_saphyr::from_str(&document).unwrap();
            assert_eq!(read, value, "{format:?}: {document}");
        }
        let plain = serde_json::json!({ "name": "a" });
        assert_eq!(serialize_document(&plain, CliOutputFormat::Yaml).trim_end(), "name: a");
    }
}
