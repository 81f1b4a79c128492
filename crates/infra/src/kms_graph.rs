//! The desired graph of the role with which the KMS identity of an environment uses its key.

use lanyard_azure::RoleAssignmentBody;
use lanyard_changes::{
    AzureEffect, AzureResource, PrincipalReference, ResourceKey, RoleAssignment,
};
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};
use uuid::Uuid;

use crate::role_keys::ENVIRONMENT_KEY_ROLE;
use crate::stacks;

/// The parameters of the KMS identity's role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsParameters {
    /// The subscription of the vault.
    pub subscription: SubscriptionId,
    /// The prefix of the environment.
    pub prefix: String,
    /// The key, or the vault with it.
    pub scope: ArmResourceId,
    /// The object id of the identity's service principal.
    pub principal: Uuid,
}

/// The resources of the stack `kms`.
pub fn kms_resources(parameters: &KmsParameters) -> Vec<AzureResource> {
    let KmsParameters { subscription, prefix, scope, principal } = parameters;
    let text = format!("{prefix}-kms-{scope}").to_ascii_lowercase();
    let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, text.as_bytes());
    vec![AzureResource {
        // A role at another key is another resource: clusters may still use the earlier key.
        key: ResourceKey::new(format!("{ENVIRONMENT_KEY_ROLE}{scope}").to_ascii_lowercase()),
        stack: stacks::KMS,
        id: RoleAssignmentBody::id(scope, name).into(),
        effect: AzureEffect::RoleAssignment(RoleAssignment {
            subscription: subscription.clone(),
            role: RoleDefinitionId::KEY_VAULT_CRYPTO_USER,
            scope: scope.clone(),
            principal: PrincipalReference::ObjectId(*principal),
        }),
        depends_on: Vec::new(),
    }]
}
