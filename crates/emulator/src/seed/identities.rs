//! User-assigned identities: those of the components, with roles and credentials, and that of the
//! node.

use lanyard_vocabulary::{ArmResourceId, ClientId, RoleDefinitionId, Scope, TenantId};
use serde_json::json;
use uuid::Uuid;

use super::certificate_subject;
use super::plan::IdentityPlan;
use super::tenants::MSI_AUTHORITY;
use super::{Holder, Seed, SeedError, credential};
use crate::authorization::{AccessScope, RoleAssignment};
use crate::directory::{Principal, PrincipalKind, SubjectNameIssuer};
use crate::services::keyvault::{ObjectKind, object_scope};

/// The name of the identity that the node reads the vault with.
const READER: &str = "vault-reader";

impl Seed<'_> {
    pub(super) fn add_identities(&mut self) -> Result<(), SeedError> {
        for identity in &self.plan.identities {
            let holder = self.add_holder(identity);
            self.assign_component_roles(&holder);
            let component = holder.component;
            let is_issued = self.world.roster.sharing(&holder).next().is_some();
            self.world.roster.holders.push(holder);
            if is_issued {
                continue;
            }
            let key = self.keys.take()?;
            let decoy = self.world.roster.holder(component).is_some_and(Holder::has_wrong_key);
            let decoy = decoy.then(|| self.keys.take()).transpose()?;
            credential::issue(
                self.world,
                component,
                self.ids,
                self.now,
                &credential::Material { key, decoy, padding: 0 },
            )?;
        }
        Ok(())
    }

    fn add_holder(&mut self, identity: &IdentityPlan) -> Holder {
        let plan = self.plan;
        let component = identity.component;
        let vault_host = self.vault_host(&plan.vault.name);
        let twin = self.twin(identity);
        let (client_id, object_id, resource_id) = match twin {
            Some(twin) => (twin.client_id, twin.object_id, twin.resource_id.clone()),
            None => self.add_component_identity(identity),
        };
        let drills = plan.drills.iter();
        let faults = drills.filter(|drill| {
            let broken = plan.identities.iter().find(|row| row.component == drill.component);
            drill.component == component
                || drill.fault.is_in_the_value()
                    && broken.is_some_and(|broken| broken.secret_key() == identity.secret_key())
        });
        Holder {
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
            faults: faults.map(|drill| drill.fault).collect(),
        }
    }

    /// The earlier component that has the same identity.
    fn twin(&self, identity: &IdentityPlan) -> Option<&Holder> {
        let client = self.plan.client_of(identity);
        self.world.roster.holders.iter().find(|holder| {
            Some(holder.client_id) == client
                || holder.secret_name.as_str().eq_ignore_ascii_case(identity.secret_name.as_str())
        })
    }

    /// A new identity that trusts the certificates of the platform.
    fn add_component_identity(
        &mut self,
        identity: &IdentityPlan,
    ) -> (ClientId, Uuid, ArmResourceId) {
        let plan = self.plan;
        let client_id = plan.client_of(identity).unwrap_or_else(|| self.ids.uuid().into());
        let name = format!("{}-{}", plan.infra_id, identity.component.facts().service_name);
        let resource_id = Self::identity_id(&self.managed_group(), &name);
        let object_id = self.add_identity(&resource_id, &plan.tenant, client_id);
        if let Some(principal) = self.world.directory.by_client_mut(client_id) {
            principal.subject_name_issuer = Some(SubjectNameIssuer {
                subject: certificate_subject(client_id),
                authority: MSI_AUTHORITY.to_owned(),
            });
        }
        (client_id, object_id, resource_id)
    }

    /// Adds the Azure resource and the principal of a user-assigned identity; the object id.
    pub(super) fn add_identity(
        &mut self,
        resource_id: &ArmResourceId,
        tenant: &TenantId,
        client_id: ClientId,
    ) -> Uuid {
        let object_id = self.ids.uuid();
        let body = json!({
            "location": self.plan.location,
            "tags": {},
            "properties": { "tenantId": tenant, "principalId": object_id, "clientId": client_id },
        });
        self.store_without_state(resource_id.clone(), body);
        self.world.directory.principals.push(Principal {
            object_id,
            client_id,
            tenant: tenant.clone(),
            display_name: resource_id.name().to_owned(),
            enabled: true,
            kind: PrincipalKind::ManagedIdentity { resource_id: resource_id.clone() },
            secrets: Vec::new(),
            certificates: Vec::new(),
            subject_name_issuer: None,
            federated_credentials: Vec::new(),
        });
        object_id
    }

    pub(super) fn identity_id(group: &ArmResourceId, name: &str) -> ArmResourceId {
        group.provider("Microsoft.ManagedIdentity/userAssignedIdentities", name)
    }

    /// Gives a component its role at its scopes, once where they are the same group. The names
    /// are those of HyperShift: version 5 UUIDs of `<infraID>-<component>-<scope>`.
    fn assign_component_roles(&mut self, holder: &Holder) {
        let plan = self.plan;
        let facts = holder.component.facts();
        let key_vault = plan.kms_key.as_ref().map_or(&plan.vault.name, |key| &key.vault);
        for scope in facts.scopes {
            let scope = match scope {
                Scope::ManagedResourceGroup => self.managed_group(),
                Scope::SecurityGroupResourceGroup => self.group_of(&plan.security_group_id),
                Scope::VnetResourceGroup => self.group_of(&plan.vnet_id),
                Scope::DnsResourceGroup => self.dns_group(),
                Scope::KeyVault => self.vault_id(key_vault),
            };
            let text = format!("{}-{}-{scope}", plan.infra_id, facts.role_key);
            let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes());
            self.assign(name, facts.role, holder.object_id, scope.into());
        }
    }

    /// The identity of the node: it may read each credential by itself, so that one right can be
    /// taken away, and the metadata service answers for it.
    pub(super) fn add_vault_reader(&mut self) {
        let plan = self.plan;
        let client_id = plan.vault_reader_client_id;
        let resource_id = Self::identity_id(&self.platform_group(), READER);
        let reader = self.add_identity(&resource_id, &plan.vault.tenant, client_id);
        self.world.imds.assigned.push(client_id);
        let host = self.vault_host(&plan.vault.name);
        let Some(vault) = self.world.vaults.at_host(&host) else { return };
        let scopes: Vec<_> = plan
            .identities
            .iter()
            .map(|row| object_scope(vault, ObjectKind::Secret, row.secret_name.as_str()))
            .collect();
        for scope in scopes {
            let name = self.ids.uuid();
            self.assign(name, RoleDefinitionId::KEY_VAULT_SECRETS_USER, reader, scope);
        }
    }

    pub(super) fn assign(
        &mut self,
        name: Uuid,
        role: RoleDefinitionId,
        principal_id: Uuid,
        scope: AccessScope,
    ) {
        let assignment = RoleAssignment {
            name,
            scope,
            role,
            principal_id,
            principal_type: "ServicePrincipal".to_owned(),
            description: None,
            created_on: self.now,
        };
        // Scopes that are the same group give the same assignment again: one is enough.
        if let Err(refused) = self.world.authorization.assign(assignment) {
            tracing::debug!(%refused, "the seed assigns a role once");
        }
    }
}
