//! Fault plans. Each breaks one hop for one component, to test that diagnostics find the fault.

use jiff::Timestamp;
use lanyard_emulator_keyvault::access::object_scope;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::identity_registry::ComponentIdentity;
use lanyard_emulator_state::vaults::object_kind::KeyVaultObjectKind;
use lanyard_vocabulary::Component;
use serde::{Deserialize, Serialize};

use crate::seed::{SeedError, rotate_credential};
pub(crate) use lanyard_emulator_state::identity_fault::IdentityFault;

/// A fault of one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultPlan {
    pub fault: IdentityFault,
    #[serde(with = "lanyard_emulator_state::component_name")]
    pub component: Component,
}

impl FaultPlan {
    /// Applies the fault to a running emulator. A fault of the credential's value creates a new
    /// version of the secret, and later rotations keep the fault; the other faults remove an
    /// object.
    ///
    /// # Errors
    ///
    /// Returns an error if the component has no identity.
    pub fn apply(
        self,
        azure: &mut AzureState,
        ids: &mut IdGenerator,
        now: Timestamp,
    ) -> Result<(), SeedError> {
        let Self { fault, component } = self;
        let identity = azure
            .registry
            .component_identity_mut(component)
            .ok_or(SeedError::ComponentIdentityMissing { component })?;
        identity.faults.insert(fault);
        let identity = identity.clone();
        if fault.changes_secret_value() {
            for sharing in azure.registry.identities_sharing_secret_mut(&identity) {
                sharing.faults.insert(fault);
            }
            rotate_credential(azure, component, ids, now, 0)?;
            return Ok(());
        }
        remove_faulted_objects(azure, fault, &identity);
        Ok(())
    }
}

/// Removes the object that a fault removes. Does nothing for a fault of the credential's value.
pub(crate) fn remove_faulted_objects(
    azure: &mut AzureState,
    fault: IdentityFault,
    identity: &ComponentIdentity,
) {
    match fault {
        IdentityFault::MissingSecret => {
            azure.vaults.secrets.remove(&identity.vault_host, identity.secret_name.as_str());
        }
        IdentityFault::VaultRole => {
            let Some(vault) = azure.vaults.vault_at_host(&identity.vault_host) else { return };
            let scope =
                object_scope(vault, KeyVaultObjectKind::Secret, identity.secret_name.as_str());
            azure.authorization.revoke_at(&scope);
        }
        IdentityFault::UnknownApplication => {
            azure.directory.remove_service_principal(identity.object_id);
        }
        IdentityFault::ArmRole => {
            azure.authorization.revoke_of_principal(identity.object_id);
        }
        IdentityFault::Encoding
        | IdentityFault::Expired
        | IdentityFault::KeyMismatch
        | IdentityFault::MissingLeaf
        | IdentityFault::Audience => {}
    }
}

#[cfg(test)]
mod tests;
