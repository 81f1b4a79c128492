//! Seeds the vaults: one with the credentials, one with the encryption key unless the first one has
//! it, and one for the test clients.

use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion,
};
use lanyard_emulator_state::vaults::vault::{EmulatedVault, VaultSettings};
use lanyard_vocabulary::{ArmResourceId, EntraTenantId, SecretName, VaultName};
use serde_json::json;

use super::{AzureSeeder, SeedError};

impl AzureSeeder<'_> {
    pub(super) fn add_vaults(&mut self) -> Result<(), SeedError> {
        let vault = &self.plan.vault;
        self.add_vault(self.vault_id(&vault.name), &vault.name, &vault.tenant);
        let Some(key) = &self.plan.kms_key else { return Ok(()) };
        self.add_vault(self.vault_id(&key.vault), &key.vault, &self.plan.tenant);
        let id = key.version.clone().unwrap_or_else(|| self.ids.next_hex32());
        self.add_kms_key(&key.vault, &key.name, id)
    }

    /// Adds a vault that trusts a tenant. An existing vault with the name is kept.
    pub(super) fn add_vault(
        &mut self,
        resource_id: ArmResourceId,
        name: &VaultName,
        tenant: &EntraTenantId,
    ) {
        let host = self.vault_host(name);
        if self.azure.vaults.vault_at_host(&host).is_some() {
            return;
        }
        let plan = self.plan;
        let settings = VaultSettings::new(tenant.clone());
        let body = json!({
            "location": plan.location,
            "properties": {
                "tenantId": tenant,
                "sku": { "family": "A", "name": "standard" },
                "accessPolicies": [],
                "enableRbacAuthorization": true,
                "enableSoftDelete": true,
                "softDeleteRetentionInDays": settings.retention_days,
                "vaultUri": format!("https://{host}/"),
            },
        });
        self.store_resource(resource_id.clone(), body);
        self.azure.vaults.insert(EmulatedVault::new(
            name.clone(),
            host,
            resource_id.into(),
            plan.location.clone(),
            settings,
        ));
    }

    pub(super) fn add_kms_key(
        &mut self,
        vault: &VaultName,
        name: &SecretName,
        id: String,
    ) -> Result<(), SeedError> {
        let content =
            KeyContent { key: self.next_rsa_key()?.into(), managed: false, operations: None };
        let version = StoredObjectVersion {
            id,
            attributes: StoredObjectAttributes::new(self.now),
            tags: None,
            content,
        };
        let host = self.vault_host(vault);
        let keys = &mut self.azure.vaults.keys;
        keys.push_version(&host, name.as_str(), version).map_err(|DeletedNameConflict| {
            SeedError::SecretDeleted { vault: host, secret: name.to_string() }
        })
    }

    /// Returns the host name of a vault.
    pub(super) fn vault_host(&self, name: &VaultName) -> String {
        format!("{name}.{}", self.endpoints.vault_suffix).to_ascii_lowercase()
    }

    /// Returns the id of a vault in the platform's resource group.
    pub(super) fn vault_id(&self, name: &VaultName) -> ArmResourceId {
        self.platform_resource_group().provider_resource("Microsoft.KeyVault/vaults", name.as_str())
    }
}
