//! Errors of changing the state of a running emulator.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use lanyard_emulator_core::state_store::StateStoreError;

use crate::seed::SeedError;

/// The Azure state could not be changed, or the change could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateChangeError {
    /// The change is not possible in the current state.
    #[error("the Azure state does not permit the change")]
    Seed(#[from] SeedError),
    /// The state in memory was changed, but could not be written to the state file.
    #[error("the changed Azure state could not be written")]
    Store(#[from] StateStoreError),
    /// The runtime shut down during the change.
    #[error("the runtime shut down while the Azure state was changed")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl ErrorHint for StateChangeError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Seed(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Interrupted(_) => None,
        }
    }
}
