//! Termination signals from the terminal or from a supervisor.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{CommandError, ExternalResult as _};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationSignal {
    /// SIGINT (Ctrl-C): the terminal sends it to the whole process group.
    Interrupt,
    /// SIGTERM: a supervisor stops the process.
    Terminate,
    /// SIGHUP: the terminal was closed.
    HangUp,
    /// SIGQUIT (Ctrl-\).
    Quit,
}

/// Receives termination signals from its creation on, so that no signal between two waits is lost. Create it
/// before any resource that must be cleaned up.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl TerminationSignals {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> Result<Self, CommandError> {
        let listen = || -> std::io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hang_up: signal(SignalKind::hangup())?,
                quit: signal(SignalKind::quit())?,
            })
        };
        listen().or_unavailable("cannot listen for signals")
    }

    /// Waits for a termination signal. Cancellation safe: dropping the future loses no signal.
    pub(crate) async fn wait(&mut self) -> TerminationSignal {
        tokio::select! {
            _ = self.interrupt.recv() => TerminationSignal::Interrupt,
            _ = self.terminate.recv() => TerminationSignal::Terminate,
            _ = self.hang_up.recv() => TerminationSignal::HangUp,
            _ = self.quit.recv() => TerminationSignal::Quit,
        }
    }
}
