//! What goes to standard output: tables for people, JSON and YAML for programs.

#[cfg(any(feature = "node", feature = "cli", feature = "emulator"))]
mod document;

use std::io::{self, Write};

#[cfg(any(feature = "node", feature = "cli", feature = "emulator"))]
pub(crate) use self::document::{Format, document};
use crate::exit::CommandError;

/// Writes to standard output. A reader that went away (`| head`) is no error; a disk that is full is
/// one, for whoever reads the file must not take a part for the whole.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(newline.as_bytes()))
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::unavailable("standard output cannot be written").because(&error))
        }
        _ => Ok(()),
    }
}

/// Writes a line of progress or explanation to standard error.
#[cfg(any(feature = "node", feature = "operator", feature = "cli", feature = "emulator"))]
pub(crate) fn note(text: &str) {
    // Nobody is left to be told when standard error is gone.
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Whether standard output is a terminal.
#[cfg(feature = "emulator")]
pub(crate) fn to_terminal() -> bool {
    io::IsTerminal::is_terminal(&io::stdout())
}
