//! Seeds the storage account of the image registry and the file shares, with its data plane.

use lanyard_emulator_state::storage::account::{
    GenerateAccountKeyError, StorageAccount, StorageAccountSettings,
};
use lanyard_emulator_state::storage::container::BlobContainer;
use lanyard_emulator_state::storage::names::{ParseStorageAccountNameError, StorageAccountName};
use lanyard_emulator_state::storage::store::ContainerKey;
use lanyard_vocabulary::ArmResourceId;
use serde_json::json;

use super::{AzureSeeder, SeedError};

/// The storage account of a seed plan could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeedStorageAccountError {
    #[error(transparent)]
    Name(#[from] ParseStorageAccountNameError),
    #[error(transparent)]
    Key(#[from] GenerateAccountKeyError),
}

impl AzureSeeder<'_> {
    /// Adds the storage account of the cluster.
    pub(super) fn add_storage_account(&mut self) -> Result<(), SeedError> {
        // Account names have 3 to 24 lower-case letters and digits.
        let letters = self.plan.infra_id.as_str().chars().filter(char::is_ascii_alphanumeric);
        let name: String =
            "registry".chars().chain(letters).take(24).map(|c| c.to_ascii_lowercase()).collect();
        let id = self
            .managed_resource_group()
            .provider_resource("Microsoft.Storage/storageAccounts", &name);
        let account = self
            .create_storage_account(&name, &id)
            .map_err(|error| SeedError::StorageAccount(Box::new(error)))?;
        self.store_resource(
            id.clone(),
            json!({
                "location": account.settings.location,
                "kind": account.settings.kind,
                "sku": { "name": account.settings.sku, "tier": "Standard" },
                "properties": {
                    "allowBlobPublicAccess": account.settings.allow_blob_public_access,
                    "supportsHttpsTrafficOnly": true,
                    "primaryEndpoints": { "blob": format!("https://{}/", account.host) },
                },
            }),
        );
        let container =
            ContainerKey { host: account.host.clone(), name: "image-registry".to_owned() };
        let storage = &mut self.azure.storage;
        let etag = storage.next_etag(self.now);
        storage.insert_account(account);
        storage.insert_container(container, BlobContainer::new(etag, self.now));
        let files = id.child("fileServices", "default");
        self.add_regional_resource(files.child("shares", "volumes"), json!({ "shareQuota": 100 }));
        Ok(())
    }

    fn create_storage_account(
        &mut self,
        name: &str,
        id: &ArmResourceId,
    ) -> Result<StorageAccount, SeedStorageAccountError> {
        let name: StorageAccountName = name.parse()?;
        let host = format!("{name}.{}", self.endpoints.blob_suffix());
        let settings = StorageAccountSettings {
            location: self.plan.location.clone(),
            kind: "StorageV2".to_owned(),
            sku: "Standard_LRS".to_owned(),
            allow_blob_public_access: false,
            allow_shared_key_access: true,
        };
        let (tenant, id) = (self.plan.tenant.clone(), id.clone().into());
        Ok(StorageAccount::new(name, host, id, tenant, settings, (self.ids, self.now))?)
    }
}
