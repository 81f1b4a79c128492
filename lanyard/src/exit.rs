//! How the program ends: exit codes that scripts may rely on, and errors that people read.

use std::fmt;
use std::process::ExitCode;

use lanyard_vocabulary::causes;

/// The exit codes of lanyard. They are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything that was asked for is good.
    Good,
    /// The command did its work, and something that it looked at is not good.
    Failed,
    /// The input (a file, an argument) is invalid; clap uses the same code.
    Invalid,
    /// The surroundings do not allow it: a port is taken, a directory cannot be written.
    Unavailable,
    /// The command that was run inside ended with this code.
    Inner(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Good => Self::SUCCESS,
            Exit::Failed => Self::from(1),
            Exit::Invalid => Self::from(2),
            Exit::Unavailable => Self::from(3),
            Exit::Inner(code) => Self::from(code),
        }
    }
}

/// An expected error of a command: what was tried and what came back, and the next step.
#[derive(Debug)]
pub(crate) struct CommandError {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

/// What a command comes to.
pub(crate) type CommandResult = Result<Exit, CommandError>;

impl CommandError {
    /// The input is invalid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { exit: Exit::Invalid, message: message.into(), hint: None }
    }

    /// The surroundings do not allow it.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unavailable, message: message.into(), hint: None }
    }

    /// The same with the error's causes in its message.
    pub(crate) fn because(mut self, error: &dyn std::error::Error) -> Self {
        self.message = format!("{}: {}", self.message, causes(error));
        self
    }

    /// The same with a next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Tells the person at the terminal.
    #[expect(clippy::print_stderr, reason = "the one place where an error reaches the person")]
    pub(crate) fn report(&self) -> ExitCode {
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
    fn an_error_tells_its_causes_once_and_the_hint_apart() {
        let cause = std::io::Error::other("disk full");
        let error = CommandError::unavailable("cannot write x").because(&cause).hint("free space");
        assert_eq!(error.to_string(), "error: cannot write x: disk full\n\nhint: free space");
    }
}
