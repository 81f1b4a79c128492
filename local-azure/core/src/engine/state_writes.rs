//! Writes the state into the state directory; replaces and changes it from inside the process.

use jiff::Timestamp;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;

use super::{EmulatorEngine, State};
use crate::service_caches::ServiceCaches;
use crate::snapshot::StateSnapshot;
use crate::state_store::{PendingCommit, StateChanges, StateStoreError};

impl EmulatorEngine {
    /// Writes the complete state, if there is a state directory.
    pub fn save_all(&self) -> Result<(), StateStoreError> {
        self.save(Self::submit_all)
    }

    /// Writes what changed since the last write, if there is a state directory.
    pub fn save_changes(&self) -> Result<(), StateStoreError> {
        self.save(Self::submit_changes)
    }

    /// Blocks until the submitted changes are written.
    fn save(
        &self,
        submit: fn(&Self, &mut AzureState, &IdGenerator) -> Result<PendingCommit, StateStoreError>,
    ) -> Result<(), StateStoreError> {
        let mut state = self.state.lock();
        let State { azure, ids, .. } = &mut *state;
        let commit = submit(self, azure, ids)?;
        drop(state);
        commit.wait_blocking()
    }

    /// Copies the complete state.
    pub fn snapshot(&self) -> StateSnapshot {
        let state = self.state.lock();
        StateSnapshot::of_state(&state.azure, &state.ids)
    }

    /// Replaces the complete state, and writes it. Blocks until it is written.
    pub fn restore_snapshot(&self, snapshot: StateSnapshot) -> Result<(), StateStoreError> {
        let StateSnapshot { azure, ids } = snapshot;
        let mut state = self.state.lock();
        (state.azure, state.ids, state.caches) = (azure, ids, ServiceCaches::default());
        drop(state);
        self.save_all()
    }

    /// Changes the state from inside the process, and writes the changes. Blocks until they are written.
    ///
    /// # Errors
    ///
    /// Returns the error of the change, or that the changes could not be written.
    pub fn update_azure_state<T, E: From<StateStoreError>>(
        &self,
        change: impl FnOnce(&mut AzureState, &mut IdGenerator, Timestamp) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = self.state.lock();
        let State { azure, ids, .. } = &mut *state;
        let now = azure.clock.emulated_time(self.clock.now());
        let changed = change(azure, ids, now)?;
        let commit = self.submit_changes(azure, ids)?;
        drop(state);
        commit.wait_blocking()?;
        Ok(changed)
    }

    /// Submits the complete state, which replaces the stored one.
    pub(crate) fn submit_all(
        &self,
        azure: &mut AzureState,
        ids: &IdGenerator,
    ) -> Result<PendingCommit, StateStoreError> {
        let Some(writer) = &self.writer else { return self.submit_changes(azure, ids) };
        Ok(writer.submit(StateChanges::collect_all(self.authority.stored_form(), azure, ids)?))
    }

    /// Submits the changes since the last call. Without a state directory, it discards them.
    pub(crate) fn submit_changes(
        &self,
        azure: &mut AzureState,
        ids: &IdGenerator,
    ) -> Result<PendingCommit, StateStoreError> {
        let Some(writer) = &self.writer else {
            azure.for_each_table(&mut |_, table| table.discard_changes());
            return Ok(PendingCommit::none());
        };
        Ok(writer.submit(StateChanges::collect(azure, ids)?))
    }
}
