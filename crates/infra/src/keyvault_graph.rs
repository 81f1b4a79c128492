//! The desired graph of a vault for the credentials of hosted clusters.

use lanyard_azure::{ArmBody as _, ResourceGroupBody, ResourceTags, RoleAssignmentBody, VaultBody};
use lanyard_vocabulary::{
    ArmResourceId, EntraTenantId, RoleDefinitionId, SubscriptionId, VaultName,
};
use serde_json::json;
use uuid::Uuid;

use crate::resource::{
    DesiredResource, PrincipalReference, ResourceDefinition, ResourceKey, ResourceStack,
};

/// The parameters of a vault.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyvaultParameters {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The resource group, which is created if it does not exist.
    pub resource_group: String,
    /// The region.
    pub location: String,
    /// The name of the vault, unique in the cloud.
    pub name: VaultName,
    /// The tenant whose principals may use the vault.
    pub tenant: EntraTenantId,
    /// Whether Azure keeps deleted objects and the deleted vault until their retention ends. This cannot be
    /// switched off later.
    pub purge_protection: bool,
    /// Whether the vault was deleted before, and is restored with its content.
    pub recover: bool,
    /// The principal that manages certificates, secrets and keys.
    pub administrator: Option<PrincipalReference>,
    /// The service principals that read secrets, such as the identity of the Secrets Store add-on.
    pub secret_readers: Vec<Uuid>,
}

impl KeyvaultParameters {
    /// The id of the vault.
    pub fn vault_id(&self) -> ArmResourceId {
        ResourceGroupBody::id(&self.subscription, &self.resource_group)
            .provider_resource(VaultBody::RESOURCE_TYPE, self.name.as_str())
    }
}

const GROUP: &str = "group";
const VAULT: &str = "vault";

/// The resources of the stack `keyvault`.
pub fn keyvault_resources(parameters: &KeyvaultParameters) -> Vec<DesiredResource> {
    let stack = ResourceStack::Keyvault;
    let group = ResourceGroupBody::id(&parameters.subscription, &parameters.resource_group);
    let vault = parameters.vault_id();
    let tenant = parameters.tenant.clone();
    let mut body = VaultBody::new(&*parameters.location, ResourceTags::new(), tenant);
    if parameters.purge_protection {
        body.properties.enable_purge_protection = Some(true);
    }
    let mut definition = ResourceDefinition::tagged(VaultBody::API_VERSION, body.to_json());
    if parameters.recover {
        // Azure does not return the mode of the creation.
        definition = definition.with_initial(json!({ "properties": { "createMode": "recover" } }));
    }
    let mut resources = vec![
        DesiredResource {
            key: ResourceKey::new(GROUP),
            stack,
            id: group,
            definition: ResourceDefinition::Shared {
                api_version: ResourceGroupBody::API_VERSION,
                body: ResourceGroupBody::new(&*parameters.location, ResourceTags::new()).to_json(),
            },
            depends_on: Vec::new(),
        },
        DesiredResource {
            key: ResourceKey::new(VAULT),
            stack,
            id: vault.clone(),
            definition,
            depends_on: vec![ResourceKey::new(GROUP)],
        },
    ];
    let mut assign =
        |key: String, role: RoleDefinitionId, principal: PrincipalReference, seed: &str| {
            let text = format!("{vault}-{}-{seed}", role.0);
            let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.to_ascii_lowercase().as_bytes());
            resources.push(DesiredResource {
                key: ResourceKey::new(key),
                stack,
                id: RoleAssignmentBody::id(&vault, name),
                definition: ResourceDefinition::RoleAssignment {
                    subscription: parameters.subscription.clone(),
                    role,
                    scope: vault.clone(),
                    principal,
                },
                depends_on: vec![ResourceKey::new(VAULT)],
            });
        };
    if let Some(administrator) = &parameters.administrator {
        let role = RoleDefinitionId::KEY_VAULT_ADMINISTRATOR;
        assign("role/administrator".to_owned(), role, administrator.clone(), "administrator");
    }
    for reader in &parameters.secret_readers {
        let role = RoleDefinitionId::KEY_VAULT_SECRETS_USER;
        let principal = PrincipalReference::ObjectId(*reader);
        assign(format!("role/secret-reader/{reader}"), role, principal, &reader.to_string());
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_graph::ResourceGraph;

    #[test]
    fn vault_has_its_roles_at_the_vault_only() {
        let parameters = KeyvaultParameters {
            subscription: "s".parse().unwrap(),
            resource_group: "os4-common".to_owned(),
            location: "eastus".to_owned(),
            name: "harbour".parse().unwrap(),
            tenant: "t".parse().unwrap(),
            purge_protection: false,
            recover: false,
            administrator: Some(PrincipalReference::User(Uuid::from_u128(1))),
            secret_readers: vec![Uuid::from_u128(2), Uuid::from_u128(3)],
        };
        let graph = ResourceGraph::new(keyvault_resources(&parameters)).unwrap();
        let vault = parameters.vault_id();
        let assignments = graph.resources().iter().filter(|it| {
            matches!(&it.definition, ResourceDefinition::RoleAssignment { scope, .. } if *scope == vault)
        });
        assert_eq!(assignments.count(), 3);
        assert_eq!(graph.resources().len(), 5);
    }
}
