//! What goes to standard output: tables for people, JSON and YAML for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::exit::CommandError;

/// The form of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CliOutputFormat {
    /// A table for people.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// A value as a document.
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

/// Writes to standard output. A reader that went away (`| head`) is no error; a disk that is full is
/// one, for whoever reads the file must not take a part for the whole.
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
    // Nobody is left to be told when standard error is gone.
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Whether standard output is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::IsTerminal::is_terminal(&io::stdout())
}
