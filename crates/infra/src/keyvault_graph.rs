//! The desired graph of a vault for the credentials of hosted clusters.

use lanyard_azure::{ArmBody as _, ResourceGroupBody, ResourceTags, RoleAssignmentBody, VaultBody};
use lanyard_changes::{
    AzureEffect, AzureResource, PrincipalReference, ResourceKey, RoleAssignment,
};
use lanyard_vocabulary::{
    ArmResourceId, EntraTenantId, RoleDefinitionId, SubscriptionId, VaultName,
};
use serde_json::json;
use uuid::Uuid;

use crate::role_assignments::principal_assignment_name;
use crate::role_keys::{ADMINISTRATOR_ROLE, key_of_role};
use crate::stacks;

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
    /// The principal that manages certificates, secrets and keys: the signed-in identity.
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

/// The key of the resource group, which other stacks may use.
pub(crate) const GROUP: &str = "group";
const VAULT: &str = "vault";
const SECRET_READER_ROLE: &str = "role/secret-reader";

/// The resources of the stack `keyvault`.
pub fn keyvault_resources(parameters: &KeyvaultParameters) -> Vec<AzureResource> {
    let group = ResourceGroupBody::id(&parameters.subscription, &parameters.resource_group);
    let vault = parameters.vault_id();
    let tenant = parameters.tenant.clone();
    let mut body = VaultBody::new(&*parameters.location, ResourceTags::new(), tenant);
    if parameters.purge_protection {
        body.properties.enable_purge_protection = Some(true);
    }
    let mut effect = AzureEffect::tagged(VaultBody::API_VERSION, body.to_json());
    if parameters.recover {
        // Azure does not return the mode of the creation.
        effect = effect.with_initial(json!({ "properties": { "createMode": "recover" } }));
    }
    let mut resources = vec![
        AzureResource {
            key: ResourceKey::new(GROUP),
            stack: stacks::KEYVAULT,
            id: group.into(),
            effect: AzureEffect::shared(
                ResourceGroupBody::API_VERSION,
                ResourceGroupBody::new(&*parameters.location, ResourceTags::new()).to_json(),
            ),
            depends_on: Vec::new(),
        },
        AzureResource {
            key: ResourceKey::new(VAULT),
            stack: stacks::KEYVAULT,
            id: vault.clone().into(),
            effect,
            depends_on: vec![ResourceKey::new(GROUP)],
        },
    ];
    let mut assign = |kind: &str, role: RoleDefinitionId, principal: PrincipalReference| {
        let name = principal_assignment_name(&vault, role, &principal);
        resources.push(AzureResource {
            key: key_of_role(kind, &principal),
            stack: stacks::KEYVAULT,
            id: RoleAssignmentBody::id(&vault, name).into(),
            effect: AzureEffect::RoleAssignment(RoleAssignment {
                subscription: parameters.subscription.clone(),
                role,
                scope: vault.clone(),
                principal,
            }),
            depends_on: vec![ResourceKey::new(VAULT)],
        });
    };
    if let Some(administrator) = &parameters.administrator {
        let role = RoleDefinitionId::KEY_VAULT_ADMINISTRATOR;
        assign(ADMINISTRATOR_ROLE, role, administrator.clone());
    }
    for reader in &parameters.secret_readers {
        let principal = PrincipalReference::ObjectId(*reader);
        assign(SECRET_READER_ROLE, RoleDefinitionId::KEY_VAULT_SECRETS_USER, principal);
    }
    resources
}

#[cfg(test)]
mod tests {
    use lanyard_changes::{
        AzureGraph, CreationEvidence, LiveState, Ownership, OwnershipTags, RecordedResource,
        RecordedState, ResourceChange, WritePhase,
    };

    use super::*;
    use crate::role_keys::plan_changes;

    fn parameters(administrator: u128) -> KeyvaultParameters {
        KeyvaultParameters {
            subscription: "s".parse().unwrap(),
            resource_group: "os4-common".to_owned(),
            location: "eastus".to_owned(),
            name: "harbour".parse().unwrap(),
            tenant: "t".parse().unwrap(),
            purge_protection: false,
            recover: false,
            administrator: Some(PrincipalReference::User(Uuid::from_u128(administrator))),
            secret_readers: vec![Uuid::from_u128(2), Uuid::from_u128(3)],
        }
    }

    fn administrator_role(administrator: u128) -> AzureResource {
        let resources = keyvault_resources(&parameters(administrator)).into_iter();
        let mut roles =
            resources.filter(|it| it.key.as_str().starts_with(&format!("{ADMINISTRATOR_ROLE}/")));
        let role = roles.next().unwrap();
        assert_eq!(roles.next(), None);
        role
    }

    #[test]
    fn vault_has_its_roles_at_the_vault_only() {
        let parameters = parameters(1);
        let graph = AzureGraph::new(keyvault_resources(&parameters)).unwrap();
        let vault = parameters.vault_id();
        let assignments = graph.resources().iter().filter(|it| {
            matches!(&it.effect, AzureEffect::RoleAssignment(RoleAssignment { scope, .. }) if *scope == vault)
        });
        assert_eq!(assignments.count(), 3);
        assert_eq!(graph.resources().len(), 5);
    }

    #[test]
    fn second_caller_gets_an_assignment_of_their_own() {
        let (first, second) = (administrator_role(1), administrator_role(4));
        assert_ne!(first.key, second.key);
        assert_ne!(first.id, second.id);
        assert!(first.key.as_str().ends_with("/00000000-0000-0000-0000-000000000001"), "{first:?}");
        assert_eq!(administrator_role(1), first);
    }

    #[test]
    fn run_of_a_second_caller_deletes_no_role_of_the_first() {
        let first = administrator_role(1);
        let mut recorded = RecordedState::default();
        let keys = [
            first.key.clone(),
            // Earlier versions had one key for all callers.
            ResourceKey::new(ADMINISTRATOR_ROLE),
            ResourceKey::new(format!("{SECRET_READER_ROLE}/{}", Uuid::from_u128(5))),
        ];
        for key in &keys {
            let record = RecordedResource {
                stack: stacks::KEYVAULT,
                id: first.id.clone(),
                ownership: Ownership::Created,
                depends_on: Vec::new(),
                phase: WritePhase::Complete,
                creation: CreationEvidence::Unknown,
            };
            recorded.insert(key.clone(), record);
        }
        let graph = AzureGraph::new(keyvault_resources(&parameters(4))).unwrap();
        let tags = OwnershipTags::new("harbour", "harbour-keyvault");
        let plan = plan_changes(&graph, &LiveState::default(), &recorded, &tags);
        let deleted = plan.resources.iter().filter(|it| it.change == ResourceChange::Delete);
        // The flags no longer name this reader.
        assert_eq!(deleted.map(|it| &it.key).collect::<Vec<_>>(), [&keys[2]]);
    }
}
