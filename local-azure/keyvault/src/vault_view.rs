//! The vault of a request, with what its operations and replies need of it.

use std::sync::Arc;

use lanyard_emulator_state::azure_clouds::EmulatedCloud;
use lanyard_emulator_state::vaults::vault::{EmulatedVault, VaultStore};

use super::api_version::VaultApiVersion;

/// A vault with the store of its objects, for reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct VaultRef<'a> {
    pub(super) vault: &'a EmulatedVault,
    pub(super) vaults: &'a VaultStore,
    pub(super) api: VaultApiVersion,
    pub(super) cloud: &'a EmulatedCloud,
}

/// What replies depend on besides the object: its vault with its cloud, and the version of the API.
#[derive(Debug, Clone, Copy)]
pub(super) struct VaultView<'a> {
    pub(super) vault: &'a EmulatedVault,
    pub(super) api: VaultApiVersion,
    pub(super) cloud: &'a EmulatedCloud,
}

/// The vault of a request as a copy, for replies after a change.
#[derive(Debug)]
pub(super) struct RequestedVault {
    pub(super) vault: EmulatedVault,
    pub(super) api: VaultApiVersion,
    pub(super) cloud: Arc<EmulatedCloud>,
}

impl RequestedVault {
    pub(super) fn view(&self) -> VaultView<'_> {
        VaultView { vault: &self.vault, api: self.api, cloud: &self.cloud }
    }

    pub(super) fn with_store<'a>(&'a self, vaults: &'a VaultStore) -> VaultRef<'a> {
        VaultRef { vault: &self.vault, vaults, api: self.api, cloud: &self.cloud }
    }
}

impl VaultView<'_> {
    /// The base URL of the ids of objects, without a trailing slash.
    pub(super) fn base_url(&self) -> String {
        self.cloud.origin(&self.vault.host)
    }
}

impl<'a> VaultRef<'a> {
    pub(super) const fn view(&self) -> VaultView<'a> {
        VaultView { vault: self.vault, api: self.api, cloud: self.cloud }
    }
}

/// A vault with the store of its objects, for changes.
#[derive(Debug)]
pub(super) struct VaultMut<'a> {
    pub(super) vaults: &'a mut VaultStore,
    pub(super) requested: RequestedVault,
}
