//! The settings in the state: they are read from it and stored in it.

use crate::azure_state::AzureState;
use crate::settings::{EmulatorSettings, PropagationSettings};

impl EmulatorSettings {
    /// The settings in a state.
    pub fn of_state(azure: &AzureState) -> Self {
        Self {
            resource_manager: (*azure.resources.settings).clone(),
            role_assignment_limits: *azure.authorization.limits,
            propagation: PropagationSettings {
                role_assignments: *azure.propagation,
                directory: azure.directory.replication.delays,
                resources: *azure.resources.delays,
            },
            tokens: *azure.tokens,
        }
    }

    /// Stores the settings in a state.
    pub fn store(self, azure: &mut AzureState) {
        let Self { resource_manager, role_assignment_limits, propagation, tokens } = self;
        azure.authorization.limits.set(role_assignment_limits);
        azure.resources.settings.set(resource_manager);
        azure.propagation.set(propagation.role_assignments);
        let replication = &mut azure.directory.replication;
        if replication.delays != propagation.directory {
            replication.delays = propagation.directory;
        }
        azure.resources.delays.set(propagation.resources);
        azure.tokens.set(tokens);
    }
}
