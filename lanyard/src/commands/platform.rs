//! The platform of a command, as in HyperShift's command line: `create infra azure`.

use clap::Subcommand;

/// A command that exists for Azure only.
#[derive(Debug, Subcommand)]
pub(crate) enum PlatformCommand<A: clap::Args> {
    // The help is at the arguments.
    Azure(Box<A>),
}

impl<A: clap::Args> PlatformCommand<A> {
    /// The arguments of the command.
    pub(crate) fn into_args(self) -> A {
        let Self::Azure(args) = self;
        *args
    }
}
