//! The wish of the person or of the supervisor that the program ends.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::CommandError;

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
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
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Signals {
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
            CommandError::unavailable("cannot listen for signals").because(&error)
        })
    }

    /// Ready when an end is asked for. Nothing is lost if this is dropped.
    pub(crate) async fn end(&mut self) -> End {
        tokio::select! {
            _ = self.interrupt.recv() => End::Interrupt,
            _ = self.terminate.recv() => End::Terminate,
            _ = self.hang_up.recv() => End::HangUp,
            _ = self.quit.recv() => End::Quit,
        }
    }
}
