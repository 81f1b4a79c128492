//! The wish of the person or of the supervisor that the program ends.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::CommandError;

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationSignal {
    /// Ctrl-C: the terminal sends it to the whole group of processes.
    Interrupt,
    /// A supervisor asks for the end.
    Terminate,
    /// The terminal went away.
    HangUp,
    /// Ctrl-\.
    Quit,
}

/// Listens from its making on, so that no signal between two waits is lost. Make it before
/// anything that has to be cleared away.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl TerminationSignals {
    /// Starts to listen.
    pub(crate) fn listen() -> Result<Self, CommandError> {
        let listen = || {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hang_up: signal(SignalKind::hangup())?,
                quit: signal(SignalKind::quit())?,
            })
        };
        listen().map_err(|error: std::io::Error| {
            CommandError::unavailable("cannot listen for signals").with_cause(&error)
        })
    }

    /// Ready when an end is asked for. Nothing is lost if this is dropped.
    pub(crate) async fn wait(&mut self) -> TerminationSignal {
        tokio::select! {
            _ = self.interrupt.recv() => TerminationSignal::Interrupt,
            _ = self.terminate.recv() => TerminationSignal::Terminate,
            _ = self.hang_up.recv() => TerminationSignal::HangUp,
            _ = self.quit.recv() => TerminationSignal::Quit,
        }
    }
}
