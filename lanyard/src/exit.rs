//! Exit codes, which scripts may rely on, and error messages for users.

use std::borrow::Cow;
use std::fmt;
use std::process::ExitCode;

use lanyard_clock::ErrorHint;
use lanyard_vocabulary::format_error_chain;

use crate::output::neutralize;

/// The exit codes of lanyard. They are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandExit {
    /// Everything succeeded.
    Success,
    /// The command ran, but a checked item failed, or not everything could be completed.
    Failed,
    /// An input (a file, an argument) is invalid. clap uses the same exit code.
    Invalid,
    /// The environment prevents the command: a port is in use, a directory is not writable.
    Unavailable,
    /// The exit code of the child process.
    ChildProcess(u8),
}

/// The first line of the exit codes in a help.
pub(crate) const EXIT_CODES_HEADING: &str = "Exit codes:\n";

/// The exit codes in the help of every command that does not list its own.
pub(crate) const EXIT_CODES_HELP: &str = "\
Exit codes:
  0  success
  1  a check of the command failed, or it could not complete everything
  2  an input is invalid, such as a flag or a file
  3  the environment prevents the command, such as a service that does not answer";

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        match exit {
            CommandExit::Success => Self::SUCCESS,
            CommandExit::Failed => Self::from(1),
            CommandExit::Invalid => Self::from(2),
            CommandExit::Unavailable => Self::from(3),
            CommandExit::ChildProcess(code) => Self::from(code),
        }
    }
}

/// An expected error of a command: the failed operation with its cause, and a hint.
#[derive(Debug)]
pub(crate) struct CommandError {
    exit: CommandExit,
    message: String,
    hint: Option<String>,
}

pub(crate) type CommandResult = Result<CommandExit, CommandError>;

impl CommandError {
    /// Creates an error for invalid input.
    pub(crate) fn invalid_input(message: impl Into<String>) -> Self {
        Self { exit: CommandExit::Invalid, message: message.into(), hint: None }
    }

    /// Creates an error for a problem of the environment.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { exit: CommandExit::Unavailable, message: message.into(), hint: None }
    }

    /// Creates the error of a process whose HTTP listener ended.
    #[cfg(any(feature = "operator", feature = "canary"))]
    pub(crate) fn endpoints_failed(error: Option<std::io::Error>) -> Self {
        let error = error.map(|error| format_error_chain(&error)).unwrap_or_default();
        Self::unavailable(format!("the metrics and health server failed: {error}"))
    }

    /// Whether the environment prevents the command.
    pub(crate) const fn is_unavailable(&self) -> bool {
        matches!(self.exit, CommandExit::Unavailable)
    }

    /// Appends the error and its causes to the message.
    pub(crate) fn with_cause(mut self, error: &dyn std::error::Error) -> Self {
        self.message = format!("{}: {}", self.message, format_error_chain(error));
        self
    }

    /// Sets the hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the hint of `error`, if it has one.
    pub(crate) fn with_hint_of(self, error: &impl ErrorHint) -> Self {
        match error.hint() {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// Prints the error to standard error and returns the exit code.
    #[expect(clippy::print_stderr, reason = "the only place that prints errors")]
    pub(crate) fn print(&self) -> ExitCode {
        eprintln!("{}", neutralize(&self.to_string()));
        self.exit.into()
    }
}

/// `?` reports an error of lanyard's crates with its causes and its hint.
impl<E: std::error::Error + ErrorHint> From<E> for CommandError {
    fn from(error: E) -> Self {
        let (message, hint) = (format_error_chain(&error), error.hint().map(Cow::into_owned));
        let is_invalid = error.is_invalid_input();
        let exit = if is_invalid { CommandExit::Invalid } else { CommandExit::Unavailable };
        Self { exit, message, hint }
    }
}

/// Converts errors without an [`ErrorHint`], such as those of other projects' crates.
pub(crate) trait ExternalResult<T> {
    /// Reports the error as invalid input, after `message`.
    fn or_invalid(self, message: impl fmt::Display) -> Result<T, CommandError>;
    /// Reports the error as a problem of the environment, after `message`.
    fn or_unavailable(self, message: impl fmt::Display) -> Result<T, CommandError>;
}

impl<T, E: std::error::Error> ExternalResult<T> for Result<T, E> {
    fn or_invalid(self, message: impl fmt::Display) -> Result<T, CommandError> {
        self.map_err(|error| CommandError::invalid_input(message.to_string()).with_cause(&error))
    }

    fn or_unavailable(self, message: impl fmt::Display) -> Result<T, CommandError> {
        self.map_err(|error| CommandError::unavailable(message.to_string()).with_cause(&error))
    }
}

/// Adds context, a hint or an exit code to the errors of commands, and to those that `?` converts.
pub(crate) trait ResultExt<T> {
    /// Names the failed operation before the message.
    fn context(self, operation: impl fmt::Display) -> Result<T, CommandError>;
    /// Reports the error as invalid input.
    fn mark_invalid(self) -> Result<T, CommandError>;
    /// Sets the hint.
    fn hint(self, hint: impl fmt::Display) -> Result<T, CommandError>;
}

impl<T, E: Into<CommandError>> ResultExt<T> for Result<T, E> {
    fn context(self, operation: impl fmt::Display) -> Result<T, CommandError> {
        self.map_err(|error| {
            let CommandError { exit, message, hint } = error.into();
            CommandError { exit, message: format!("{operation}: {message}"), hint }
        })
    }

    fn mark_invalid(self) -> Result<T, CommandError> {
        self.map_err(|error| CommandError { exit: CommandExit::Invalid, ..error.into() })
    }

    fn hint(self, hint: impl fmt::Display) -> Result<T, CommandError> {
        self.map_err(|error| error.into().with_hint(hint.to_string()))
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "error: {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(formatter, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "up")]
    #[test]
    fn only_an_ambiguous_session_is_invalid_input() {
        use lanyard_emulator_session::SessionError;

        let several =
            SessionError::SeveralRuns { directories: vec!["/tmp/a".into(), "/tmp/b".into()] };
        let several = CommandError::from(several);
        assert_eq!(several.exit, CommandExit::Invalid);
        assert_eq!(
            several.to_string(),
            "error: 2 `lanyard up` are running\n\nhint: select one with --state: /tmp/a, /tmp/b"
        );
        let source = std::io::Error::other("disk full");
        let unwritable = SessionError::WriteDescriptor { directory: "/tmp/a".into(), source };
        let unwritable = CommandError::from(unwritable);
        assert_eq!(unwritable.exit, CommandExit::Unavailable);
        assert_eq!(unwritable.to_string(), "error: cannot write into /tmp/a: disk full");
    }

    #[test]
    fn error_text_has_causes_once_and_a_separate_hint() {
        let cause = std::io::Error::other("disk full");
        let error =
            CommandError::unavailable("cannot write x").with_cause(&cause).with_hint("free space");
        assert_eq!(error.to_string(), "error: cannot write x: disk full\n\nhint: free space");
    }
}
