//! Seeds the user-assigned identities: those of the components, with roles and credentials, and the
//! identity of the node.

use lanyard_emulator_keyvault::access::object_scope;
use lanyard_emulator_state::authorization::{AccessScope, RoleAssignment};
use lanyard_emulator_state::directory::{ServicePrincipal, ServicePrincipalKind};
use lanyard_emulator_state::identity_registry::ComponentIdentity;
use lanyard_emulator_state::vaults::object_kind::KeyVaultObjectKind;
use lanyard_vocabulary::{
    ArmResourceId, EntraClientId, EntraTenantId, RoleDefinitionId, RoleScope,
};
use serde_json::json;
use uuid::Uuid;

use super::plan::IdentityPlan;
use super::{AzureSeeder, SeedError, credential};

/// The name of the node's identity, which reads the credentials in the vault.
const VAULT_READER_NAME: &str = "vault-reader";

impl AzureSeeder<'_> {
    pub(super) fn add_identities(&mut self) -> Result<(), SeedError> {
        for identity in &self.plan.identities {
            let holder = self.add_component_identity(identity);
            self.assign_component_roles(&holder);
            let component = holder.component;
            let is_issued = self.azure.registry.identities_sharing_secret(&holder).next().is_some();
            self.azure.registry.holders.push(holder);
            if is_issued {
                continue;
            }
            let key = self.next_rsa_key()?;
            let decoy = self
                .azure
                .registry
                .component_identity(component)
                .is_some_and(ComponentIdentity::has_wrong_key);
            let decoy = decoy.then(|| self.next_rsa_key()).transpose()?;
            credential::issue_credential(
                self.azure,
                component,
                self.ids,
                self.now,
                &credential::CredentialMaterial { key, mismatched_key: decoy, padding: 0 },
            )?;
        }
        Ok(())
    }

    fn add_component_identity(&mut self, identity: &IdentityPlan) -> ComponentIdentity {
        let plan = self.plan;
        let component = identity.component;
        let vault_host = self.vault_host(&plan.vault.name);
        let twin = self.find_shared_identity(identity);
        let (client_id, object_id, resource_id) = match twin {
            Some(twin) => (twin.client_id, twin.object_id, twin.resource_id.clone()),
            None => self.create_component_principal(identity),
        };
        let drills = plan.drills.iter();
        let faults = drills.filter(|planned_fault| {
            let broken =
                plan.identities.iter().find(|row| row.component == planned_fault.component);
            planned_fault.component == component
                || planned_fault.fault.changes_secret_value()
                    && broken.is_some_and(|broken| {
                        broken.secret_name_key() == identity.secret_name_key()
                    })
        });
        ComponentIdentity {
            component,
            client_id,
            object_id,
            tenant: plan.tenant.clone(),
            resource_id,
            cloud: plan.cloud,
            location: plan.location.clone(),
            vault_host,
            secret_name: identity.secret_name.clone(),
            encoding: identity.encoding,
            bundle: identity.bundle,
            not_before: None,
            faults: faults.map(|planned_fault| planned_fault.fault).collect(),
        }
    }

    /// Returns an earlier component with the same identity.
    fn find_shared_identity(&self, identity: &IdentityPlan) -> Option<&ComponentIdentity> {
        let client = self.plan.client_id_of(identity);
        self.azure.registry.holders.iter().find(|holder| {
            Some(holder.client_id) == client
                || holder.secret_name.as_str().eq_ignore_ascii_case(identity.secret_name.as_str())
        })
    }

    /// Creates an identity that trusts the platform's certificate authority. Returns its client id,
    /// object id and resource id.
    fn create_component_principal(
        &mut self,
        identity: &IdentityPlan,
    ) -> (EntraClientId, Uuid, ArmResourceId) {
        let plan = self.plan;
        let client_id = plan.client_id_of(identity).unwrap_or_else(|| self.ids.next_uuid().into());
        let name = format!("{}-{}", plan.infra_id, identity.component.definition().service_name);
        let resource_id = Self::user_assigned_identity_id(&self.managed_resource_group(), &name);
        let object_id = self.add_user_assigned_identity(&resource_id, &plan.tenant, client_id);
        self.azure.directory.trust_platform_certificates(object_id);
        (client_id, object_id, resource_id)
    }

    /// Adds the ARM resource and the service principal of an identity, and returns the object id.
    pub(super) fn add_user_assigned_identity(
        &mut self,
        resource_id: &ArmResourceId,
        tenant: &EntraTenantId,
        client_id: EntraClientId,
    ) -> Uuid {
        let object_id = self.ids.next_uuid();
        let body = json!({
            "location": self.plan.location,
            "tags": {},
            "properties": { "tenantId": tenant, "principalId": object_id, "clientId": client_id },
        });
        self.store_resource_without_state(resource_id.clone(), body);
        let kind = ServicePrincipalKind::ManagedIdentity { resource_id: resource_id.clone() };
        let name = resource_id.name();
        let principal = ServicePrincipal::new(object_id, client_id, tenant.clone(), name, kind);
        self.azure.directory.insert_service_principal(principal.created_at(self.now));
        object_id
    }

    pub(super) fn user_assigned_identity_id(group: &ArmResourceId, name: &str) -> ArmResourceId {
        group.provider_resource("Microsoft.ManagedIdentity/userAssignedIdentities", name)
    }

    /// Assigns a component its role on its scopes. The names of the role assignments are those of
    /// HyperShift: version 5 UUIDs of `<infraID>-<component>-<scope>`.
    fn assign_component_roles(&mut self, holder: &ComponentIdentity) {
        let plan = self.plan;
        let facts = holder.component.definition();
        let key_vault = plan.kms_key.as_ref().map_or(&plan.vault.name, |key| &key.vault);
        for scope in facts.scopes {
            let scope = match scope {
                RoleScope::ManagedResourceGroup => self.managed_resource_group(),
                RoleScope::SecurityGroupResourceGroup => {
                    self.resource_group_of(&plan.security_group_id)
                }
                RoleScope::VnetResourceGroup => self.resource_group_of(&plan.vnet_id),
                RoleScope::DnsResourceGroup => self.dns_resource_group(),
                RoleScope::KeyVault => self.vault_id(key_vault),
            };
            let text = format!("{}-{}-{scope}", plan.infra_id, facts.role_key);
            let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes());
            self.assign_role(name, facts.role, holder.object_id, scope.into());
        }
    }

    /// Adds the node's identity to the metadata service. It has one role assignment for each
    /// credential, so that a fault plan can remove a single one.
    pub(super) fn add_vault_reader(&mut self) {
        let plan = self.plan;
        let client_id = plan.vault_reader_client_id;
        let resource_id =
            Self::user_assigned_identity_id(&self.platform_resource_group(), VAULT_READER_NAME);
        let reader = self.add_user_assigned_identity(&resource_id, &plan.vault.tenant, client_id);
        self.azure.imds.default_node.assigned.push(client_id);
        let host = self.vault_host(&plan.vault.name);
        let Some(vault) = self.azure.vaults.vault_at_host(&host) else { return };
        let scopes: Vec<_> = plan
            .identities
            .iter()
            .map(|row| object_scope(vault, KeyVaultObjectKind::Secret, row.secret_name.as_str()))
            .collect();
        for scope in scopes {
            let name = self.ids.next_uuid();
            self.assign_role(name, RoleDefinitionId::KEY_VAULT_SECRETS_USER, reader, scope);
        }
    }

    pub(super) fn assign_role(
        &mut self,
        name: Uuid,
        role: RoleDefinitionId,
        principal_id: Uuid,
        scope: AccessScope,
    ) {
        self.assign(RoleAssignment::new(name, scope, role, principal_id, self.now));
    }

    pub(super) fn assign(&mut self, assignment: RoleAssignment) {
        // Scopes in the same resource group lead to equal role assignments, of which one suffices.
        if let Err(refused) = self.azure.authorization.assign(assignment) {
            tracing::debug!(%refused, "the seed assigns a role once");
        }
    }
}
