//! How the program ends: exit codes that scripts may rely on, and errors that people read.

use std::fmt;
use std::process::ExitCode;

use lanyard_vocabulary::format_error_chain;

/// The exit codes of lanyard. They are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandExit {
    /// Everything that was asked for is good.
    Success,
    /// The command did its work, and something that it looked at is not good.
    Failed,
    /// The input (a file, an argument) is invalid; clap uses the same code.
    Invalid,
    /// The surroundings do not allow it: a port is taken, a directory cannot be written.
    Unavailable,
    /// The command that was run inside ended with this code.
    ChildProcess(u8),
}

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

/// An expected error of a command: what was tried and what came back, and the next step.
#[derive(Debug)]
pub(crate) struct CommandError {
    exit: CommandExit,
    message: String,
    hint: Option<String>,
}

/// What a command comes to.
pub(crate) type CommandResult = Result<CommandExit, CommandError>;

impl CommandError {
    /// The input is invalid.
    pub(crate) fn invalid_input(message: impl Into<String>) -> Self {
        Self { exit: CommandExit::Invalid, message: message.into(), hint: None }
    }

    /// The surroundings do not allow it.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { exit: CommandExit::Unavailable, message: message.into(), hint: None }
    }

    /// The same with the error's causes in its message.
    pub(crate) fn with_cause(mut self, error: &dyn std::error::Error) -> Self {
        self.message = format!("{}: {}", self.message, format_error_chain(error));
        self
    }

    /// The same with a next step.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Tells the person at the terminal.
    #[expect(clippy::print_stderr, reason = "the one place where an error reaches the person")]
    pub(crate) fn print(&self) -> ExitCode {
        eprintln!("{self}");
        self.exit.into()
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

    #[test]
    fn error_text_has_causes_once_and_a_separate_hint() {
        let cause = std::io::Error::other("disk full");
        let error =
            CommandError::unavailable("cannot write x").with_cause(&cause).with_hint("free space");
        assert_eq!(error.to_string(), "error: cannot write x: disk full\n\nhint: free space");
    }
}
