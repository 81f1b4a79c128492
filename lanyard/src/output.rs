//! Standard output: tables for people, JSON and YAML for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::exit::CommandError;

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CliOutputFormat {
    /// A table for people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Serializes a value as a document.
pub(crate) fn serialize_document(value: &impl Serialize, format: CliOutputFormat) -> String {
    match format {
        CliOutputFormat::Yaml => {
            serde_saphyr::to_string(value).unwrap_or_else(|error| error.to_string())
        }
        CliOutputFormat::Table | CliOutputFormat::Json => {
            serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
        }
    }
}

/// Writes to standard output. A closed pipe (`| head`) is not an error. A full disk is an error, because the
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
    drop(writeln!(io::stderr().lock(), "{text}"));
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::IsTerminal::is_terminal(&io::stdout())
}
